# in0: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr
):
    x = tl.arange(0, XBLOCK)[:, None]
    r = tl.arange(0, RBLOCK)[None, :]
    v0 = tl.load(in0 + x)
    v1 = tl.broadcast_to(v0, XBLOCK, RBLOCK)
    v2 = tl.max(v1, axis=1, keep_dims=True)
    v3 = v0 - v2
    v4 = tl.exp(v3)
    v5 = tl.broadcast_to(v4, XBLOCK, RBLOCK)
    v6 = tl.sum(v5, axis=1, keep_dims=True)
    v7 = v4 / v6
    tl.store(out0 + x*64 + r, v7)
