# in0: *i64
# out0: *i32

import triton
import triton.language as tl


# As in the template: philox_word.


@triton.jit
def kernel(
    in0, out0, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr
):
    y = tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 40
    v0 = tl.load(in0)
    v1 = (y).to(tl.int64)
    v2 = philox_word(v0.to(tl.int64), v0.to(tl.int64), v1.to(tl.int64), 3, 1)
    v3 = v2 + 0
    tl.store(out0 + y, v3, mask=y_mask)
