# in0: *fp16
# in1: *fp16
# in2: *fp16
# out0: *fp16
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
    share = tl.cdiv(tl.cdiv(440, BN), SPLITS) * BN
    for start in range(split * share, tl.minimum(split * share + share, 440), BN):
        near = tl.minimum(start + tl.arange(0, BN), 440 - 1)[:, None]
        ask_for(in1 + z*14080 + near * 32 + tl.arange(0, 1)[None, :] * 64)
        ask_for(in2 + z*14080 + near * 32 + tl.arange(0, 1)[None, :] * 64)
    wait_for_kernels()
    x = tl.arange(0, BM)[:, None]
    y = tl.arange(0, 32)[None, :]
    x_mask = x < 10
    d = tl.arange(0, 32)[None, :]
    q = tl.load(in0 + z*320 + x*32 + d, mask=x_mask, other=0.0)
    peak = tl.full((BM,), -3.0e38, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, 32), tl.float32)
    low, high = 435, 439
    begin, end = share_of(split, low, high, 440, 0, SPLITS, BN)
    for start in range(begin, end, BN):
        s = start + tl.arange(0, BN)
        sk = s[:, None]
        sk_mask = sk < 440
        k = tl.load(in1 + z*14080 + sk*32 + d, mask=sk_mask, other=0.0)
        v = tl.load(in2 + z*14080 + sk*32 + y, mask=sk_mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        sl = s[None, :]
        scores = tl.where(sl < 440, scores, float("-inf"))
        scores = tl.where(sl <= x % 5 + 435, scores, float("-inf"))
        peak, total, acc = attend(scores, v, peak, total, acc, 0.36067376022224085, "ieee")
    row = tl.arange(0, BM)
    at = (z * SPLITS + split) * 10 + row
    tl.store(sums + at * 2, peak, mask=row < 10)
    tl.store(sums + at * 2 + 1, total, mask=row < 10)
    tl.store(partial + at[:, None] * 32 + y, acc, mask=x < 10)
    tl.debug_barrier()
    if tl.atomic_add(arrived + z, 1, sem="acq_rel") == SPLITS - 1:
        product, shares = join(partial, sums, z, SPLITS, 10, 32, 16, BS)
        result = finish(product, shares, False)
        r = tl.arange(0, 16)[:, None]
        r_mask = r < 10
        tl.store(out0 + (r % 5)*128 + z*64 + (r // 5)*32 + y, result, mask=r_mask)
        tl.store(arrived + z, 0)
