# in0: *bf16
# in1: *bf16
# in2: *bf16
# out0: *bf16

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, in2, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    STAGES: tl.constexpr
):
    ys = tl.program_id(0) * BN
    x = tl.arange(0, BM)[:, None, None]
    y = ys + tl.arange(0, BN)[None, :, None]
    products = tl.zeros((BM, BN, BK), tl.float32)
    for start in tl.range(0, 64, BK, num_stages=STAGES):
        ka = start + tl.arange(0, BK)[None, None, :]
        a = tl.load(in0 + x*64 + ka)
        kb = start + tl.arange(0, BK)[None, None, :]
        b = tl.load(in1 + y*64 + kb)
        products += a.to(tl.float32) * b.to(tl.float32)
    acc = tl.sum(products, axis=2)
    x = tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    pair = ys // 2 + tl.arange(0, BN // 2)[None, :]
    even, odd = tl.split(tl.reshape(acc, (BM, BN // 2, 2)))
    v0 = tl.load(in2 + pair*2).to(tl.float32)
    v1 = even + v0
    v2 = v1.to(tl.bfloat16).to(tl.float32)
    v3 = v2 * tl.sigmoid(v2)
    v4 = tl.load(in2 + pair*2 + 1).to(tl.float32)
    v5 = odd + v4
    v6 = v5.to(tl.bfloat16).to(tl.float32)
    v7 = v3 * v6
    tl.store(out0 + x*40 + pair, v7)
