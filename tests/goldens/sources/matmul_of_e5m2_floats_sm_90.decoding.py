# in0: *bf16
# in1: *u8
# in2: *fp32
# out0: *bf16

import triton
import triton.language as tl


# As in the template: every_other, halves, widened_bytes, plus_floats, plus_e5m2,
# wait_for_kernels.


@triton.jit
def kernel(
    in0, in1, in2, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    STAGES: tl.constexpr
):
    ys = tl.program_id(0) * BN
    xs = tl.program_id(2) * BM
    x = xs + tl.arange(0, BM)[None, :, None, None]
    y = ys + tl.arange(0, BN)[None, None, :, None]
    x2 = xs + tl.arange(0, BM)[:, None]
    y2 = ys + tl.arange(0, BN)[None, :]
    chunk = tl.arange(0, BK // 16)[:, None, None, None]
    element = tl.arange(0, 8)[None, None, None, :]
    products = tl.zeros((BK // 16, BM, BN, 1), tl.float32)
    start = 0
    cb = start // 16 + chunk
    cb_mask = cb < 32
    codes = tl.load(in1.to(tl.pointer_type(tl.int32), bitcast=True) + y*128 + cb*4 + tl.arange(0, 4)[None, None, None, :], mask=cb_mask, other=0)
    v0 = tl.load(in2 + y*16 + cb // 2, mask=cb_mask)
    wait_for_kernels()
    for place in tl.range(0, 512, BK, num_stages=STAGES):
        start = place
        ka0 = start + chunk * 16 + element
        a0 = tl.load(in0 + x*512 + ka0).to(tl.float32)
        ka1 = start + chunk * 16 + (8 + element)
        a1 = tl.load(in0 + x*512 + ka1).to(tl.float32)
        codes0, codes1 = halves(codes)
        p = 0.0
        p = plus_e5m2(p, a0, codes0)
        p = plus_e5m2(p, a1, codes1)
        p = p * v0
        products += p
        start = place + BK
        cb = start // 16 + chunk
        cb_mask = cb < 32
        codes = tl.load(in1.to(tl.pointer_type(tl.int32), bitcast=True) + y*128 + cb*4 + tl.arange(0, 4)[None, None, None, :], mask=cb_mask, other=0)
        v0 = tl.load(in2 + y*16 + cb // 2, mask=cb_mask)
    acc = tl.sum(tl.sum(products, axis=3), axis=0)
    tl.store(out0 + x2*64 + y2, acc)
