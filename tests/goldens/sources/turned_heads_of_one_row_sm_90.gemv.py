# in0: *bf16
# in1: *bf16
# in2: *bf16
# in3: *bf16
# out0: *bf16
# out1: *bf16

import triton
import triton.language as tl


# As in the template: wait_for_kernels.


@triton.jit
def kernel(
    in0, in1, in2, in3, out0, out1, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    STAGES: tl.constexpr
):
    ys = tl.program_id(0) * BN
    y = ys + tl.arange(0, BN)[None, :, None]
    y2 = ys + tl.arange(0, BN)[None, :]
    products = tl.zeros((BM, BN, BK), tl.float32)
    y = y // 32 * 32 + y % 2 * 16 + y // 2 % 16
    y2 = y2 // 32 * 32 + y2 % 2 * 16 + y2 // 2 % 16
    start = 0
    kb = start + tl.arange(0, BK)[None, None, :]
    kb_mask = kb < 64
    b = tl.load(in1 + y*64 + kb, mask=kb_mask, other=0.0)
    part0 = y2 - 64
    part0_mask = (y2 >= 64)
    part1 = y2
    part1_mask = (y2 < 64)
    ev0 = tl.load(in2 + part0 + 64, mask=part0_mask).to(tl.float32)
    ev5 = tl.load(in2 + part1, mask=part1_mask).to(tl.float32)
    einside11 = part1 % 32 >= 16
    ev12 = tl.load(in2 + part1 - 16, mask=part1_mask & einside11).to(tl.float32)
    einside15 = part1 % 32 < 16
    ev16 = tl.load(in2 + part1 + 16, mask=part1_mask & einside15).to(tl.float32)
    wait_for_kernels()
    ev8 = tl.load(in3 + part1 % 32, mask=part1_mask).to(tl.float32)
    for place in tl.range(0, 64, BK, num_stages=STAGES):
        start = place
        ka = start + tl.arange(0, BK)[None, None, :]
        ka_mask = ka < 64
        a = tl.load(in0 + ka, mask=ka_mask, other=0.0)
        products += a.to(tl.float32) * b.to(tl.float32)
        start = place + BK
        kb = start + tl.arange(0, BK)[None, None, :]
        kb_mask = kb < 64
        b = tl.load(in1 + y*64 + kb, mask=kb_mask, other=0.0)
    acc = tl.sum(products, axis=2)
    even, odd = tl.split(tl.reshape(acc, (BM, BN // 2, 2)))
    others = tl.reshape(tl.join(odd, even), (BM, BN))
    ev1 = acc + ev0
    ev2 = ev1.to(tl.bfloat16).to(tl.float32)
    ev3 = ev2 * ev2
    ev4 = ev3 * ev2
    tl.store(out0 + part0, ev4, mask=part0_mask)
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
    tl.store(out1 + part1, ev23, mask=part1_mask)
