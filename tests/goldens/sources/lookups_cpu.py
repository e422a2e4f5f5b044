# in0: *i64
# in1: *fp32
# in2: *i32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, in2, out0, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr
):
    x = tl.arange(0, XBLOCK)[:, None]
    x_mask = x < 20
    y = tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 48
    v0 = tl.load(in0 + x, mask=x_mask)
    v1 = tl.minimum(tl.maximum(v0, 0), 6).to(tl.int32)
    v2 = tl.load(in1 + (v1*48 + y), mask=x_mask & y_mask)
    v3 = v2 * 2.0
    v4 = tl.load(in2 + x, mask=x_mask)
    v5 = tl.minimum(tl.maximum(v4, 0), 6).to(tl.int32)
    v6 = tl.load(in1 + (v5*48 + y), mask=x_mask & y_mask)
    v7 = v3 + v6
    tl.store(out0 + x*48 + y, v7, mask=x_mask & y_mask)
