# in0: *bf16
# in1: *bf16
# out0: *bf16
# out1: *i1
# out2: *bf16

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, out0, out1, out2, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr
):
    y = tl.program_id(1) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 640
    v0 = tl.load(in0 + y, mask=y_mask).to(tl.float32)
    v1 = tl.load(in1 + y, mask=y_mask).to(tl.float32)
    v2 = v0 + v1
    v3 = v2.to(tl.bfloat16).to(tl.float32)
    v4 = tl.exp(v3)
    tl.store(out0 + y, v4, mask=y_mask)
    v5 = v3 > 0.5
    tl.store(out1 + y, v5, mask=y_mask)
    v6 = tl.floor(v3)
    tl.store(out2 + y, v6, mask=y_mask)
