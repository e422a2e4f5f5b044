# in0: *bf16
# in1: *u8
# in2: *fp32
# out0: *bf16

import triton
import triton.language as tl


# As in the template: numbers_of_e4m3, sums_of_e4m3.


@triton.jit
def kernel(
    in0, in1, in2, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    STAGES: tl.constexpr
):
    ys = tl.program_id(0) * BN
    xs = tl.program_id(2) * BM
    x = xs + tl.arange(0, BM)[None, :, None, None]
    y = ys + tl.arange(0, BN)[None, None, :, None]
    chunk = tl.arange(0, BK // 16)[:, None, None, None]
    element = tl.arange(0, 16)[None, None, None, :]
    products = tl.zeros((BK // 16, BM, BN, 1), tl.float32)
    v0 = tl.load(in2 + y)
    for start in tl.range(0, 128, BK, num_stages=STAGES):
        ka = start + chunk * 16 + element
        a = tl.load(in0 + ka).to(tl.float32)
        cb = start // 16 + chunk
        codes = tl.load(in1 + y*128 + cb*16 + tl.arange(0, 16)[None, None, None, :])
        p = sums_of_e4m3(a, codes)
        p = p * v0
        products += p
    acc = tl.sum(tl.sum(products, axis=3), axis=0)
    x = xs + tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    tl.store(out0 + y, acc)
