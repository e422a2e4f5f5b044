# in0: *bf16
# in1: *bf16
# in2: *bf16
# out0: *bf16

import triton
import triton.language as tl


# As in the template: wait_for_kernels.


@triton.jit
def kernel(
    in0, in1, in2, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    STAGES: tl.constexpr
):
    ys = tl.program_id(0) * BN
    x = tl.arange(0, BM)[:, None, None]
    y = ys + tl.arange(0, BN)[None, :, None]
    x2 = tl.arange(0, BM)[:, None]
    products = tl.zeros((BM, BN, BK), tl.float32)
    start = 0
    kb = start + tl.arange(0, BK)[None, None, :]
    kb_mask = kb < 64
    b = tl.load(in1 + y*64 + kb, mask=kb_mask, other=0.0)
    share = ys // 2 + tl.arange(0, BN // 2)[None, :]
    ev0 = tl.load(in2 + share*2).to(tl.float32)
    ev4 = tl.load(in2 + share*2 + 1).to(tl.float32)
    wait_for_kernels()
    for place in tl.range(0, 64, BK, num_stages=STAGES):
        start = place
        ka = start + tl.arange(0, BK)[None, None, :]
        ka_mask = ka < 64
        a = tl.load(in0 + x*64 + ka, mask=ka_mask, other=0.0)
        products += a.to(tl.float32) * b.to(tl.float32)
        start = place + BK
        kb = start + tl.arange(0, BK)[None, None, :]
        kb_mask = kb < 64
        b = tl.load(in1 + y*64 + kb, mask=kb_mask, other=0.0)
    acc = tl.sum(products, axis=2)
    column0, column1 = tl.split(tl.reshape(acc, (BM, BN // 2, 2)))
    ev1 = column0 + ev0
    ev2 = ev1.to(tl.bfloat16).to(tl.float32)
    ev3 = ev2 * tl.sigmoid(ev2)
    ev5 = column1 + ev4
    ev6 = ev5.to(tl.bfloat16).to(tl.float32)
    ev7 = ev3 * ev6
    tl.store(out0 + x2*40 + share, ev7)
