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
    v3 = 0.0 + v2
    v4 = tl.load(in0 + (x // 35)*1260 + ((x // 7) % 5)*280 + (x % 7)*20 + y - 140, mask=x_mask & y_mask & inside0, other=0.0)
    v5 = tl.load(in1 + y + 20, mask=y_mask)
    v6 = v4 * v5
    v7 = v3 + v6
    inside2 = x % 7 + 1 < 7
    v8 = tl.load(in0 + (x // 35)*1260 + ((x // 7) % 5)*280 + (x % 7)*20 + y - 120, mask=x_mask & y_mask & inside0 & inside2, other=0.0)
    v9 = tl.load(in1 + y + 40, mask=y_mask)
    v10 = v8 * v9
    v11 = v7 + v10
    v12 = tl.load(in0 + (x // 35)*1260 + ((x // 7) % 5)*280 + (x % 7)*20 + y - 20, mask=x_mask & y_mask & inside1, other=0.0)
    v13 = tl.load(in1 + y + 60, mask=y_mask)
    v14 = v12 * v13
    v15 = v11 + v14
    v16 = tl.load(in0 + (x // 35)*1260 + ((x // 7) % 5)*280 + (x % 7)*20 + y, mask=x_mask & y_mask)
    v17 = tl.load(in1 + y + 80, mask=y_mask)
    v18 = v16 * v17
    v19 = v15 + v18
    v20 = tl.load(in0 + (x // 35)*1260 + ((x // 7) % 5)*280 + (x % 7)*20 + y + 20, mask=x_mask & y_mask & inside2, other=0.0)
    v21 = tl.load(in1 + y + 100, mask=y_mask)
    v22 = v20 * v21
    v23 = v19 + v22
    inside3 = ((x // 7) % 5)*2 + 1 < 9
    v24 = tl.load(in0 + (x // 35)*1260 + ((x // 7) % 5)*280 + (x % 7)*20 + y + 120, mask=x_mask & y_mask & inside3 & inside1, other=0.0)
    v25 = tl.load(in1 + y + 120, mask=y_mask)
    v26 = v24 * v25
    v27 = v23 + v26
    v28 = tl.load(in0 + (x // 35)*1260 + ((x // 7) % 5)*280 + (x % 7)*20 + y + 140, mask=x_mask & y_mask & inside3, other=0.0)
    v29 = tl.load(in1 + y + 140, mask=y_mask)
    v30 = v28 * v29
    v31 = v27 + v30
    v32 = tl.load(in0 + (x // 35)*1260 + ((x // 7) % 5)*280 + (x % 7)*20 + y + 160, mask=x_mask & y_mask & inside3 & inside2, other=0.0)
    v33 = tl.load(in1 + y + 160, mask=y_mask)
    v34 = v32 * v33
    v35 = v31 + v34
    v36 = tl.where(v35 < 0, 0, v35)
    tl.store(out0 + x*20 + y, v36, mask=x_mask & y_mask)
