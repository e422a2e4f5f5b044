# in0: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr
):
    x = tl.arange(0, XBLOCK)[:, None]
    x_mask = x < 7
    r = tl.arange(0, RBLOCK)[None, :]
    r_mask = r < 60
    v0 = tl.load(in0 + x, mask=x_mask)
    v1 = tl.where(r_mask, v0, float("-inf"))
    v2 = tl.max(v1, axis=1, keep_dims=True)
    v3 = v0 - v2
    v4 = tl.exp(v3)
    v5 = tl.where(r_mask, v4, 0.0)
    v6 = tl.sum(v5, axis=1, keep_dims=True)
    v7 = v4 / v6
    tl.store(out0 + x*60 + r, v7, mask=x_mask & r_mask)
