# in0: *bf16
# in1: *i32
# in2: *bf16
# in3: *bf16
# out0: *bf16
# out1: *bf16
# out2: *bf16

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, in2, in3, out0, out1, out2, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr
):
    x = tl.arange(0, XBLOCK)[:, None]
    x_mask = x < 24
    y = tl.arange(0, YBLOCK)[None, :]
    v0 = tl.load(in0 + (x // 8)*192 + (x % 8)*16 + y, mask=x_mask).to(tl.float32)
    v1 = tl.sin(v0)
    tl.store(out0 + x*16 + y, v1, mask=x_mask)
    inside0 = x % 8 - 4 >= 0
    v2 = tl.load(in1 + (x // 8)*4 + x % 8 - 4, mask=x_mask & inside0)
    inside1 = (v2 >= 0) & (v2 < 5000)
    tl.store(out1 + v2*16 + y, v1, mask=x_mask & inside0 & inside1)
    v3 = tl.load(in0 + (x // 8)*192 + (x % 8)*16 + y + 64, mask=x_mask & inside0).to(tl.float32)
    inside2 = (v2 >= 0) & (v2 < 5000)
    tl.store(out2 + v2*16 + y, v3, mask=x_mask & inside0 & inside2)
