# in0: *fp32
# in1: *fp32
# in2: *fp32
# out0: *fp32
# partial: *fp32
# sums: *fp32
# arrived: *i32
# scratch partial: any
# scratch sums: any
# scratch arrived: zeroed

import triton
import triton.language as tl


# As in the template: share_of, weigh, attend, finish, join, wait_for_kernels, ask_for.


@triton.jit
def kernel(
    in0, in1, in2, out0, partial, sums, arrived, BM: tl.constexpr, BN: tl.constexpr,
    SPLITS: tl.constexpr, BS: tl.constexpr
):
    z = tl.program_id(1)
    split = tl.program_id(0)
    share = tl.cdiv(tl.cdiv(777, BN), SPLITS) * BN
    for start in range(split * share, tl.minimum(split * share + share, 777), BN):
        near = tl.minimum(start + tl.arange(0, BN), 777 - 1)[:, None]
        ask_for(in1 + z*31080 + near * 40 + tl.arange(0, 1)[None, :] * 32)
        ask_for(in2 + z*31080 + near * 40 + tl.arange(0, 1)[None, :] * 32)
    wait_for_kernels()
    x = tl.arange(0, BM)[:, None]
    y = tl.arange(0, 64)[None, :]
    x_mask = x < 9
    d = tl.arange(0, 64)[None, :]
    d_mask = d < 40
    y_mask = y < 40
    q = tl.load(in0 + z*360 + x*40 + d, mask=x_mask & d_mask, other=0.0)
    peak = tl.full((BM,), -3.0e38, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, 64), tl.float32)
    low, high = 776, 776
    begin, end = share_of(split, low, high, 777, 0, SPLITS, BN)
    for start in range(begin, end, BN):
        s = start + tl.arange(0, BN)
        sk = s[:, None]
        sk_mask = sk < 777
        k = tl.load(in1 + z*31080 + sk*40 + d, mask=d_mask & sk_mask, other=0.0)
        v = tl.load(in2 + z*31080 + sk*40 + y, mask=y_mask & sk_mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="tf32x3")
        sl = s[None, :]
        scores = tl.where(sl < 777, scores, float("-inf"))
        peak, total, acc = attend(scores, v, peak, total, acc, 0.36067376022224085, "tf32x3")
    row = tl.arange(0, BM)
    at = (z * SPLITS + split) * 9 + row
    tl.store(sums + at * 2, peak, mask=row < 9)
    tl.store(sums + at * 2 + 1, total, mask=row < 9)
    tl.store(partial + at[:, None] * 64 + y, acc, mask=x < 9)
    tl.debug_barrier()
    if tl.atomic_add(arrived + z, 1, sem="acq_rel") == SPLITS - 1:
        product, shares = join(partial, sums, z, SPLITS, 9, 64, 16, BS)
        result = finish(product, shares, False)
        r = tl.arange(0, 16)[:, None]
        r_mask = r < 9
        tl.store(out0 + (r % 3)*240 + z*120 + (r // 3)*40 + y, result, mask=y_mask & r_mask)
        tl.store(arrived + z, 0)
