# in0: *fp32
# out0: *i64
# out1: *i64

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, out1, RBLOCK: tl.constexpr, VECTOR: tl.constexpr, STAGES: tl.constexpr
):
    x = tl.program_id(0)
    lane0 = tl.full((RBLOCK // VECTOR,), float("-inf"), tl.float32)
    lane1 = tl.full((RBLOCK // VECTOR,), 2147483647, tl.int32)
    lane2 = tl.full((RBLOCK // VECTOR,), float("inf"), tl.float32)
    lane3 = tl.full((RBLOCK // VECTOR,), 2147483647, tl.int32)
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
        v7 = tl.where(r_mask, v0, float("inf"))
        v8 = tl.min(v7, axis=1)
        v9 = tl.min(tl.where(v7 == v8[:, None], r, 2147483647), axis=1)
        v10 = (v8 < lane2) | (lane3 == 2147483647)
        v11 = tl.where(v10, v8, lane2)
        v12 = tl.where(v10, v9, lane3)
        lane2 = v11
        lane3 = v12
    v13 = tl.max(lane0, axis=0)
    v14 = tl.min(tl.where(lane0 == v13, lane1, 2147483647), axis=0)
    v15 = tl.min(lane2, axis=0)
    v16 = tl.min(tl.where(lane2 == v15, lane3, 2147483647), axis=0)
    v17 = tl.minimum(v14, 30000).to(tl.int64)
    v18 = tl.minimum(v16, 30000).to(tl.int64)
    tl.store(out0 + x, v17)
    tl.store(out1 + x, v18)
