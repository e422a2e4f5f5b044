# in0: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, YBLOCK: tl.constexpr, RBLOCK: tl.constexpr
):
    z = tl.program_id(1)
    y = tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 40
    r = tl.arange(0, RBLOCK)[:, None]
    r_mask = r < 333
    v0 = tl.load(in0 + z*13320 + r*40 + y, mask=y_mask & r_mask)
    v1 = tl.where(r_mask, v0, float("-inf"))
    v2 = tl.max(v1, axis=0, keep_dims=True)
    v3 = v0 - v2
    v4 = tl.exp(v3)
    v5 = tl.where(r_mask, v4, 0.0)
    v6 = tl.sum(v5, axis=0, keep_dims=True)
    v7 = v4 / v6
    tl.store(out0 + z*13320 + r*40 + y, v7, mask=y_mask & r_mask)
