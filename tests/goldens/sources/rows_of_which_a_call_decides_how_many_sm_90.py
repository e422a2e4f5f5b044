# in0: *fp32
# out0: *fp32
# size_n: i32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, size_n, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr
):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    x_mask = x < size_n
    r = tl.arange(0, RBLOCK)[None, :]
    r_mask = r < 300
    v0 = tl.load(in0 + x*300 + r, mask=x_mask & r_mask)
    v1 = tl.where(r_mask, v0, 0.0)
    v2 = tl.sum(v1, axis=1, keep_dims=True)
    v3 = v2 * 0.0033333334140479565
    v4 = v0 - v3
    v5 = v4 * v4
    v6 = tl.where(r_mask, v5, 0.0)
    v7 = tl.sum(v6, axis=1, keep_dims=True)
    v8 = v7 * 0.0033333334140479565
    v9 = v8 + 9.999999747378752e-06
    v10 = tl.rsqrt(v9)
    v11 = v4 * v10
    tl.store(out0 + x*300 + r, v11, mask=x_mask & r_mask)
