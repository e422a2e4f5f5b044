# in0: *fp32
# in1: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, out0, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr
):
    x = tl.arange(0, XBLOCK)[:, None]
    x_mask = x < 6
    y = tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 15
    inside0 = y*3 + 3 >= 38
    v0 = tl.load(in1 + x*13 + y*3 - 35, mask=x_mask & y_mask & inside0)
    inside1 = (y*3 + 3 >= 25) & (y*3 + 3 < 38)
    v1 = tl.load(in1 + x*13 + 34 - y*3, mask=x_mask & y_mask & inside1)
    v2 = tl.where(inside1, v1, v0)
    inside2 = y*3 + 3 < 25
    inside3 = y*3 + 1 < 20
    v3 = tl.load(in0 + x*20 + y*3 + 1, mask=x_mask & y_mask & inside2 & inside3, other=1.5)
    v4 = tl.where(inside2, v3, v2)
    v5 = tl.exp(v4)
    tl.store(out0 + x*15 + y, v5, mask=x_mask & y_mask)
