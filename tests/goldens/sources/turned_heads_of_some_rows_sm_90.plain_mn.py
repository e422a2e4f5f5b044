# in0: *bf16
# in1: *bf16
# in2: *bf16
# in3: *bf16
# out0: *bf16
# out1: *bf16

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, in2, in3, out0, out1, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr
):
    tile = tl.program_id(0)
    width = GROUP * tl.cdiv(96, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(9, BM) - first, GROUP)
    xs = (first + tile % width % height) * BM
    ys = tile % width // height * BN
    x = xs + tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    y = y // 32 * 32 + y % 2 * 16 + y // 2 % 16
    x_mask = x < 9
    y_mask = y < 96
    part0 = y - 64
    part0_mask = (y >= 64) & y_mask
    part1 = y
    part1_mask = (y < 64) & y_mask
    ev0 = tl.load(in2 + part0 + 64, mask=part0_mask).to(tl.float32)
    ev5 = tl.load(in2 + part1, mask=part1_mask).to(tl.float32)
    ev8 = tl.load(in3 + x*32 + part1 % 32, mask=x_mask & part1_mask).to(tl.float32)
    einside11 = part1 % 32 >= 16
    ev12 = tl.load(in2 + part1 - 16, mask=part1_mask & einside11).to(tl.float32)
    einside15 = part1 % 32 < 16
    ev16 = tl.load(in2 + part1 + 16, mask=part1_mask & einside15).to(tl.float32)
    xa = tl.minimum(x, 8)
    yb = tl.minimum(y, 95)
    for start in range(0, 64, BK):
        ka = start + tl.arange(0, BK)[None, :]
        a = tl.load(in0 + xa*64 + ka)
        kb = start + tl.arange(0, BK)[:, None]
        b = tl.load(in1 + yb*64 + kb)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
    even, odd = tl.split(tl.reshape(acc, (BM, BN // 2, 2)))
    others = tl.reshape(tl.join(odd, even), (BM, BN))
    ev1 = acc + ev0
    ev2 = ev1.to(tl.bfloat16).to(tl.float32)
    ev3 = ev2 * ev2
    ev4 = ev3 * ev2
    tl.store(out0 + x*32 + part0, ev4, mask=x_mask & part0_mask)
    ev6 = acc + ev5
    ev7 = ev6.to(tl.bfloat16).to(tl.float32)
    ev9 = tl.cos(ev8)
    ev10 = ev7 * ev9
    ev13 = others + ev12
    ev14 = ev13.to(tl.bfloat16).to(tl.float32)
    ev17 = others + ev16
    ev18 = ev17.to(tl.bfloat16).to(tl.float32)
    ev19 = ev18 * -1.0
    ev20 = tl.where(einside15, ev19, ev14)
    ev21 = tl.sin(ev8)
    ev22 = ev20 * ev21
    ev23 = ev10 + ev22
    tl.store(out1 + x*64 + part1, ev23, mask=x_mask & part1_mask)
