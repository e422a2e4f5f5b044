# in0: *fp32
# in1: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    panel = 0
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    n = tl.arange(0, BN)[None, :]
    y = panel * BN + n
    acc = tl.zeros((BM, BN), tl.float32)
    y_mask = y < 20
    for start in range(0, 288, BK):
        kernel_offset = start // 96
        ca = start % 96 + tl.arange(0, BK)[None, :]
        inside0 = (((x // 4) % 5)*2 + kernel_offset - 1 >= 0) & (((x // 4) % 5)*2 + kernel_offset - 1 < 9)
        inside1 = (x % 4)*2 + ca // 32 - 1 >= 0
        a = tl.load(in0 + (x // 20)*2304 + ((x // 4) % 5)*512 + kernel_offset*256 + (x % 4)*64 + ca - 288, mask=inside0 & inside1, other=0.0)
        kb = start + tl.arange(0, BK)[:, None]
        b = tl.load(in1 + kb*64 + n)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    v0 = tl.where(acc < 0, 0, acc)
    tl.store(out0 + x*20 + n, v0, mask=y_mask)
