# in0: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr
):
    x = tl.arange(0, XBLOCK)[:, None]
    x_mask = x < 3
    y = tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 40
    v0 = (y).to(tl.int64)
    v1 = v0.to(tl.float32)
    v2 = tl.load(in0 + x, mask=x_mask)
    v3 = v1 * v2
    tl.store(out0 + x*40 + y, v3, mask=x_mask & y_mask)
