# in0: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr
):
    x = tl.arange(0, XBLOCK)[:, None]
    x_mask = x < 10
    y = tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 38
    inside0 = x - 1 >= 0
    inside1 = (y - 4 >= 0) & (y - 4 < 30)
    v0 = tl.load(in0 + x*30 + y - 34, mask=x_mask & y_mask & inside0 & inside1)
    v1 = tl.exp(v0)
    v2 = v1 + 1.0
    v3 = tl.where(inside0 & inside1, v2, -2.0)
    tl.store(out0 + x*38 + y, v3, mask=x_mask & y_mask)
