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
    lane0 = tl.full((RBLOCK, YBLOCK), -3.4028234663852886e+38, tl.float32)
    lane1 = tl.full((RBLOCK, YBLOCK), 0.0, tl.float32)
    for start in tl.range(0, 333, RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK)[:, None]
        r_mask = r < 333
        v0 = tl.load(in0 + z*13320 + r*40 + y, mask=y_mask & r_mask, eviction_policy="evict_last")
        v1 = tl.where(r_mask, v0, float("-inf"))
        v2 = v1 - lane0
        v3 = tl.exp(-tl.abs(v2))
        v4 = tl.maximum(lane0, v1)
        v5 = tl.where(v2 > 0, lane1 * v3 + 1.0, lane1 + v3)
        lane0 = v4
        lane1 = v5
    v6 = tl.max(lane0, axis=0, keep_dims=True)
    v7 = tl.sum(lane1 * tl.exp(lane0 - v6), axis=0, keep_dims=True)
    v8 = tl.where(v7 == 0, float("-inf"), v6)
    for start in tl.range(0, 333, RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK)[:, None]
        r_mask = r < 333
        v9 = tl.load(in0 + z*13320 + r*40 + y, mask=y_mask & r_mask, eviction_policy="evict_first")
        v10 = v9 - v8
        v11 = tl.exp(v10)
        v12 = tl.math.div_rn(v11, v7)
        tl.store(out0 + z*13320 + r*40 + y, v12, mask=y_mask & r_mask)
