# in0: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr
):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    x_mask = x < 22
    y = tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 240
    inside0 = (x % 11 - 1 >= 0) & (x % 11 - 1 < 9)
    inside1 = (y >= 24) & (y < 216)
    v0 = tl.load(in0 + (x // 11)*1728 + (x % 11)*192 + y - 216, mask=x_mask & y_mask & inside0 & inside1, other=0.0)
    tl.store(out0 + x*240 + y, v0, mask=x_mask & y_mask)
