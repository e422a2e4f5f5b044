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
    n = tl.arange(0, BN)[None, :]
    y = panel * BN + n
    acc = tl.zeros((BM, BN), tl.float32)
    y_mask = y < 10
    for start in range(0, 64, BK):
        ka = start + tl.arange(0, BK)[None, :]
        a = tl.load(in0 + ka)
        kb = start + tl.arange(0, BK)[:, None]
        b = tl.load(in1 + kb*64 + n)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    tl.store(out0 + n, acc, mask=y_mask)
