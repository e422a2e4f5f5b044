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
    lane0 = tl.full((RBLOCK, YBLOCK), 0.0, tl.float32)
    for start in tl.range(0, 3000, RBLOCK, num_stages=STAGES):
        r = start + tl.arange(0, RBLOCK)[:, None]
        r_mask = r < 3000
        v0 = tl.load(in0 + z*120000 + r*40 + y, mask=y_mask & r_mask)
        v1 = tl.where(r_mask, v0, 0.0)
        lane0 = lane0 + v1
    v2 = tl.sum(lane0, axis=0, keep_dims=True)
    tl.store(out0 + z*40 + y, v2, mask=y_mask)
