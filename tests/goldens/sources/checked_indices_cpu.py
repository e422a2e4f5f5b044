# in0: *i64
# out0: *i64

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr
):
    y = tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 40
    v0 = tl.load(in0 + y, mask=y_mask)
    v1 = v0.to(tl.int64)
    v2 = tl.where(v1 < 0, v1, tl.minimum(v1, 9223372036854775806) + 1)
    v3 = v0.to(tl.int64)
    tl.store(out0 + (y) * 0, v2, mask=((v3 < -7) | (v3 > 6)) & y_mask)
