# in0: *fp32
# in1: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, out0, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr
):
    y = tl.program_id(0) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    if tl.program_id(0) * YBLOCK + YBLOCK <= 50001:
        v0 = tl.load(in0 + y)
        v1 = tl.load(in1 + y)
        v2 = v0 + v1
        tl.store(out0 + y, v2)
    else:
        y_mask = y < 50001
        v0 = tl.load(in0 + y, mask=y_mask)
        v1 = tl.load(in1 + y, mask=y_mask)
        v2 = v0 + v1
        tl.store(out0 + y, v2, mask=y_mask)
