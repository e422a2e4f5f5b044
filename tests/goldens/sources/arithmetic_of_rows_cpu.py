# in0: *fp32
# in1: *fp32
# out0: *fp32

import triton
import triton.language as tl


# As in the template: gelu_by_tail.


@triton.jit
def kernel(
    in0, in1, out0, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr
):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    x_mask = x < 37
    y = tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 90
    v0 = tl.load(in0 + x*90 + y, mask=x_mask & y_mask)
    v1 = tl.load(in1 + y, mask=y_mask)
    v2 = v0 + v1
    v3 = gelu_by_tail(v2)
    tl.store(out0 + x*90 + y, v3, mask=x_mask & y_mask)
