# in0: *fp32
# out0: *i64

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, RBLOCK: tl.constexpr, VECTOR: tl.constexpr, STAGES: tl.constexpr
):
    x = tl.program_id(0)
    lane0 = tl.full((RBLOCK // VECTOR,), float("-inf"), tl.float32)
    lane1 = tl.full((RBLOCK // VECTOR,), 2147483647, tl.int32)
    for start in tl.range(0, 30001, RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
        r_mask = r < 30001
        v0 = tl.load(in0 + x*30001 + r, mask=r_mask)
        v1 = tl.where(r_mask, v0, float("-inf"))
        v2 = tl.max(v1, axis=1)
        v3 = tl.min(tl.where(v1 == v2[:, None], r, 2147483647), axis=1)
        v4 = (v2 > lane0) | (lane1 == 2147483647)
        v5 = tl.where(v4, v2, lane0)
        v6 = tl.where(v4, v3, lane1)
        lane0 = v5
        lane1 = v6
    v7 = tl.max(lane0, axis=0)
    v8 = tl.min(tl.where(lane0 == v7, lane1, 2147483647), axis=0)
    v9 = tl.minimum(v8, 30000).to(tl.int64)
    tl.store(out0 + x, v9)
