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
    width = GROUP * tl.cdiv(80, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(8, BM) - first, GROUP)
    xs = (first + tile % width % height) * BM
    ys = tile % width // height * BN
    x = xs + tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    share = ys // 2 + tl.arange(0, BN // 2)[None, :]
    share_mask = share < 40
    ev0 = tl.load(in2 + share*2, mask=share_mask).to(tl.float32)
    ev4 = tl.load(in2 + share*2 + 1, mask=share_mask).to(tl.float32)
    xa = tl.minimum(x, 7)
    yb = tl.minimum(y, 79)
    for start in range(0, 64, BK):
        ka = start + tl.arange(0, BK)[None, :]
        a = tl.load(in0 + xa*64 + ka)
        kb = start + tl.arange(0, BK)[:, None]
        b = tl.load(in1 + yb*64 + kb)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    column0, column1 = tl.split(tl.reshape(acc, (BM, BN // 2, 2)))
    x_mask = x < 8
    ev1 = column0 + ev0
    ev2 = ev1.to(tl.bfloat16).to(tl.float32)
    ev3 = ev2 * tl.sigmoid(ev2)
    ev5 = column1 + ev4
    ev6 = ev5.to(tl.bfloat16).to(tl.float32)
    ev7 = ev3 * ev6
    tl.store(out0 + x*40 + share, ev7, mask=x_mask & share_mask)
