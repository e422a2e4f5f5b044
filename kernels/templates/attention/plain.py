"""Attention forward, one tile of query rows a program: softmax(q·kᵀ·scale + mask)·v, online.

Holes: `load_q`, `load_k`, `load_v` (operands), `load_mask` (a soft cap, and a mask that is an
operand), `peak` and `total` (where rows have sinks), `last_seen` (the last keys that the rows see),
in the last blocks of keys `last_k`, `last_v`, `last_mask` and `hide` (what rows may not see of
them), and `store`. As it stands q is a contiguous [Z, T, D], k [Z / RATIO, S, D] and v [Z / RATIO,
S, DV]. SCALE holds log2(e): scores are exponents of two. Blocks that all rows of the tile see come
first, then those at both ends.
"""

import triton
import triton.language as tl

from aotc.kernels.templates.attention.blocks import (
    attend,
    edge_block,
    finish,
    key_range,
    last_seen,
    place,
)


@triton.jit
def load_q(in0, z, x, d, T: tl.constexpr, D: tl.constexpr):
    return tl.load(in0 + (z * T + x) * D + d, mask=(x < T) & (d < D), other=0.0)


@triton.jit
def load_k(in1, z, s, d, S: tl.constexpr, D: tl.constexpr, BD: tl.constexpr):
    if D == BD:
        return tl.load(in1 + (z * S + s) * D + d)
    return tl.load(in1 + (z * S + s) * D + d, mask=d < D, other=0.0)


@triton.jit
def load_v(in2, z, s, y, S: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr):
    if DV == BV:
        return tl.load(in2 + (z * S + s) * DV + y)
    return tl.load(in2 + (z * S + s) * DV + y, mask=y < DV, other=0.0)


@triton.jit
def last_k(in1, z, s, d, S: tl.constexpr, D: tl.constexpr):
    return tl.load(in1 + (z * S + s) * D + d, mask=(s < S) & (d < D), other=0.0)


@triton.jit
def last_v(in2, z, s, y, S: tl.constexpr, DV: tl.constexpr):
    return tl.load(in2 + (z * S + s) * DV + y, mask=(s < S) & (y < DV), other=0.0)


@triton.jit
def load_mask(scores):
    return scores


@triton.jit
def last_mask(scores):
    return scores


@triton.jit
def hide(
    scores, x, s, S: tl.constexpr, OFFSET, WINDOW: tl.constexpr, CAUSAL: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    if S % BN != 0:
        scores = tl.where(s < S, scores, float("-inf"))
    if CAUSAL:
        scores = tl.where(s <= x + OFFSET, scores, float("-inf"))
    if WINDOW:
        scores = tl.where(s > x + OFFSET - WINDOW, scores, float("-inf"))
    return scores


@triton.jit
def store(out0, result, z, x, y, T, DV):
    tl.store(out0 + (z * T + x) * DV + y, result, mask=(x < T) & (y < DV))


@triton.jit
def attention(
    in0, in1, in2, out0,
    HEADS: tl.constexpr, RATIO: tl.constexpr, T: tl.constexpr, S: tl.constexpr, D: tl.constexpr,
    DV: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr, SCALE: tl.constexpr,
    CAUSAL: tl.constexpr, OFFSET: tl.constexpr, WINDOW: tl.constexpr, PRECISION: tl.constexpr,
    SAFE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    z, tile = place(HEADS, tl.cdiv(T, BM), GROUP, CAUSAL)
    x = tile * BM + tl.arange(0, BM)[:, None]
    y = tl.arange(0, BV)[None, :]
    q = load_q(in0, z, x, tl.arange(0, BD)[None, :], T, D)
    peak = tl.full((BM,), -3.0e38, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, BV), tl.float32)
    low, high = last_seen(tile * BM, OFFSET, BM)
    near, full, edge, end = key_range(low, high, S, WINDOW, BN, CAUSAL)
    for start in range(near, full, BN):
        s = start + tl.arange(0, BN)
        k = load_k(in1, z // RATIO, s[:, None], tl.arange(0, BD)[None, :], S, D, BD)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        scores = load_mask(scores)
        v = load_v(in2, z // RATIO, s[:, None], y, S, DV, BV)
        peak, total, acc = attend(scores, v, peak, total, acc, SCALE, PRECISION)
    for at in range(edge, end, BN):
        start = at
        if WINDOW:
            start = edge_block(at, near, full)
        s = start + tl.arange(0, BN)
        k = last_k(in1, z // RATIO, s[:, None], tl.arange(0, BD)[None, :], S, D)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        scores = last_mask(scores)
        scores = hide(scores, x, s[None, :], S, OFFSET, WINDOW, CAUSAL, BN)
        v = last_v(in2, z // RATIO, s[:, None], y, S, DV)
        peak, total, acc = attend(scores, v, peak, total, acc, SCALE, PRECISION)
    result = finish(acc, total, SAFE)
    store(out0, result, z, x, y, T, DV)
