# in0: *fp32
# out0: *i64

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, YBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr
):
    z = tl.program_id(0) // tl.cdiv(40, YBLOCK)
    y = tl.program_id(0) % tl.cdiv(40, YBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 40
    lane0 = tl.full((RBLOCK, YBLOCK), float("-inf"), tl.float32)
    lane1 = tl.full((RBLOCK, YBLOCK), 2147483647, tl.int32)
    for start in tl.range(0, 3000, RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK)[:, None]
        r_mask = r < 3000
        v0 = tl.load(in0 + z*120000 + r*40 + y, mask=y_mask & r_mask)
        v1 = tl.where(r_mask, v0, float("-inf"))
        v2 = (v1 > lane0) | (lane1 == 2147483647)
        v3 = tl.where(v2, v1, lane0)
        v4 = tl.where(v2, r, lane1)
        lane0 = v3
        lane1 = v4
    v5 = tl.max(lane0, axis=0, keep_dims=True)
    v6 = tl.min(tl.where(lane0 == v5, lane1, 2147483647), axis=0, keep_dims=True)
    v7 = tl.minimum(v6, 2999).to(tl.int64)
    tl.store(out0 + z*40 + y, v7, mask=y_mask)
