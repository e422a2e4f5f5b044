# in0: *fp32
# out0: *fp32
# size_n: i32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, size_n, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr
):
    y = tl.program_id(1) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    y_mask = y < (8*size_n)
    v0 = tl.load(in0 + y, mask=y_mask)
    v1 = size_n.to(tl.int64)
    v2 = v1.to(tl.float32)
    v3 = v0 / v2
    tl.store(out0 + y, v3, mask=y_mask)
