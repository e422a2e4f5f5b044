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
    share = tl.cdiv(tl.cdiv(500, BN), SPLITS) * BN
    for start in range(split * share, tl.minimum(split * share + share, 500), BN):
        near = tl.minimum(start + tl.arange(0, BN), 500 - 1)[:, None]
        ask_for(in1 + z*16000 + near * 32 + tl.arange(0, 1)[None, :] * 64)
        ask_for(in2 + z*16000 + near * 32 + tl.arange(0, 1)[None, :] * 64)
    wait_for_kernels()
    x = tl.arange(0, BM)[:, None]
    y = tl.arange(0, 32)[None, :]
    d = tl.arange(0, 32)[None, :]
    v0 = tl.load(in0 + z*32 + d)
    q = tl.broadcast_to(v0, BM, 32)
    peak = tl.full((BM,), -3.0e38, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, 32), tl.float32)
    low, high = 499, 499
    begin, end = share_of(split, low, high, 500, 0, SPLITS, BN)
    for start in range(begin, end, BN):
        s = start + tl.arange(0, BN)
        sk = s[:, None]
        sk_mask = sk < 500
        k = tl.load(in1 + z*16000 + sk*32 + d, mask=sk_mask, other=0.0)
        v = tl.load(in2 + z*16000 + sk*32 + y, mask=sk_mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        sl = s[None, :]
        scores = tl.where(sl < 500, scores, float("-inf"))
        peak, total, acc = attend(scores, v, peak, total, acc, 0.36067376022224085, "ieee")
    row = tl.arange(0, BM)
    at = (z * SPLITS + split) * 1 + row
    tl.store(sums + at * 2, peak, mask=row < 1)
    tl.store(sums + at * 2 + 1, total, mask=row < 1)
    tl.store(partial + at[:, None] * 32 + y, acc, mask=x < 1)
    tl.debug_barrier()
    if tl.atomic_add(arrived + z, 1, sem="acq_rel") == SPLITS - 1:
        product, shares = join(partial, sums, z, SPLITS, 1, 32, 1, BS)
        result = finish(product, shares, False)
        tl.store(out0 + z*32 + y, result)
        tl.store(arrived + z, 0)
