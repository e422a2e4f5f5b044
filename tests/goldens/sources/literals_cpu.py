# in0: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr
):
    y = tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 40
    v0 = tl.full((), tl.full((), True, tl.int1), tl.int1) == 0
    v1 = tl.load(in0 + y + 80, mask=y_mask)
    inside0 = (y - 4 >= 0) & (y - 4 < 30)
    v2 = tl.where(inside0, tl.full((), 1.0, tl.float32), 0.0)
    v3 = v1 * v2
    v4 = tl.where(v0, v3, 0.10000000149011612)
    tl.store(out0 + y, v4, mask=y_mask)
