"""Attention forward through tensor descriptors: the copy engine brings the blocks of q, k and v.

Same mathematics as plain.py, whose helpers it takes over; no masks as operands. Holes:
`describe_q`, `describe_k`, `describe_v` (the descriptors of one head, rows of contiguous elements),
`hide` and `store`. Rows and columns beyond a descriptor's shape read as zero.
"""

import triton
import triton.language as tl

from aotc.kernels.templates.attention.blocks import attend, finish, key_range, place
from aotc.kernels.templates.attention.plain import hide, store


@triton.jit
def describe_q(in0, z, T: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr):
    return tl.make_tensor_descriptor(in0 + z * T * D, [T, D], [D, 1], [BM, BD])


@triton.jit
def describe_k(in1, z, S: tl.constexpr, D: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    return tl.make_tensor_descriptor(in1 + z * S * D, [S, D], [D, 1], [BN, BD])


@triton.jit
def describe_v(in2, z, S: tl.constexpr, DV: tl.constexpr, BN: tl.constexpr, BV: tl.constexpr):
    return tl.make_tensor_descriptor(in2 + z * S * DV, [S, DV], [DV, 1], [BN, BV])


@triton.jit
def attention_descriptor(
    in0, in1, in2, out0,
    HEADS: tl.constexpr, RATIO: tl.constexpr, T: tl.constexpr, S: tl.constexpr, D: tl.constexpr,
    DV: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr, SCALE: tl.constexpr,
    CAUSAL: tl.constexpr, OFFSET: tl.constexpr, PRECISION: tl.constexpr, SAFE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
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
    full, end = key_range(tile * BM, S, OFFSET, BM, BN, CAUSAL)
    for start in range(0, full, BN):
        scores = tl.dot(q, tl.trans(keys.load([start, 0])), input_precision=PRECISION)
        v = values.load([start, 0])
        peak, total, acc = attend(scores, v, peak, total, acc, SCALE, PRECISION)
    for start in range(full, end, BN):
        scores = tl.dot(q, tl.trans(keys.load([start, 0])), input_precision=PRECISION)
        scores = hide(scores, x, start + tl.arange(0, BN)[None, :], S, OFFSET, CAUSAL, BN)
        v = values.load([start, 0])
        peak, total, acc = attend(scores, v, peak, total, acc, SCALE, PRECISION)
    result = finish(acc, total, SAFE)
    store(out0, result, z, x, y, T, DV)
