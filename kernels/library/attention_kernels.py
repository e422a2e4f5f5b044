"""The kernels of attention: forward, and the gradients of queries and of keys and values.

The forward pass goes along the keys with a running maximum and sum, and keeps the logarithm of each
row's sum; the backward pass makes the weights again from that, once by tiles of queries for their
gradient, once by tiles of keys for theirs, so that there are no atomics.

Packed sequences are the same kernels with `PACKED`: a program reads from the offsets where its
sequence begins and how long it is, and where its last query sees the last key (`shift`).
"""

from __future__ import annotations

import triton
import triton.language as tl

LENGTHS = ("T", "S")
"""Arguments that vary from call to call: one kernel for all, also for 1 and multiples of 16."""


@triton.jit
def load_rows(x, row, count, width, stride, step, BD: tl.constexpr):
    """Rows `row` of [count, width], zeros beyond it."""
    d = tl.arange(0, BD)
    at = row.to(tl.int64)[:, None] * stride + d[None, :] * step
    return tl.load(x + at, mask=(row < count)[:, None] & (d < width)[None, :], other=0.0)


@triton.jit
def store_rows(x, row, count, width, stride, value, BD: tl.constexpr):
    """Rows `row` of [count, width], whose elements lie side by side."""
    d = tl.arange(0, BD)
    at = row.to(tl.int64)[:, None] * stride + d[None, :]
    tl.store(x + at, value, mask=(row < count)[:, None] & (d < width)[None, :])


@triton.jit
def sequence_of(starts, batch, count, PACKED: tl.constexpr):
    """The first row of sequence `batch` and its number of rows: all `count`, or those that the
    offsets `starts` give it of the `count` rows of all; never one outside them."""
    first = batch * 0
    length = count
    if PACKED:
        first = tl.minimum(tl.maximum(tl.load(starts + batch).to(tl.int64), 0), count)
        last = tl.minimum(tl.load(starts + batch + 1).to(tl.int64), count)
        length = tl.maximum(last - first, 0).to(tl.int32)
    return first, length


@triton.jit
def rows_of_head(z, heads, first, length, PACKED: tl.constexpr):
    """Of a contiguous [batch, heads, length] or [rows, heads]: where the rows of head `z % heads`
    of sequence `z // heads` begin, and how far they are from each other."""
    row = z * length
    step = 1
    if PACKED:
        row = first * heads + z % heads
        step = heads
    return row, step


