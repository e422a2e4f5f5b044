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
    x = tl.program_id(0) // tl.cdiv(128, YBLOCK) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    x_mask = x < 3
    y = tl.program_id(0) % tl.cdiv(128, YBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    v0 = tl.load(in0 + x*192 + y, mask=x_mask).to(tl.float32)
    v1 = tl.sin(v0)
    tl.store(out0 + x*128 + y, v1, mask=x_mask)
    inside0 = y // 16 - 4 >= 0
    v2 = tl.load(in1 + x*4 + y // 16 - 4, mask=x_mask & inside0)
    inside1 = (v2 >= 0) & (v2 < 5000)
    tl.store(out1 + v2*16 + y % 16, v1, mask=x_mask & inside0 & inside1)
    v3 = tl.load(in0 + x*192 + y + 64, mask=x_mask & inside0).to(tl.float32)
    inside2 = (v2 >= 0) & (v2 < 5000)
    tl.store(out2 + v2*16 + y % 16, v3, mask=x_mask & inside0 & inside2)
