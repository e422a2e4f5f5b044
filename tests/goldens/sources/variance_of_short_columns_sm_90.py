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
    v1 = tl.where(r_mask, v0, 0.0)
    v2 = tl.sum(v1, axis=0, keep_dims=True)
    v3 = v2 * 0.009999999776482582
    v4 = v0 - v3
    v5 = v4 * v4
    v6 = tl.where(r_mask, v5, 0.0)
    v7 = tl.sum(v6, axis=0, keep_dims=True)
    v8 = v7 * 0.009999999776482582
    tl.store(out0 + z*40 + y, v8, mask=y_mask)
