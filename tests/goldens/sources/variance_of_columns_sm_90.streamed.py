# in0: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, YBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr
):
    z = tl.program_id(0) // tl.cdiv(40, YBLOCK)
    y = tl.program_id(0) % tl.cdiv(40, YBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 40
    lane0 = tl.full((RBLOCK, 1), 0.0, tl.float32)
    lane1 = tl.full((RBLOCK, YBLOCK), 0.0, tl.float32)
    lane2 = tl.full((RBLOCK, YBLOCK), 0.0, tl.float32)
    for start in tl.range(0, 3000, RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK)[:, None]
        r_mask = r < 3000
        v0 = tl.load(in0 + z*120000 + r*40 + y, mask=y_mask & r_mask)
        v1 = tl.where(r_mask, v0, 0.0)
        v2 = tl.where(r_mask, v1 - lane1, 0.0)
        v3 = lane0 + r_mask.to(tl.float32)
        v4 = 1.0 / tl.maximum(v3, 1.0)
        v5 = lane1 + v2 * v4
        v6 = v3
        v7 = v5
        v8 = lane2 + tl.where(r_mask, v2 * (v1 - v5), 0.0)
        lane0 = v6
        lane1 = v7
        lane2 = v8
    v9 = tl.sum(lane0, axis=0, keep_dims=True)
    v10 = tl.sum(lane1 * lane0, axis=0, keep_dims=True) / v9
    v11 = lane1 - v10
    v12 = tl.sum(lane2 + lane0 * v11 * v11, axis=0, keep_dims=True)
    v13 = v10 * 3000.0
    v14 = v12 * 0.00033333332976326346
    tl.store(out0 + z*40 + y, v14, mask=y_mask)
