# in0: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr
):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    r = tl.arange(0, RBLOCK)[None, :]
    r_mask = r < 30001
    v0 = tl.load(in0 + x*30001 + r, mask=r_mask)
    v1 = tl.where(r_mask, v0, 0.0)
    v2 = tl.sum(v1, axis=1, keep_dims=True)
    v3 = v2 * 3.333222048240714e-05
    v4 = v0 - v3
    v5 = v4 * v4
    v6 = tl.where(r_mask, v5, 0.0)
    v7 = tl.sum(v6, axis=1, keep_dims=True)
    v8 = v7 * 3.333222048240714e-05
    tl.store(out0 + x, v8)
