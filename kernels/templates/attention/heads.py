"""Attention for the processor, forward with what its gradients need, and the gradients.

Both kernels read heads where they lie: an operand's steps are those from batch to batch, head to
head and row to row, and a row's elements lie side by side. Rows past the end read the last one
again and are not stored. Scores are `q·kᵀ · SCALE + mask`; where MASK is None there is none. Row x
sees the keys up to x + CAUSAL, or as many as its end says where ENDS is not None, or all where both
are; where WINDOW is not 0, so many of them, the last ones. Where SOFTCAP is not 0, products s are
SOFTCAP · tanh(s / SOFTCAP) before the mask. Where SINKS is not None, each row has one more score,
whose power is in the sum and weighs no value. A row that sees nothing weighs nothing.
T rows and S keys may be known at the call only: T_UNIT and S_UNIT divide them, and S_MOST is the
most keys. Rows of MEMBERS heads beside each other, which share their keys, may be one after the
other, those of the first head first.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the least finite f32, under which no peak falls


@triton.jit
def normal_exp(powers):
    """exp, or 0 where that is below the normal numbers of f32, which a processor makes and
    multiplies a hundred times slower: masks of -100 give many."""
    return tl.exp(tl.where(powers < -87.33654, float("-inf"), powers))


@triton.jit
def of_head(pointer, batch, head, STEPS: tl.constexpr):
    """The first row of a head; anywhere in an operand that is not there."""
    if STEPS is not None:
        pointer += batch * STEPS[0] + head * STEPS[1]
    return pointer


@triton.jit
def places(rows, ROWS: tl.constexpr, MEMBERS: tl.constexpr, STEPS: tl.constexpr):
    """Where rows of MEMBERS heads lie, from the first one on."""
    row = tl.minimum(rows, ROWS * MEMBERS - 1)
    if MEMBERS == 1:
        found = row * STEPS[2]
    elif ROWS == 1:
        found = row * STEPS[1]
    else:
        found = row // ROWS * STEPS[1] + row % ROWS * STEPS[2]
    return found


@triton.jit
def block(
    pointer, rows, elements, ROWS: tl.constexpr, STEPS: tl.constexpr, WIDTH: tl.constexpr,
    KEEPS_BF16: tl.constexpr = False, MEMBERS: tl.constexpr = 1,
):  # fmt: skip
    """[rows, elements] of MEMBERS heads; elements past WIDTH are zeros. As f32, but for bf16 where
    the processor multiplies that."""
    at = pointer + places(rows, ROWS, MEMBERS, STEPS)[:, None] + elements[None, :]
    if elements.shape[0] == WIDTH:
        found = tl.load(at)
    else:
        found = tl.load(at, mask=elements[None, :] < WIDTH, other=0.0)
    if not KEEPS_BF16 or pointer.dtype.element_ty != tl.bfloat16:
        found = found.to(tl.float32)
    return found


@triton.jit
def masks(
    mask_ptr, rows, keys, T: tl.constexpr, S: tl.constexpr, S_UNIT: tl.constexpr,
    MASK: tl.constexpr, MEMBERS: tl.constexpr = 1,
):  # fmt: skip
    """What a block of the mask adds to scores, as f32; a mask of booleans shows where it is true.
    Zeros past the last key."""
    at = mask_ptr + places(rows, T, MEMBERS, MASK)[:, None] + keys[None, :] * MASK[3]
    is_bool: tl.constexpr = mask_ptr.dtype.element_ty == tl.int1
    if S_UNIT % keys.shape[0] == 0:
        found = tl.load(at)
    else:
        found = tl.load(at, mask=keys[None, :] < S, other=is_bool)
    if is_bool:
        return tl.where(found, 0.0, float("-inf"))
    return found.to(tl.float32)


@triton.jit
def shows_any(
    mask_ptr, rows, keys, T: tl.constexpr, S: tl.constexpr, S_UNIT: tl.constexpr,
    MASK: tl.constexpr, MEMBERS: tl.constexpr = 1,
):  # fmt: skip
    """Whether the mask hides not all of a block."""
    shows = True
    if MASK is not None:
        shown = masks(mask_ptr, rows, keys, T, S, S_UNIT, MASK, MEMBERS)
        shows = tl.max(shown) != float("-inf")
    return shows


@triton.jit
def last_of(
    ends_ptr, rows, first, T: tl.constexpr, S: tl.constexpr, ENDS: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, MEMBERS: tl.constexpr = 1,
):  # fmt: skip
    """The last key that each row sees, the least of these, and the greatest; `first` is the first
    of the rows."""
    if ENDS is not None:
        ends = tl.load(ends_ptr + places(rows, T, MEMBERS, ENDS))
        last = tl.minimum(tl.maximum(ends, 0), S + WINDOW).to(tl.int32) - 1
        found = last, tl.min(last), tl.max(last)
    elif CAUSAL is None:
        found = tl.full(rows.shape, S - 1, tl.int32), 0, S - 1
    elif MEMBERS == 1:
        found = rows + CAUSAL, first + CAUSAL, first + rows.shape[0] - 1 + CAUSAL
    else:
        found = rows % T + CAUSAL, CAUSAL, T - 1 + CAUSAL
    return found


@triton.jit
def scored(
    q, k, mask_ptr, rows, keys, last, T: tl.constexpr, S: tl.constexpr, S_UNIT: tl.constexpr,
    MASK: tl.constexpr, SCALE: tl.constexpr, SEES_ALL: tl.constexpr, WINDOW: tl.constexpr,
    MEMBERS: tl.constexpr = 1, SOFTCAP: tl.constexpr = 0.0,
):  # fmt: skip
    """Scores of a block; keys past the end and those that a row may not see are -inf."""
    if q.shape[0] == 1:  # keys are read as they lie, where a product would transpose them first
        scores = tl.sum(q.to(tl.float32) * k.to(tl.float32), 1)[None, :] * SCALE
    else:
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * SCALE
    if SOFTCAP > 0.0:
        scores = libdevice.tanh(scores * (1.0 / SOFTCAP)) * SOFTCAP
    if MASK is not None:
        scores += masks(mask_ptr, rows, keys, T, S, S_UNIT, MASK, MEMBERS)
    if S_UNIT % keys.shape[0] != 0:
        scores = tl.where(keys[None, :] < S, scores, float("-inf"))
    if not SEES_ALL:
        scores = tl.where(keys[None, :] <= last[:, None], scores, float("-inf"))
        if WINDOW:
            scores = tl.where(keys[None, :] > (last - WINDOW)[:, None], scores, float("-inf"))
    return scores


@triton.jit
def begun(
    sinks_ptr, rows, T: tl.constexpr, SINKS: tl.constexpr, MEMBERS: tl.constexpr
):  # fmt: skip
    """Peak and sum of rows before any key: those of their sinks, where there are some."""
    if SINKS is None:
        peak = tl.full(rows.shape, LOWEST, tl.float32)
        total = tl.zeros(rows.shape, tl.float32)
    else:
        sinks = tl.load(sinks_ptr + places(rows, T, MEMBERS, SINKS)).to(tl.float32)
        peak = tl.maximum(sinks, LOWEST)
        total = normal_exp(sinks - peak)
    return peak, total


@triton.jit
def weigh(scores, peak, total, IS_FIRST: tl.constexpr):
    """One block of keys: the rows' peak and sum with it, its powers, and the factor of what is
    there; IS_FIRST: nothing is."""
    higher = tl.maximum(peak, tl.max(scores, 1))
    powers = normal_exp(scores - higher[:, None])
    shrink = normal_exp(peak - higher)
    added = tl.sum(powers, 1)
    return higher, added if IS_FIRST else total * shrink + added, powers, shrink


@triton.jit
def first_block(low, WINDOW: tl.constexpr, BN: tl.constexpr):
    """The first key of the blocks that rows see, of which one sees keys up to `low`, and none
    fewer."""
    begin = 0
    if WINDOW:
        begin = tl.maximum(low - WINDOW + 1, 0) // BN * BN
    return begin


@triton.jit
def store_rows(
    out_ptr, sums_ptr, found, sums, rows, y, batch, head, HEADS: tl.constexpr,
    MEMBERS: tl.constexpr, T: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    """Results in out [B, T, HEADS, E], the rows' sums in sums [B, T, HEADS]."""
    row, member = rows, head
    if MEMBERS > 1:
        row, member = rows % T, head + rows // T
    at = row * HEADS + member
    out_ptr += batch * (T * HEADS * E)
    sums_ptr += batch * (T * HEADS)
    is_there = rows < T * MEMBERS
    is_element = is_there[:, None] & (y < E)[None, :]
    tl.store(out_ptr + at[:, None] * E + y[None, :], found, mask=is_element)
    tl.store(sums_ptr + at, sums, mask=is_there)


