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
    PROGRAMS: tl.constexpr
):
    x = tl.arange(0, BM)[:, None, None]
    x2 = tl.arange(0, BM)[:, None]
    y = tl.program_id(0) * BN + tl.arange(0, BN)[None, :, None]
    xa = tl.minimum(x, 2)
    yb = tl.minimum(y, 9000)
    start = 0
    kb = start + tl.arange(0, BK)[None, None, :]
    kb_mask = kb < 200
    b = tl.load(in1 + yb*200 + kb, mask=kb_mask, other=0.0)
    ka = start + tl.arange(0, BK)[None, None, :]
    ka_mask = ka < 200
    wait_for_kernels()
    ka = start + tl.arange(0, BK)[None, None, :]
    ka_mask = ka < 200
    a = tl.load(in0 + xa*200 + ka, mask=ka_mask, other=0.0)
    for block in range(tl.program_id(0), tl.cdiv(9001, BN), PROGRAMS):
        ys = block * BN
        y2 = ys + tl.arange(0, BN)[None, :]
        y2_mask = y2 < 9001
        ev0 = tl.load(in2 + y2, mask=y2_mask).to(tl.float32)
        products = a.to(tl.float32) * b.to(tl.float32)
        following = tl.minimum(block + PROGRAMS, tl.cdiv(9001, BN) - 1) * BN
        y = following + tl.arange(0, BN)[None, :, None]
        xa = tl.minimum(x, 2)
        yb = tl.minimum(y, 9000)
        start = 0
        kb = start + tl.arange(0, BK)[None, None, :]
        kb_mask = kb < 200
        b = tl.load(in1 + yb*200 + kb, mask=kb_mask, other=0.0)
        acc = tl.sum(products, axis=2)
        x2_mask = x2 < 3
        ev1 = acc + ev0
        ev2 = tl.where(ev1 < 0, 0, ev1)
        tl.store(out0 + x2*9001 + y2, ev2, mask=x2_mask & y2_mask)
