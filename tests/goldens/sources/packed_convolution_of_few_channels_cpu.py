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
    x_mask = x < 144
    y_mask = y < 20
    xa = tl.minimum(x, 143)
    for start in range(0, 384, BK):
        kernel_offset = start // 128
        ca = start % 128 + tl.arange(0, BK)[None, :]
        ca_mask = ca < 72
        inside0 = ((xa // 8) % 9 + kernel_offset - 1 >= 0) & ((xa // 8) % 9 + kernel_offset - 1 < 9)
        inside1 = (ca // 24 + xa % 8 - 1 >= 0) & (ca // 24 + xa % 8 - 1 < 8)
        a = tl.load(in0 + kernel_offset*192 + xa*24 + ca - 216, mask=ca_mask & inside0 & inside1, other=0.0)
        cb = start % 128 + tl.arange(0, BK)[:, None]
        cb_mask = cb < 72
        b = tl.load(in1 + kernel_offset*4608 + cb*64 + n, mask=cb_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    tl.store(out0 + x*20 + n, acc, mask=x_mask & y_mask)
