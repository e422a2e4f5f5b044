# in0: *bf16
# in1: *bf16
# in2: *bf16
# out0: *bf16
# size_n: i32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, in2, out0, size_n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    STAGES: tl.constexpr
):
    ys = tl.program_id(0) * BN
    xs = tl.program_id(2) * BM
    x = xs + tl.arange(0, BM)[:, None, None]
    y = ys + tl.arange(0, BN)[None, :, None]
    x2 = xs + tl.arange(0, BM)[:, None]
    y2 = ys + tl.arange(0, BN)[None, :]
    products = tl.zeros((BM, BN, BK), tl.float32)
    xa = tl.minimum(x, (size_n - 1))
    yb = tl.minimum(y, 20)
    for start in tl.range(0, 64, BK, num_stages=STAGES):
        ka = start + tl.arange(0, BK)[None, None, :]
        a = tl.load(in0 + xa*64 + ka)
        kb = start + tl.arange(0, BK)[None, None, :]
        b = tl.load(in1 + yb*64 + kb)
        products += a.to(tl.float32) * b.to(tl.float32)
    acc = tl.sum(products, axis=2)
    x2_mask = x2 < size_n
    y2_mask = y2 < 21
    v0 = tl.load(in2 + y2, mask=y2_mask).to(tl.float32)
    v1 = acc + v0
    v2 = tl.where(v1 < 0, 0, v1)
    tl.store(out0 + x2*21 + y2, v2, mask=x2_mask & y2_mask)
