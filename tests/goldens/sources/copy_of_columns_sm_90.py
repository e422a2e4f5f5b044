# in0: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr
):
    x = tl.program_id(0) // tl.cdiv(130, YBLOCK) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    x_mask = x < 70
    y = tl.program_id(0) % tl.cdiv(130, YBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 130
    v0 = tl.load(in0 + x*130 + y, mask=x_mask & y_mask)
    tl.store(out0 + y*70 + x, v0, mask=x_mask & y_mask)
