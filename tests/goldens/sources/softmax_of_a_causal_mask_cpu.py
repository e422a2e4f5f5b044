# in0: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr
):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    x_mask = x < 80
    r = tl.arange(0, RBLOCK)[None, :]
    r_mask = r < 40
    v0 = (x % 40).to(tl.int64)
    v1 = (r).to(tl.int64)
    v2 = v0 >= v1
    v3 = tl.load(in0 + x*40 + r, mask=x_mask & r_mask)
    v4 = tl.where(v2, v3, float("-inf"))
    v5 = tl.where(r_mask, v4, float("-inf"))
    v6 = tl.max(v5, axis=1, keep_dims=True)
    v7 = v4 - v6
    v8 = tl.exp(v7)
    v9 = tl.where(r_mask, v8, 0.0)
    v10 = tl.sum(v9, axis=1, keep_dims=True)
    v11 = v8 / v10
    tl.store(out0 + x*40 + r, v11, mask=x_mask & r_mask)
