# in0: *bf16
# in1: *i8
# in2: *fp32
# out0: *bf16
# out1: *bf16

import triton
import triton.language as tl
from triton.language.extra import libdevice


# As in the template: every_other, halves, unknown_zero, raised, less_bytes, plus_bytes,
# wait_for_kernels.


@triton.jit
def kernel(
    in0, in1, in2, out0, out1, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    STAGES: tl.constexpr
):
    ys = tl.program_id(0) * BN
    y = ys + tl.arange(0, BN)[None, None, :, None]
    y2 = ys + tl.arange(0, BN)[None, :]
    chunk = tl.arange(0, BK // 16)[:, None, None, None]
    element = tl.arange(0, 8)[None, None, None, :]
    products = tl.zeros((BK // 16, BM, BN, 1), tl.float32)
    y = y // 64 * 64 + y % 2 * 32 + y // 2 % 32
    y2 = y2 // 64 * 64 + y2 % 2 * 32 + y2 // 2 % 32
    zero = unknown_zero(in1)
    v0 = tl.load(in2 + y)
    start = 0
    cb = start // 16 + chunk
    cb_mask = cb < 32
    codes = tl.load(in1.to(tl.pointer_type(tl.int32), bitcast=True) + y*128 + cb*4 + tl.arange(0, 4)[None, None, None, :], mask=cb_mask, other=0)
    part0 = y2 - 32
    part0_mask = (y2 >= 32)
    part1 = y2
    part1_mask = (y2 < 32)
    wait_for_kernels()
    for place in tl.range(0, 512, BK, num_stages=STAGES):
        start = place
        ka0 = start + chunk * 16 + element
        a0 = tl.load(in0 + ka0).to(tl.float32)
        ka1 = start + chunk * 16 + (8 + element)
        a1 = tl.load(in0 + ka1).to(tl.float32)
        codes0, codes1 = halves(codes)
        p = less_bytes(a0, 128) + less_bytes(a1, 128)
        p = plus_bytes(p, a0, codes0, zero, -2139062144)
        p = plus_bytes(p, a1, codes1, zero, -2139062144)
        p = p * v0
        products += p
        start = place + BK
        cb = start // 16 + chunk
        cb_mask = cb < 32
        codes = tl.load(in1.to(tl.pointer_type(tl.int32), bitcast=True) + y*128 + cb*4 + tl.arange(0, 4)[None, None, None, :], mask=cb_mask, other=0)
    acc = tl.sum(tl.sum(products, axis=3), axis=0)
    even, odd = tl.split(tl.reshape(acc, (BM, BN // 2, 2)))
    others = tl.reshape(tl.join(odd, even), (BM, BN))
    ev0 = acc.to(tl.bfloat16).to(tl.float32)
    ev1 = libdevice.tanh(ev0)
    tl.store(out0 + part0, ev1, mask=part0_mask)
    ev2 = acc.to(tl.bfloat16).to(tl.float32)
    ev3 = others.to(tl.bfloat16).to(tl.float32)
    ev4 = tl.sigmoid(ev3)
    ev5 = ev2 * ev4
    tl.store(out1 + part1, ev5, mask=part1_mask)
