# in0: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, YBLOCK: tl.constexpr, RBLOCK: tl.constexpr
):
    y = tl.program_id(0) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 40
    v0 = tl.full((1, YBLOCK), float("-inf"), tl.float32)
    for start in range(0, 70001, RBLOCK):
        r = start + tl.arange(0, RBLOCK)[:, None]
        r_mask = r < 70001
        v1 = tl.load(in0 + r*40 + y, mask=y_mask & r_mask)
        v2 = tl.where(r_mask, v1, float("-inf"))
        v3 = tl.max(v2, axis=0, keep_dims=True)
        v0 = tl.maximum(v0, v3)
    tl.store(out0 + y, v0, mask=y_mask)
