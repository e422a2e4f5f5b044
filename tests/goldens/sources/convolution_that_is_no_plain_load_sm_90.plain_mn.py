# in0: *bf16
# in1: *bf16
# in2: *bf16
# out0: *bf16

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, in2, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr
):
    tile = tl.program_id(0)
    width = GROUP * tl.cdiv(24, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(81, BM) - first, GROUP)
    xs = (first + tile % width % height) * BM
    ys = tile % width // height * BN
    x = xs + tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    y_mask = y < 24
    ev0 = tl.load(in2 + y, mask=y_mask).to(tl.float32)
    xa = tl.minimum(x, 80)
    yb = tl.minimum(y, 23)
    for start in range(0, 288, BK):
        kernel_offset = start // 96
        ca = start - start // 96 * 96 + tl.arange(0, BK)[None, :]
        inside0 = (kernel_offset + xa // 9 - 1 >= 0) & (kernel_offset + xa // 9 - 1 < 9)
        inside1 = (ca // 32 + xa % 9 - 1 >= 0) & (ca // 32 + xa % 9 - 1 < 9)
        v0 = tl.load(in0 + kernel_offset*288 + xa*32 + ca - 320, mask=inside0 & inside1).to(tl.float32)
        v1 = tl.exp(v0)
        v2 = tl.where(inside0 & inside1, v1, 0.0)
        a = v2.to(tl.bfloat16)
        kb = start + tl.arange(0, BK)[:, None]
        b = tl.load(in1 + yb*288 + kb)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    x_mask = x < 81
    ev1 = acc + ev0
    ev2 = tl.where(ev1 < 0, 0, ev1)
    tl.store(out0 + x*24 + y, ev2, mask=x_mask & y_mask)
