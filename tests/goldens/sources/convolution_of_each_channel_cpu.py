# in0: *fp32
# in1: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, out0, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr
):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    x_mask = x < 70
    y = tl.program_id(1) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 20
    inside0 = ((x // 7) % 5)*2 - 1 >= 0
    inside1 = x % 7 - 1 >= 0
    v0 = tl.load(in0 + (x // 35)*1260 + ((x // 7) % 5)*280 + (x % 7)*20 + y - 160, mask=x_mask & y_mask & inside0 & inside1, other=0.0)
    v1 = tl.load(in1 + y, mask=y_mask)
    v2 = v0 * v1
    v3 = tl.load(in0 + (x // 35)*1260 + ((x // 7) % 5)*280 + (x % 7)*20 + y - 140, mask=x_mask & y_mask & inside0, other=0.0)
    v4 = tl.load(in1 + y + 20, mask=y_mask)
    v5 = v3 * v4
    v6 = v2 + v5
    inside2 = x % 7 + 1 < 7
    v7 = tl.load(in0 + (x // 35)*1260 + ((x // 7) % 5)*280 + (x % 7)*20 + y - 120, mask=x_mask & y_mask & inside0 & inside2, other=0.0)
    v8 = tl.load(in1 + y + 40, mask=y_mask)
    v9 = v7 * v8
    v10 = v6 + v9
    v11 = tl.load(in0 + (x // 35)*1260 + ((x // 7) % 5)*280 + (x % 7)*20 + y - 20, mask=x_mask & y_mask & inside1, other=0.0)
    v12 = tl.load(in1 + y + 60, mask=y_mask)
    v13 = v11 * v12
    v14 = v10 + v13
    v15 = tl.load(in0 + (x // 35)*1260 + ((x // 7) % 5)*280 + (x % 7)*20 + y, mask=x_mask & y_mask)
    v16 = tl.load(in1 + y + 80, mask=y_mask)
    v17 = v15 * v16
    v18 = v14 + v17
    v19 = tl.load(in0 + (x // 35)*1260 + ((x // 7) % 5)*280 + (x % 7)*20 + y + 20, mask=x_mask & y_mask & inside2, other=0.0)
    v20 = tl.load(in1 + y + 100, mask=y_mask)
    v21 = v19 * v20
    v22 = v18 + v21
    inside3 = ((x // 7) % 5)*2 + 1 < 9
    v23 = tl.load(in0 + (x // 35)*1260 + ((x // 7) % 5)*280 + (x % 7)*20 + y + 120, mask=x_mask & y_mask & inside3 & inside1, other=0.0)
    v24 = tl.load(in1 + y + 120, mask=y_mask)
    v25 = v23 * v24
    v26 = v22 + v25
    v27 = tl.load(in0 + (x // 35)*1260 + ((x // 7) % 5)*280 + (x % 7)*20 + y + 140, mask=x_mask & y_mask & inside3, other=0.0)
    v28 = tl.load(in1 + y + 140, mask=y_mask)
    v29 = v27 * v28
    v30 = v26 + v29
    v31 = tl.load(in0 + (x // 35)*1260 + ((x // 7) % 5)*280 + (x % 7)*20 + y + 160, mask=x_mask & y_mask & inside3 & inside2, other=0.0)
    v32 = tl.load(in1 + y + 160, mask=y_mask)
    v33 = v31 * v32
    v34 = v30 + v33
    v35 = tl.where(v34 < 0, 0, v34)
    tl.store(out0 + x*20 + y, v35, mask=x_mask & y_mask)
