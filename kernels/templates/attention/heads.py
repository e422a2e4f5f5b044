"""Attention for the processor, forward with what its gradients need, and the gradients.

Both kernels read heads where they lie: row `row` of an operand begins `batch · B + head · H + row ·
R` elements after the first one. Rows past the end read the last one again and are not stored.
Scores are `q·kᵀ · SCALE + mask`; a row that is masked whole weighs nothing, and its result is 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the least finite f32, under which no peak falls


@triton.jit
def block(pointer, rows, elements, ROWS: tl.constexpr, ROW: tl.constexpr, WIDTH: tl.constexpr):
    """[rows, elements] of one head, f32; elements past WIDTH are zeros."""
    at = pointer + tl.minimum(rows, ROWS - 1)[:, None] * ROW + elements[None, :]
    if elements.shape[0] == WIDTH:
        return tl.load(at).to(tl.float32)
    return tl.load(at, mask=elements[None, :] < WIDTH, other=0.0).to(tl.float32)


@triton.jit
def scored(
    q, k, mask_ptr, rows, keys,
    T: tl.constexpr, S: tl.constexpr, MT: tl.constexpr, MS: tl.constexpr, SCALE: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Scores of a block; keys past the end and those that a causal row may not see are -inf."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * SCALE
    if MASKED:
        at = tl.minimum(rows, T - 1)[:, None] * MT + tl.minimum(keys, S - 1)[None, :] * MS
        scores += tl.load(mask_ptr + at).to(tl.float32)
    if S % keys.shape[0] != 0:
        scores = tl.where(keys[None, :] < S, scores, float("-inf"))
    if CAUSAL:
        scores = tl.where(keys[None, :] <= rows[:, None], scores, float("-inf"))
    return scores


@triton.jit
def weighed(
    q, k, v, g, out, sums, mask_ptr, rows, keys,
    T: tl.constexpr, S: tl.constexpr, MT: tl.constexpr, MS: tl.constexpr, SCALE: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """The weights of a block, and the gradient of its products q·kᵀ."""
    scores = scored(q, k, mask_ptr, rows, keys, T, S, MT, MS, SCALE, CAUSAL, MASKED)
    if T % rows.shape[0] != 0:
        scores = tl.where((rows < T)[:, None], scores, float("-inf"))
    weights = tl.exp(scores - sums[:, None])
    inner = tl.dot(g, tl.trans(v), input_precision="ieee") - tl.sum(g * out, 1)[:, None]
    return weights, weights * inner * SCALE


@triton.jit
def attention_forward(
    out_ptr, sums_ptr, q_ptr, k_ptr, v_ptr, mask_ptr,
    HEADS: tl.constexpr, RATIO: tl.constexpr, T: tl.constexpr, S: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr,
    QB: tl.constexpr, QH: tl.constexpr, QR: tl.constexpr,
    KB: tl.constexpr, KH: tl.constexpr, KR: tl.constexpr,
    VB: tl.constexpr, VH: tl.constexpr, VR: tl.constexpr,
    MB: tl.constexpr, MH: tl.constexpr, MT: tl.constexpr, MS: tl.constexpr,
    SCALE: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """One tile of rows of a head: out [B, T, HEADS, DV], and sums [B, T, HEADS], the logarithms
    of the rows' sums of powers."""
    head = tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) * BM
    rows = first + tl.arange(0, BM)
    d = tl.arange(0, BD)
    y = tl.arange(0, BV)
    of_key = head // RATIO
    k_ptr += batch * KB + of_key * KH
    v_ptr += batch * VB + of_key * VH
    mask_ptr += batch * MB + head * MH
    q = block(q_ptr + batch * QB + head * QH, rows, d, T, QR, D)
    if S <= BN:
        keys = tl.arange(0, BN)
        k = block(k_ptr, keys, d, S, KR, D)
        scores = scored(q, k, mask_ptr, rows, keys, T, S, MT, MS, SCALE, CAUSAL, MASKED)
        peak = tl.maximum(tl.max(scores, 1), LOWEST)
        powers = tl.exp(scores - peak[:, None])
        total = tl.sum(powers, 1)
        v = block(v_ptr, keys, y, S, VR, DV)
        found = tl.dot(powers, v, input_precision="ieee")
    else:
        peak = tl.full((BM,), LOWEST, tl.float32)
        total = tl.zeros((BM,), tl.float32)
        found = tl.zeros((BM, BV), tl.float32)
        end = tl.minimum(S, first + BM) if CAUSAL else S
        for start in range(0, end, BN):
            keys = start + tl.arange(0, BN)
            k = block(k_ptr, keys, d, S, KR, D)
            scores = scored(q, k, mask_ptr, rows, keys, T, S, MT, MS, SCALE, CAUSAL, MASKED)
            higher = tl.maximum(peak, tl.max(scores, 1))
            powers = tl.exp(scores - higher[:, None])
            shrink = tl.exp(peak - higher)
            total = total * shrink + tl.sum(powers, 1)
            v = block(v_ptr, keys, y, S, VR, DV)
            found = tl.dot(powers, v, found * shrink[:, None], input_precision="ieee")
            peak = higher
    total = tl.where(total == 0.0, 1.0, total)
    found = found * (1.0 / total)[:, None]
    at = rows[:, None] * (HEADS * DV) + head * DV + y[None, :]
    out_ptr += batch * (T * HEADS * DV)
    sums_ptr += batch * (T * HEADS)
    tl.store(out_ptr + at, found, mask=(rows < T)[:, None] & (y < DV)[None, :])
    tl.store(sums_ptr + rows * HEADS + head, peak + tl.log(total), mask=rows < T)


