# in0: *fp32
# out0: *fp32
# out1: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, out1, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr
):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    r = tl.arange(0, RBLOCK)[None, :]
    r_mask = r < 30001
    v0 = tl.load(in0 + x*30001 + r, mask=r_mask)
    v1 = tl.where(r_mask, v0, 0.0)
    v2 = tl.sum(v1, axis=1, keep_dims=True)
    tl.store(out0 + x, v2)
    v3 = tl.where(r_mask, v0, float("-inf"))
    v4 = tl.max(v3, axis=1, keep_dims=True)
    tl.store(out1 + x, v4)