@triton.jit
def attention_forward(
    out_ptr, sums_ptr, q_ptr, k_ptr, v_ptr, mask_ptr, ends_ptr, sinks_ptr,
    HEADS: tl.constexpr, MEMBERS: tl.constexpr, RATIO: tl.constexpr, T: tl.constexpr,
    S: tl.constexpr, T_UNIT: tl.constexpr, S_UNIT: tl.constexpr, S_MOST: tl.constexpr,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, Q: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, MASK: tl.constexpr, ENDS: tl.constexpr,
    SINKS: tl.constexpr, SCALE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr, SAFE: tl.constexpr, KEEPS_BF16: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    """One tile of rows of MEMBERS heads: results, and the logarithms of the rows' sums of powers. A
    row that sees nothing is zeros if SAFE, else no number."""
    head = tl.program_id(1) * MEMBERS
    batch = tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) * BM
    rows = first + tl.arange(0, BM)
    d, y = tl.arange(0, BD), tl.arange(0, BE)
    k_ptr = of_head(k_ptr, batch, head // RATIO, K)
    v_ptr = of_head(v_ptr, batch, head // RATIO, V)
    mask_ptr = of_head(mask_ptr, batch, head, MASK)
    ends_ptr = of_head(ends_ptr, batch, head, ENDS)
    sinks_ptr = of_head(sinks_ptr, batch, head, SINKS)
    SEES_ALL: tl.constexpr = CAUSAL is None and ENDS is None
    last, low, high = last_of(ends_ptr, rows, first, T, S, ENDS, CAUSAL, WINDOW, MEMBERS)
    q = block(of_head(q_ptr, batch, head, Q), rows, d, T, Q, D, KEEPS_BF16, MEMBERS)
    peak, total = begun(sinks_ptr, rows, T, SINKS, MEMBERS)
    if S_MOST <= BN:
        keys = tl.arange(0, BN)
        k = block(k_ptr, keys, d, S, K, D, KEEPS_BF16)
        scores = scored(
            q, k, mask_ptr, rows, keys, last, T, S, S_UNIT, MASK, SCALE, SEES_ALL, WINDOW, MEMBERS,
            SOFTCAP,
        )  # fmt: skip
        peak, total, powers, _ = weigh(scores, peak, total, SINKS is None)
        v = block(v_ptr, keys, y, S, V, E, KEEPS_BF16)
        found = tl.dot(powers.to(v.dtype), v, input_precision="ieee")
    else:
        found = tl.zeros((BM, BE), tl.float32)
        for start in range(first_block(low, WINDOW, BN), tl.minimum(S, high + 1), BN):
            keys = start + tl.arange(0, BN)
            if shows_any(mask_ptr, rows, keys, T, S, S_UNIT, MASK, MEMBERS):
                k = block(k_ptr, keys, d, S, K, D, KEEPS_BF16)
                scores = scored(
                    q, k, mask_ptr, rows, keys, last, T, S, S_UNIT, MASK, SCALE, SEES_ALL, WINDOW,
                    MEMBERS, SOFTCAP,
                )  # fmt: skip
                peak, total, powers, shrink = weigh(scores, peak, total, False)
                v = block(v_ptr, keys, y, S, V, E, KEEPS_BF16)
                found = tl.dot(
                    powers.to(v.dtype), v, found * shrink[:, None], input_precision="ieee"
                )
    if SAFE:
        total = tl.where(total == 0.0, 1.0, total)
    found = found * (1.0 / total)[:, None]
    peak += tl.log(total)
    store_rows(out_ptr, sums_ptr, found, peak, rows, y, batch, head, HEADS, MEMBERS, T, E)


@triton.jit
def weighed(
    q, k, v, g, out, sums, mask_ptr, rows, keys,
    T: tl.constexpr, S: tl.constexpr, T_UNIT: tl.constexpr, S_UNIT: tl.constexpr,
    MASK: tl.constexpr, SCALE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """The weights of a block, and the gradient of its products q·kᵀ."""
    SEES_ALL: tl.constexpr = CAUSAL is None
    last = rows if SEES_ALL else rows + CAUSAL
    scores = scored(q, k, mask_ptr, rows, keys, last, T, S, S_UNIT, MASK, SCALE, SEES_ALL, WINDOW)
    if T_UNIT % rows.shape[0] != 0:
        scores = tl.where((rows < T)[:, None], scores, float("-inf"))
    weights = normal_exp(scores - sums[:, None])
    inner = tl.dot(g, tl.trans(v), input_precision="ieee") - tl.sum(g * out, 1)[:, None]
    return weights, weights * inner * SCALE


@triton.jit
def add_product(at, inner, k, is_there, is_later, IS_ALL: tl.constexpr):
    """The product, added to what earlier blocks of keys left at `at`; IS_ALL: there are none."""
    if IS_ALL:
        found = tl.dot(inner, k, input_precision="ieee")
    else:
        before = tl.load(at, mask=is_there & is_later, other=0.0)
        found = tl.dot(inner, k, before, input_precision="ieee")
    tl.store(at, found, mask=is_there)


@triton.jit
def attention_backward(
    dq_ptr, dk_ptr, dv_ptr, g_ptr, q_ptr, k_ptr, v_ptr, out_ptr, sums_ptr, mask_ptr,
    G: tl.constexpr, Q: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    OUT: tl.constexpr, SUMS: tl.constexpr, MASK: tl.constexpr,
    DQ: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
    RATIO: tl.constexpr, T: tl.constexpr, S: tl.constexpr, T_UNIT: tl.constexpr,
    S_UNIT: tl.constexpr, S_MOST: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
    BD: tl.constexpr, BE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    SCALE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """One head of keys with all heads of queries that read it: the gradients of q, k and v, each
    [B, row, head, element], with (step from row to row, first element) in DQ, DK and DV. `g` is
    that of the result; a program alone writes what it adds up. Each row sees a key."""
    of_key = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    d = tl.arange(0, BD)
    y = tl.arange(0, BE)
    k_ptr = of_head(k_ptr, batch, of_key, K)
    v_ptr = of_head(v_ptr, batch, of_key, V)
    dq_ptr += DQ[1] + batch * (T * DQ[0])
    dk_ptr += DK[1] + batch * (S * DK[0]) + of_key * D
    dv_ptr += DV[1] + batch * (S * DV[0]) + of_key * E
    for start in range(0, S, BN):
        keys = start + tl.arange(0, BN)
        k = block(k_ptr, keys, d, S, K, D)
        v = block(v_ptr, keys, y, S, V, E)
        dk = tl.zeros((BN, BD), tl.float32)
        dv = tl.zeros((BN, BE), tl.float32)
        lowest = 0 if CAUSAL is None else tl.maximum(start - CAUSAL, 0) // BM * BM
        after = T if WINDOW == 0 else tl.minimum(T, start + BN - 1 + WINDOW - CAUSAL)
        for member in range(RATIO):
            head = of_key * RATIO + member
            for first in range(lowest, after, BM):
                rows = first + tl.arange(0, BM)
                q = block(of_head(q_ptr, batch, head, Q), rows, d, T, Q, D)
                g = block(of_head(g_ptr, batch, head, G), rows, y, T, G, E)
                out = block(of_head(out_ptr, batch, head, OUT), rows, y, T, OUT, E)
                last = tl.minimum(rows, T - 1)
                sums = tl.load(of_head(sums_ptr, batch, head, SUMS) + last * SUMS[2])
                mask = of_head(mask_ptr, batch, head, MASK)
                weights, inner = weighed(
                    q, k, v, g, out, sums, mask, rows, keys, T, S, T_UNIT, S_UNIT, MASK, SCALE,
                    CAUSAL, WINDOW,
                )  # fmt: skip
                dv = tl.dot(tl.trans(weights), g, dv, input_precision="ieee")
                dk = tl.dot(tl.trans(inner), q, dk, input_precision="ieee")
                at = dq_ptr + rows[:, None] * DQ[0] + head * D + d[None, :]
                is_there = (rows < T)[:, None] & (d < D)[None, :]
                low = first if CAUSAL is None else first + CAUSAL
                is_later = start > first_block(low, WINDOW, BN)
                add_product(at, inner, k, is_there, is_later, S_MOST <= BN)
        row, seen = keys[:, None], (keys < S)[:, None]
        tl.store(dk_ptr + row * DK[0] + d[None, :], dk, mask=seen & (d < D)[None, :])
        tl.store(dv_ptr + row * DV[0] + y[None, :], dv, mask=seen & (y < E)[None, :])
