"""Attention forward split by Triton into a producer and two consumers; needs num_warps = 4.

As descriptor.py, but in one loop, since Triton 3.6 splits no program of two: `hide` is
done for every block of keys.
"""

import triton
import triton.language as tl

from aotc.kernels.templates.attention.blocks import attend, finish, key_range, place
from aotc.kernels.templates.attention.descriptor import describe_k, describe_q, describe_v
from aotc.kernels.templates.attention.plain import hide, store


@triton.jit
def attention_specialized(
    in0,
    in1,
    in2,
    out0,
    HEADS: tl.constexpr,
    RATIO: tl.constexpr,
    T: tl.constexpr,
    S: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    BD: tl.constexpr,
    BV: tl.constexpr,
    SCALE: tl.constexpr,
    CAUSAL: tl.constexpr,
    OFFSET: tl.constexpr,
    PRECISION: tl.constexpr,
    SAFE: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    GROUP: tl.constexpr,
):
    z, tile = place(HEADS, tl.cdiv(T, BM), GROUP, CAUSAL)
    queries = describe_q(in0, z, T, D, BM, BD)
    keys = describe_k(in1, z // RATIO, S, D, BN, BD)
    values = describe_v(in2, z // RATIO, S, DV, BN, BV)
    x = tile * BM + tl.arange(0, BM)[:, None]
    y = tl.arange(0, BV)[None, :]
    q = queries.load([tile * BM, 0])
    peak = tl.full((BM,), -3.0e38, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, BV), tl.float32)
    _, end = key_range(tile * BM, S, OFFSET, BM, BN, CAUSAL)
    for start in tl.range(0, end, BN, warp_specialize=True):
        scores = tl.dot(q, tl.trans(keys.load([start, 0])), input_precision=PRECISION)
        scores = hide(scores, x, start + tl.arange(0, BN)[None, :], S, OFFSET, CAUSAL, BN)
        v = values.load([start, 0])
        peak, total, acc = attend(scores, v, peak, total, acc, SCALE, PRECISION)
    result = finish(acc, total, SAFE)
    store(out0, result, z, x, y, T, DV)
