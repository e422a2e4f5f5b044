"""Attention forward through tensor descriptors: the copy engine brings the blocks of q, k and v.

Same mathematics as plain.py, whose helpers it takes over; no masks as operands. Holes:
`queries`, `keys`, `values` (the descriptors of one head, rows of contiguous elements), `load_mask`
and `last_mask` (a soft cap), `peak` and `total` (where rows have sinks), `hide` and `store`. Rows
and columns beyond a descriptor's shape read as zero.
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
from aotc.kernels.templates.attention.plain import hide, last_mask, load_mask, store


@triton.jit
def describe(
    memory, z, ROWS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr
):
    head = memory + z * ROWS * WIDTH
    return tl.make_tensor_descriptor(head, [ROWS, WIDTH], [WIDTH, 1], [BLOCK, COLUMNS])


@triton.jit
def attention_descriptor(
    in0, in1, in2, out0,
    HEADS: tl.constexpr, RATIO: tl.constexpr, T: tl.constexpr, S: tl.constexpr, D: tl.constexpr,
    DV: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr, SCALE: tl.constexpr,
    CAUSAL: tl.constexpr, OFFSET: tl.constexpr, WINDOW: tl.constexpr, PRECISION: tl.constexpr,
    SAFE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    z, tile = place(HEADS, tl.cdiv(T, BM), GROUP, CAUSAL)
    queries = describe(in0, z, T, D, BM, BD)
    keys = describe(in1, z // RATIO, S, D, BN, BD)
    values = describe(in2, z // RATIO, S, DV, BN, BV)
    x = tile * BM + tl.arange(0, BM)[:, None]
    y = tl.arange(0, BV)[None, :]
    q = queries.load([tile * BM, 0])
    peak = tl.full((BM,), -3.0e38, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, BV), tl.float32)
    low, high = last_seen(tile * BM, OFFSET, BM)
    near, full, edge, end = key_range(low, high, S, WINDOW, BN, CAUSAL)
    for start in range(near, full, BN):
        scores = tl.dot(q, tl.trans(keys.load([start, 0])), input_precision=PRECISION)
        scores = load_mask(scores)
        v = values.load([start, 0])
        peak, total, acc = attend(scores, v, peak, total, acc, SCALE, PRECISION)
    for at in range(edge, end, BN):
        start = at
        if WINDOW:
            start = edge_block(at, near, full)
        scores = tl.dot(q, tl.trans(keys.load([start, 0])), input_precision=PRECISION)
        scores = last_mask(scores)
        s = start + tl.arange(0, BN)[None, :]
        scores = hide(scores, x, s, S, OFFSET, WINDOW, CAUSAL, BN)
        v = values.load([start, 0])
        peak, total, acc = attend(scores, v, peak, total, acc, SCALE, PRECISION)
    result = finish(acc, total, SAFE)
    store(out0, result, z, x, y, T, DV)
