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
    x_mask = x < 50
    y_mask = y < 40
    xa = tl.minimum(x, 49)
    rows = in0 + ((xa // 25)*648 + ((xa // 5) % 5)*144 + (xa % 5)*16 - 80)
    edge0 = ((xa // 5) % 5)*2 - 1
    inside0 = ((edge0 >= 0).to(tl.int32) << 0) | ((edge0 < 7).to(tl.int32) << 2) | 2
    edge1 = (xa % 5)*2 - 1
    inside1 = ((edge1 >= 0).to(tl.int32) << 0) | ((edge1 < 7).to(tl.int32) << 2) | 2
    v0 = tl.load(in2 + y, mask=y_mask).to(tl.float32)
    for start in range(0, 9 * 8, BK):
        ka = start + tl.arange(0, BK)[None, :]
        kb = start + tl.arange(0, BK)[:, None]
        kernel_offset_a = ka // 8
        ca = ka % 8
        a = tl.load(rows + ((kernel_offset_a // 3)*72 + (kernel_offset_a % 3)*8 + ca), mask=((inside0 >> (kernel_offset_a // 3)) & (inside1 >> (kernel_offset_a % 3)) & 1 != 0) & (kernel_offset_a < 9), other=0.0)
        kernel_offset_b = kb // 8
        cb = kb % 8
        b = tl.load(in1 + y*72 + kernel_offset_b*8 + cb, mask=(kernel_offset_b < 9) & y_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    v1 = acc + v0
    v2 = tl.where(v1 < 0, 0, v1)
    tl.store(out0 + x*40 + y, v2, mask=x_mask & y_mask)
