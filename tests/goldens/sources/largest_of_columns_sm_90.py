# in0: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, YBLOCK: tl.constexpr, RBLOCK: tl.constexpr
):
    z = tl.program_id(0) // tl.cdiv(40, YBLOCK)
    y = tl.program_id(0) % tl.cdiv(40, YBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 40
    r = tl.arange(0, RBLOCK)[:, None]
    r_mask = r < 100
    v0 = tl.load(in0 + z*4000 + r*40 + y, mask=y_mask & r_mask)
    v1 = tl.where(r_mask, v0, float("-inf"))
    v2 = tl.max(v1, axis=0, keep_dims=True)
    tl.store(out0 + z*40 + y, v2, mask=y_mask)