@triton.jit
def sees(t, s, T, S, shift, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Whether queries `t` see keys `s`, which broadcast; query `t` stands at key `t + shift`."""
    mask = (t < T) & (s < S)
    if CAUSAL:
        mask = mask & (s <= t + shift)
    if WINDOW:
        mask = mask & (s > t + shift - window) & (s < t + shift + window)
    return mask


@triton.jit
def key_steps(
    first, last, T, S, shift, window,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, PACKED: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Where the keys that queries from `first` to before `last` see begin and end."""
    begin = first * 0
    end = begin + S
    if PACKED:  # programs are as many as the longest sequence has
        end = tl.where(first < T, end, 0)
    if CAUSAL:
        end = tl.minimum(end, last + shift)
    if WINDOW:
        begin = tl.maximum(first + shift - window + 1, 0) // BN * BN
        end = tl.minimum(end, last + shift + window - 1)
    return begin, end


@triton.jit(do_not_specialize=LENGTHS)
def attention_kernel(
    q, k, v, sinks, out, sums, query_starts, key_starts, heads, ratio, T, S, D, DV, window,
    qb, qh, qt, qd, kb, kh, ks, kd, vb, vh, vs, vd, ob, oh, ot,
    SCALE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, PACKED: tl.constexpr,
    SINKS: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    z = tl.program_id(1).to(tl.int64)
    batch, head = z // heads, z % heads
    query_start, T = sequence_of(query_starts, batch, T, PACKED)
    key_start, S = sequence_of(key_starts, batch, S, PACKED)
    row, step = rows_of_head(z, heads, query_start, T, PACKED)
    shift = S - T if PACKED else 0
    first = tl.program_id(0) * BM
    t = first + tl.arange(0, BM)
    query = load_rows(q + batch * qb + head * qh + query_start * qt, t, T, D, qt, qd, BD)
    k += batch * kb + head // ratio * kh + key_start * ks
    v += batch * vb + head // ratio * vh + key_start * vs
    low = tl.full((), float("-inf"), ACC)
    scale = tl.full((), SCALE, ACC)
    top = tl.full((BM,), float("-inf"), ACC)
    total = tl.zeros((BM,), ACC)
    if SINKS:
        top = tl.zeros((BM,), ACC) + tl.load(sinks + head).to(ACC)  # the first logit
        total += 1.0
    acc = tl.zeros((BM, BV), ACC)
    begin, end = key_steps(first, first + BM, T, S, shift, window, CAUSAL, WINDOW, PACKED, BN)
    for start in range(begin, end, BN):
        s = start + tl.arange(0, BN)
        key = load_rows(k, s, S, D, ks, kd, BD)
        scores = tl.dot(query, tl.trans(key), input_precision=PRECISION, out_dtype=ACC) * scale
        mask = sees(t[:, None], s[None, :], T, S, shift, window, CAUSAL, WINDOW)
        scores = tl.where(mask, scores, low)
        higher = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(higher == low, 0.0, higher)  # -inf - -inf is NaN
        weights = tl.exp(scores - base[:, None])
        shrink = tl.exp(top - base)
        total = total * shrink + tl.sum(weights, 1)
        value = load_rows(v, s, S, DV, vs, vd, BV)
        acc = tl.dot(weights.to(value.dtype), value, acc * shrink[:, None],
                     input_precision=PRECISION, out_dtype=ACC)  # fmt: skip
        top = higher
    is_blind = total == 0.0
    total = tl.where(is_blind, 1.0, total)
    out += batch * ob + head * oh + query_start * ot
    store_rows(out, t, T, DV, ot, acc / total[:, None], BV)
    rows = row + t.to(tl.int64) * step
    tl.store(sums + rows, tl.where(is_blind, 0.0, top + tl.log(total)), mask=t < T)


@triton.jit(do_not_specialize=LENGTHS)
def query_gradient_kernel(
    gradient, out, q, k, v, sums, deltas, of_q, query_starts, key_starts,
    heads, ratio, T, S, D, DV, window,
    qb, qh, qt, qd, kb, kh, ks, kd, vb, vh, vs, vd, gb, gh, gt, ob, oh, ot, rb, rh, rt,
    SCALE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, PACKED: tl.constexpr,
    ACC: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """A tile of the queries; `deltas` gets the sum of gradient · result of each row."""
    z = tl.program_id(1).to(tl.int64)
    batch, head = z // heads, z % heads
    query_start, T = sequence_of(query_starts, batch, T, PACKED)
    key_start, S = sequence_of(key_starts, batch, S, PACKED)
    row, step = rows_of_head(z, heads, query_start, T, PACKED)
    shift = S - T if PACKED else 0
    first = tl.program_id(0) * BM
    t = first + tl.arange(0, BM)
    rows = row + t.to(tl.int64) * step
    query = load_rows(q + batch * qb + head * qh + query_start * qt, t, T, D, qt, qd, BD)
    g = load_rows(gradient + batch * gb + head * gh + query_start * gt, t, T, DV, gt, 1, BV)
    result = load_rows(out + batch * ob + head * oh + query_start * ot, t, T, DV, ot, 1, BV)
    total = tl.load(sums + rows, mask=t < T, other=0.0)
    delta = tl.sum(g.to(ACC) * result.to(ACC), 1)
    tl.store(deltas + rows, delta, mask=t < T)
    k += batch * kb + head // ratio * kh + key_start * ks
    v += batch * vb + head // ratio * vh + key_start * vs
    scale = tl.full((), SCALE, ACC)
    acc = tl.zeros((BM, BD), ACC)
    begin, end = key_steps(first, first + BM, T, S, shift, window, CAUSAL, WINDOW, PACKED, BN)
    for start in range(begin, end, BN):
        s = start + tl.arange(0, BN)
        key = load_rows(k, s, S, D, ks, kd, BD)
        value = load_rows(v, s, S, DV, vs, vd, BV)
        scores = tl.dot(query, tl.trans(key), input_precision=PRECISION, out_dtype=ACC) * scale
        mask = sees(t[:, None], s[None, :], T, S, shift, window, CAUSAL, WINDOW)
        weights = tl.where(mask, tl.exp(scores - total[:, None]), 0.0)
        slope = tl.dot(g, tl.trans(value), input_precision=PRECISION, out_dtype=ACC)
        slope = weights * (slope - delta[:, None])
        acc = tl.dot(slope.to(key.dtype), key, acc, input_precision=PRECISION, out_dtype=ACC)
    of_q += batch * rb + head * rh + query_start * rt
    store_rows(of_q, t, T, D, rt, acc * scale, BD)


@triton.jit(do_not_specialize=LENGTHS)
def key_gradient_kernel(
    gradient, q, k, v, sums, deltas, of_k, of_v, query_starts, key_starts,
    heads, ratio, T, S, D, DV, window,
    qb, qh, qt, qd, kb, kh, ks, kd, vb, vh, vs, vd, gb, gh, gt, rb, rh, rs, wb, wh, ws,
    SCALE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, PACKED: tl.constexpr,
    ACC: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """A tile of the keys and values of a group; the heads that share them follow each other."""
    z = tl.program_id(1).to(tl.int64)
    groups = heads // ratio
    batch, group = z // groups, z % groups
    query_start, T = sequence_of(query_starts, batch, T, PACKED)
    key_start, S = sequence_of(key_starts, batch, S, PACKED)
    shift = S - T if PACKED else 0
    first = tl.program_id(0) * BN
    s = first + tl.arange(0, BN)
    key = load_rows(k + batch * kb + group * kh + key_start * ks, s, S, D, ks, kd, BD)
    value = load_rows(v + batch * vb + group * vh + key_start * vs, s, S, DV, vs, vd, BV)
    scale = tl.full((), SCALE, ACC)
    of_key = tl.zeros((BN, BD), ACC)
    of_value = tl.zeros((BN, BV), ACC)
    begin = first * 0
    end = begin + T
    if PACKED:
        end = tl.where(first < S, end, 0)
    if CAUSAL:
        begin = tl.maximum(first - shift, 0) // BM * BM
    if WINDOW:
        begin = tl.maximum(begin, tl.maximum(first - shift - window + 1, 0) // BM * BM)
        end = tl.minimum(end, first - shift + BN + window - 1)
    for number in range(ratio):
        head = group * ratio + number
        row, step = rows_of_head(batch * heads + head, heads, query_start, T, PACKED)
        queries = q + batch * qb + head * qh + query_start * qt
        gradients = gradient + batch * gb + head * gh + query_start * gt
        for start in range(begin, end, BM):
            t = start + tl.arange(0, BM)
            rows = row + t.to(tl.int64) * step
            query = load_rows(queries, t, T, D, qt, qd, BD)
            g = load_rows(gradients, t, T, DV, gt, 1, BV)
            total = tl.load(sums + rows, mask=t < T, other=0.0)
            delta = tl.load(deltas + rows, mask=t < T, other=0.0)
            scores = tl.dot(key, tl.trans(query), input_precision=PRECISION, out_dtype=ACC)
            mask = sees(t[None, :], s[:, None], T, S, shift, window, CAUSAL, WINDOW)
            weights = tl.where(mask, tl.exp(scores * scale - total[None, :]), 0.0)
            of_value = tl.dot(weights.to(g.dtype), g, of_value,
                              input_precision=PRECISION, out_dtype=ACC)  # fmt: skip
            slope = tl.dot(value, tl.trans(g), input_precision=PRECISION, out_dtype=ACC)
            slope = weights * (slope - delta[None, :])
            of_key = tl.dot(slope.to(query.dtype), query, of_key,
                            input_precision=PRECISION, out_dtype=ACC)  # fmt: skip
    of_k += batch * rb + group * rh + key_start * rs
    store_rows(of_k, s, S, D, rs, of_key * scale, BD)
    of_v += batch * wb + group * wh + key_start * ws
    store_rows(of_v, s, S, DV, ws, of_value, BV)
