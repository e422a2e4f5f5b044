# in0: *bf16
# in1: *bf16
# in2: *bf16
# out0: *bf16
# size_n: i32

import triton
import triton.language as tl


# As in the template: wait_for_kernels.


@triton.jit
def kernel(
    in0, in1, in2, out0, size_n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    STAGES: tl.constexpr
):
    ys = tl.program_id(0) * BN
    x = tl.arange(0, BM)[:, None, None]
    y = ys + tl.arange(0, BN)[None, :, None]
    products = tl.zeros((BM, BN, BK), tl.float32)
    xa = tl.minimum(x, (size_n - 1))
    yb = tl.minimum(y, 20)
    start = 0
    ka = start + tl.arange(0, BK)[None, None, :]
    ka_mask = ka < 64
    kb = start + tl.arange(0, BK)[None, None, :]
    kb_mask = kb < 64
    b = tl.load(in1 + yb*64 + kb, mask=kb_mask, other=0.0)
    x2 = tl.arange(0, BM)[:, None]
    y2 = ys + tl.arange(0, BN)[None, :]
    x_mask = x2 < size_n
    y_mask = y2 < 21
    ev0 = tl.load(in2 + y2, mask=y_mask).to(tl.float32)
    wait_for_kernels()
    for place in tl.range(0, 64, BK, num_stages=STAGES):
        start = place
        ka = start + tl.arange(0, BK)[None, None, :]
        ka_mask = ka < 64
        a = tl.load(in0 + xa*64 + ka, mask=ka_mask, other=0.0)
        products += a.to(tl.float32) * b.to(tl.float32)
        start = place + BK
        ka = start + tl.arange(0, BK)[None, None, :]
        ka_mask = ka < 64
        kb = start + tl.arange(0, BK)[None, None, :]
        kb_mask = kb < 64
        b = tl.load(in1 + yb*64 + kb, mask=kb_mask, other=0.0)
    acc = tl.sum(products, axis=2)
    x = tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    x_mask = x < size_n
    y_mask = y < 21
    ev1 = acc + ev0
    ev2 = tl.where(ev1 < 0, 0, ev1)
    tl.store(out0 + x*21 + y, ev2, mask=x_mask & y_mask)
