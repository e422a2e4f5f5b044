"""Attention of few query rows over many keys: the keys split over programs, joined in the kernel.

The rows of a tile are all query heads of one key head and all their positions, padded to BM. Each
program leaves its rows' maximum, sum and product in scratch memory; the last one to arrive at a
head joins them and sets the counter back to zero. Holes as in the last blocks of plain.py, rows
counted over (head, position); `ahead` before anything is read. As it stands q is a contiguous
[Z, ROWS, D], k [Z, S, D] and v [Z, S, DV].
"""

import triton
import triton.language as tl

from aotc.kernels.templates.attention.blocks import attend, finish, join, share_of
from aotc.kernels.templates.attention.plain import last_k, last_mask, last_v, load_q, store


@triton.jit
def hide(scores, x, s, S: tl.constexpr, BN: tl.constexpr):
    if S % BN == 0:
        return scores
    return tl.where(s < S, scores, float("-inf"))


@triton.jit
def ahead():
    pass


@triton.jit
def last_seen(S: tl.constexpr):
    return S - 1, S - 1


@triton.jit
def attention_split(
    in0, in1, in2, out0, partial, sums, arrived,
    ROWS: tl.constexpr, S: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BD: tl.constexpr,
    BV: tl.constexpr, SCALE: tl.constexpr, PRECISION: tl.constexpr, SAFE: tl.constexpr,
    WINDOW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, SPLITS: tl.constexpr,
    BR: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    z = tl.program_id(1)
    split = tl.program_id(0)
    ahead()
    x = tl.arange(0, BM)[:, None]
    y = tl.arange(0, BV)[None, :]
    q = load_q(in0, z, x, tl.arange(0, BD)[None, :], ROWS, D)
    peak = tl.full((BM,), -3.0e38, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, BV), tl.float32)
    low, high = last_seen(S)
    begin, end = share_of(split, low, high, S, WINDOW, SPLITS, BN)
    for start in range(begin, end, BN):
        s = start + tl.arange(0, BN)
        k = last_k(in1, z, s[:, None], tl.arange(0, BD)[None, :], S, D)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        scores = last_mask(scores)
        scores = hide(scores, x, s[None, :], S, BN)
        v = last_v(in2, z, s[:, None], y, S, DV)
        peak, total, acc = attend(scores, v, peak, total, acc, SCALE, PRECISION)
    row = tl.arange(0, BM)
    at = (z * SPLITS + split) * ROWS + row
    tl.store(sums + at * 2, peak, mask=row < ROWS)
    tl.store(sums + at * 2 + 1, total, mask=row < ROWS)
    tl.store(partial + at[:, None] * BV + y, acc, mask=x < ROWS)
    tl.debug_barrier()
    if tl.atomic_add(arrived + z, 1, sem="acq_rel") == SPLITS - 1:
        product, shares = join(partial, sums, z, SPLITS, ROWS, BV, BR, BS)
        result = finish(product, shares, SAFE)
        store(out0, result, z, tl.arange(0, BR)[:, None], y, ROWS, DV)
        tl.store(arrived + z, 0)
