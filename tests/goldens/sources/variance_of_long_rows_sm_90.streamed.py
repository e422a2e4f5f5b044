# in0: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, RBLOCK: tl.constexpr, VECTOR: tl.constexpr, STAGES: tl.constexpr
):
    x = tl.program_id(0)
    lane0 = tl.full((RBLOCK // VECTOR,), 0.0, tl.float32)
    lane1 = tl.full((RBLOCK // VECTOR,), 0.0, tl.float32)
    lane2 = tl.full((RBLOCK // VECTOR,), 0.0, tl.float32)
    for start in tl.range(0, 30001, RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
        r_mask = r < 30001
        v0 = tl.load(in0 + x*30001 + r, mask=r_mask)
        v1 = tl.where(r_mask, v0, 0.0)
        v2 = tl.where(r_mask, v1 - lane1[:, None], 0.0)
        v3 = lane0 + tl.sum(r_mask.to(tl.float32), axis=1)
        v4 = lane1 + tl.sum(v2, axis=1) / tl.maximum(v3, 1.0)
        v5 = v3
        v6 = v4
        v7 = lane2 + tl.sum(tl.where(r_mask, v2 * (v1 - v4[:, None]), 0.0), axis=1)
        lane0 = v5
        lane1 = v6
        lane2 = v7
    v8 = tl.sum(lane0, axis=0)
    v9 = tl.sum(lane1 * lane0, axis=0) / v8
    v10 = lane1 - v9
    v11 = tl.sum(lane2 + lane0 * v10 * v10, axis=0)
    v12 = v9 * 30001.0
    v13 = v11 * 3.333222048240714e-05
    tl.store(out0 + x, v13)
