# in0: *fp32
# out0: *fp32
# out1: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, out1, RBLOCK: tl.constexpr, VECTOR: tl.constexpr, STAGES: tl.constexpr
):
    x = tl.program_id(0)
    lane0 = tl.full((RBLOCK // VECTOR,), 0.0, tl.float32)
    lane1 = tl.full((RBLOCK // VECTOR,), float("-inf"), tl.float32)
    for start in tl.range(0, 30001, RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
        r_mask = r < 30001
        v0 = tl.load(in0 + x*30001 + r, mask=r_mask)
        v1 = tl.where(r_mask, v0, 0.0)
        lane0 = lane0 + tl.sum(v1, axis=1)
        v2 = tl.where(r_mask, v0, float("-inf"))
        lane1 = tl.maximum(lane1, tl.max(v2, axis=1))
    v3 = tl.sum(lane0, axis=0)
    v4 = tl.max(lane1, axis=0)
    tl.store(out0 + x, v3)
    tl.store(out1 + x, v4)
