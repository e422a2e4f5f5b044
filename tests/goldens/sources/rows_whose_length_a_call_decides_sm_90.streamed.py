# in0: *fp32
# out0: *fp32
# size_n: i32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, size_n, RBLOCK: tl.constexpr, VECTOR: tl.constexpr, STAGES: tl.constexpr
):
    x = tl.program_id(0)
    lane0 = tl.full((RBLOCK // VECTOR,), -3.4028234663852886e+38, tl.float32)
    lane1 = tl.full((RBLOCK // VECTOR,), 0.0, tl.float32)
    for start in tl.range(0, size_n, RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
        r_mask = r < size_n
        v0 = tl.load(in0 + x*size_n + r, mask=r_mask, eviction_policy="evict_last")
        v1 = tl.where(r_mask, v0, float("-inf"))
        v2 = tl.maximum(lane0, tl.max(v1, axis=1))
        v3 = v2
        v4 = lane1 * tl.exp(lane0 - v2) + tl.sum(tl.exp(v1 - v2[:, None]), axis=1)
        lane0 = v3
        lane1 = v4
    v5 = tl.max(lane0, axis=0)
    v6 = tl.sum(lane1 * tl.exp(lane0 - v5), axis=0)
    v7 = tl.where(v6 == 0, float("-inf"), v5)
    for start in tl.range(0, size_n, RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
        r_mask = r < size_n
        v8 = tl.load(in0 + x*size_n + r, mask=r_mask, eviction_policy="evict_first")
        v9 = v8 - v7
        v10 = tl.exp(v9)
        v11 = tl.math.div_rn(v10, v6)
        tl.store(out0 + x*size_n + r, v11, mask=r_mask)
