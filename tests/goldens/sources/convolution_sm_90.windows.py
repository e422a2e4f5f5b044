# in0: *bf16
# in1: *bf16
# in2: *bf16
# out0: *bf16

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, in2, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    y = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    steps: tl.constexpr = (64 + BK - 1) // BK
    x_mask = x < 98
    y_mask = y < 72
    xa = tl.minimum(x, 97)
    rows = in0 + (xa*64 - 512)
    edge0 = (xa // 7) % 7 - 1
    inside0 = ((edge0 >= 0).to(tl.int32) << 0) | ((edge0 < 5).to(tl.int32) << 2) | 2
    edge1 = xa % 7 - 1
    inside1 = ((edge1 >= 0).to(tl.int32) << 0) | ((edge1 < 5).to(tl.int32) << 2) | 2
    v0 = tl.load(in2 + y, mask=y_mask).to(tl.float32)
    for step in range(9 * steps):
        kernel_offset = step // steps
        ca = step % steps * BK + tl.arange(0, BK)[None, :]
        a = tl.load(rows + ((kernel_offset // 3)*448 + (kernel_offset % 3)*64 + ca), mask=(inside0 >> (kernel_offset // 3)) & (inside1 >> (kernel_offset % 3)) & 1 != 0, other=0.0)
        cb = step % steps * BK + tl.arange(0, BK)[:, None]
        b = tl.load(in1 + y*576 + kernel_offset*64 + cb, mask=y_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    v1 = acc + v0
    v2 = tl.where(v1 < 0, 0, v1)
    tl.store(out0 + x*72 + y, v2, mask=x_mask & y_mask)