@triton.jit
def attention_backward(
    dq_ptr, dk_ptr, dv_ptr, g_ptr, q_ptr, k_ptr, v_ptr, out_ptr, sums_ptr, mask_ptr,
    HEADS: tl.constexpr, RATIO: tl.constexpr, T: tl.constexpr, S: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr,
    GB: tl.constexpr, GH: tl.constexpr, GR: tl.constexpr,
    QB: tl.constexpr, QH: tl.constexpr, QR: tl.constexpr,
    KB: tl.constexpr, KH: tl.constexpr, KR: tl.constexpr,
    VB: tl.constexpr, VH: tl.constexpr, VR: tl.constexpr,
    OB: tl.constexpr, OH: tl.constexpr, OR: tl.constexpr,
    LB: tl.constexpr, LH: tl.constexpr, LR: tl.constexpr,
    DQR: tl.constexpr, DKR: tl.constexpr, DVR: tl.constexpr,
    DQ0: tl.constexpr, DK0: tl.constexpr, DV0: tl.constexpr,
    MB: tl.constexpr, MH: tl.constexpr, MT: tl.constexpr, MS: tl.constexpr,
    SCALE: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """One head of keys with all heads of queries that read it: the gradients of q, k and v, each
    [B, row, head, element] with the steps DQR, DKR, DVR from row to row, from element DQ0, DK0, DV0
    on. `g` is that of the result; a program alone writes what it adds up."""
    of_key = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    d = tl.arange(0, BD)
    y = tl.arange(0, BV)
    k_ptr += batch * KB + of_key * KH
    v_ptr += batch * VB + of_key * VH
    dq_ptr += DQ0 + batch * (T * DQR)
    dk_ptr += DK0 + batch * (S * DKR) + of_key * D
    dv_ptr += DV0 + batch * (S * DVR) + of_key * DV
    for start in range(0, S, BN):
        keys = start + tl.arange(0, BN)
        k = block(k_ptr, keys, d, S, KR, D)
        v = block(v_ptr, keys, y, S, VR, DV)
        dk = tl.zeros((BN, BD), tl.float32)
        dv = tl.zeros((BN, BV), tl.float32)
        for member in range(RATIO):
            head = of_key * RATIO + member
            lowest = start // BM * BM if CAUSAL else 0
            for first in range(lowest, T, BM):
                rows = first + tl.arange(0, BM)
                q = block(q_ptr + batch * QB + head * QH, rows, d, T, QR, D)
                g = block(g_ptr + batch * GB + head * GH, rows, y, T, GR, DV)
                out = block(out_ptr + batch * OB + head * OH, rows, y, T, OR, DV)
                sums = tl.load(sums_ptr + batch * LB + head * LH + tl.minimum(rows, T - 1) * LR)
                mask = mask_ptr + batch * MB + head * MH
                weights, inner = weighed(
                    q, k, v, g, out, sums, mask, rows, keys, T, S, MT, MS, SCALE, CAUSAL, MASKED
                )
                dv = tl.dot(tl.trans(weights), g, dv, input_precision="ieee")
                dk = tl.dot(tl.trans(inner), q, dk, input_precision="ieee")
                at = rows[:, None] * DQR + head * D + d[None, :]
                is_there = (rows < T)[:, None] & (d < D)[None, :]
                if S <= BN:
                    dq = tl.dot(inner, k, input_precision="ieee")
                else:
                    before = tl.load(dq_ptr + at, mask=is_there & (start > 0), other=0.0)
                    dq = tl.dot(inner, k, before, input_precision="ieee")
                tl.store(dq_ptr + at, dq, mask=is_there)
        row, seen = keys[:, None], (keys < S)[:, None]
        tl.store(dk_ptr + row * DKR + d[None, :], dk, mask=seen & (d < D)[None, :])
        tl.store(dv_ptr + row * DVR + y[None, :], dv, mask=seen & (y < DV)[None, :])
