"""Attention, forward and backward, without the scores in memory.

The forward pass goes along the keys with a running maximum and sum, and keeps the logarithm of each
row's sum; the backward pass makes the weights again from that, once by tiles of queries for their
gradient, once by tiles of keys for theirs, so that there are no atomics (Dao, "FlashAttention-2",
arXiv 2307.08691). A sink is a logit of each head that takes weight and gives nothing (Xiao and
others, "Efficient streaming language models with attention sinks", arXiv 2309.17453).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from aotc.aot.errors import KernelShapeInvalid, KernelValueInvalid
from aotc.kernels.library.checks import check_floats, check_shape
from aotc.kernels.library.devices import CPU, GPU
from aotc.kernels.library.launch import accumulator, launch
from aotc.kernels.library.layouts import contiguous_like
from aotc.kernels.library.products import precision_of
from aotc.kernels.library.registration import define, differentiate, widened
from aotc.kernels.library.tiles import power_of_two


@triton.jit
def load_rows(x, row, count, width, stride, step, BD: tl.constexpr):
    """Rows `row` of [count, width], zeros beyond it."""
    d = tl.arange(0, BD)
    at = row.to(tl.int64)[:, None] * stride + d[None, :] * step
    return tl.load(x + at, mask=(row < count)[:, None] & (d < width)[None, :], other=0.0)


@triton.jit
def sees(t, s, T, S, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Whether queries `t` see keys `s`, which broadcast."""
    mask = (t < T) & (s < S)
    if CAUSAL:
        mask = mask & (s <= t)
    if WINDOW:
        mask = mask & (s > t - window) & (s < t + window)
    return mask


@triton.jit
def key_steps(first, last, S, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, BN: tl.constexpr):
    """Where the keys that queries from `first` to before `last` see begin and end."""
    begin = first * 0
    end = begin + S
    if CAUSAL:
        end = tl.minimum(end, last)
    if WINDOW:
        begin = tl.maximum(first - window + 1, 0) // BN * BN
        end = tl.minimum(end, last + window - 1)
    return begin, end


@triton.jit
def attention_kernel(
    q, k, v, sinks, out, sums, heads, ratio, T, S, D, DV, window,
    qb, qh, qt, qd, kb, kh, ks, kd, vb, vh, vs, vd,
    SCALE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, SINKS: tl.constexpr,
    ACC: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BD: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    z = tl.program_id(1).to(tl.int64)
    batch, head = z // heads, z % heads
    first = tl.program_id(0) * BM
    t = first + tl.arange(0, BM)
    query = load_rows(q + batch * qb + head * qh, t, T, D, qt, qd, BD)
    k += batch * kb + head // ratio * kh
    v += batch * vb + head // ratio * vh
    low = tl.full((), float("-inf"), ACC)
    scale = tl.full((), SCALE, ACC)
    top = tl.full((BM,), float("-inf"), ACC)
    total = tl.zeros((BM,), ACC)
    if SINKS:
        top = tl.zeros((BM,), ACC) + tl.load(sinks + head).to(ACC)  # the first logit
        total += 1.0
    acc = tl.zeros((BM, BV), ACC)
    begin, end = key_steps(first, first + BM, S, window, CAUSAL, WINDOW, BN)
    for start in range(begin, end, BN):
        s = start + tl.arange(0, BN)
        key = load_rows(k, s, S, D, ks, kd, BD)
        scores = tl.dot(query, tl.trans(key), input_precision=PRECISION, out_dtype=ACC) * scale
        mask = sees(t[:, None], s[None, :], T, S, window, CAUSAL, WINDOW)
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
    y = tl.arange(0, BV)
    place = (z * T + t[:, None]) * DV + y[None, :]
    tl.store(out + place, acc / total[:, None], mask=(t < T)[:, None] & (y < DV)[None, :])
    tl.store(sums + z * T + t, tl.where(is_blind, 0.0, top + tl.log(total)), mask=t < T)


@triton.jit
def query_gradient_kernel(
    gradient, q, k, v, sums, deltas, of_q, heads, ratio, T, S, D, DV, window,
    qb, qh, qt, qd, kb, kh, ks, kd, vb, vh, vs, vd,
    SCALE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    ACC: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BD: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    z = tl.program_id(1).to(tl.int64)
    batch, head = z // heads, z % heads
    first = tl.program_id(0) * BM
    t = first + tl.arange(0, BM)
    query = load_rows(q + batch * qb + head * qh, t, T, D, qt, qd, BD)
    g = load_rows(gradient + z * T * DV, t, T, DV, DV, 1, BV)
    total = tl.load(sums + z * T + t, mask=t < T, other=0.0)
    delta = tl.load(deltas + z * T + t, mask=t < T, other=0.0)
    k += batch * kb + head // ratio * kh
    v += batch * vb + head // ratio * vh
    scale = tl.full((), SCALE, ACC)
    acc = tl.zeros((BM, BD), ACC)
    begin, end = key_steps(first, first + BM, S, window, CAUSAL, WINDOW, BN)
    for start in range(begin, end, BN):
        s = start + tl.arange(0, BN)
        key = load_rows(k, s, S, D, ks, kd, BD)
        value = load_rows(v, s, S, DV, vs, vd, BV)
        scores = tl.dot(query, tl.trans(key), input_precision=PRECISION, out_dtype=ACC) * scale
        mask = sees(t[:, None], s[None, :], T, S, window, CAUSAL, WINDOW)
        weights = tl.where(mask, tl.exp(scores - total[:, None]), 0.0)
        slope = tl.dot(g, tl.trans(value), input_precision=PRECISION, out_dtype=ACC)
        slope = weights * (slope - delta[:, None])
        acc = tl.dot(slope.to(key.dtype), key, acc, input_precision=PRECISION, out_dtype=ACC)
    d = tl.arange(0, BD)
    place = (z * T + t[:, None]) * D + d[None, :]
    tl.store(of_q + place, acc * scale, mask=(t < T)[:, None] & (d < D)[None, :])


@triton.jit
def key_gradient_kernel(
    gradient, q, k, v, sums, deltas, of_k, of_v, heads, ratio, T, S, D, DV, window,
    qb, qh, qt, qd, kb, kh, ks, kd, vb, vh, vs, vd,
    SCALE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    ACC: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BD: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """A tile of the keys and values of a group; the heads that share them follow each other."""
    z = tl.program_id(1).to(tl.int64)
    groups = heads // ratio
    batch, group = z // groups, z % groups
    first = tl.program_id(0) * BN
    s = first + tl.arange(0, BN)
    key = load_rows(k + batch * kb + group * kh, s, S, D, ks, kd, BD)
    value = load_rows(v + batch * vb + group * vh, s, S, DV, vs, vd, BV)
    scale = tl.full((), SCALE, ACC)
    of_key = tl.zeros((BN, BD), ACC)
    of_value = tl.zeros((BN, BV), ACC)
    begin = first * 0
    end = begin + T
    if CAUSAL:
        begin = first // BM * BM
    if WINDOW:
        begin = tl.maximum(begin, tl.maximum(first - window + 1, 0) // BM * BM)
        end = tl.minimum(end, first + BN + window - 1)
    for number in range(ratio):
        head = group * ratio + number
        row = (batch * heads + head) * T
        for start in range(begin, end, BM):
            t = start + tl.arange(0, BM)
            query = load_rows(q + batch * qb + head * qh, t, T, D, qt, qd, BD)
            g = load_rows(gradient + row * DV, t, T, DV, DV, 1, BV)
            total = tl.load(sums + row + t, mask=t < T, other=0.0)
            delta = tl.load(deltas + row + t, mask=t < T, other=0.0)
            scores = tl.dot(key, tl.trans(query), input_precision=PRECISION, out_dtype=ACC)
            mask = sees(t[None, :], s[:, None], T, S, window, CAUSAL, WINDOW)
            weights = tl.where(mask, tl.exp(scores * scale - total[None, :]), 0.0)
            of_value = tl.dot(weights.to(g.dtype), g, of_value,
                              input_precision=PRECISION, out_dtype=ACC)  # fmt: skip
            slope = tl.dot(value, tl.trans(g), input_precision=PRECISION, out_dtype=ACC)
            slope = weights * (slope - delta[None, :])
            of_key = tl.dot(slope.to(query.dtype), query, of_key,
                            input_precision=PRECISION, out_dtype=ACC)  # fmt: skip
    d, y = tl.arange(0, BD), tl.arange(0, BV)
    row = z * S + s[:, None]
    tl.store(of_k + row * D + d[None, :], of_key * scale, (s < S)[:, None] & (d < D)[None, :])
    tl.store(of_v + row * DV + y[None, :], of_value, (s < S)[:, None] & (y < DV)[None, :])


# -- launches --------------------------------------------------------------------------------------


class Tile(NamedTuple):
    """Queries and keys of a program's step."""

    queries: int
    keys: int
    num_warps: int
    num_stages: int


# By device and bytes of an element: up to so wide a head, the tiles of the forward and of the
# backward pass. They take at most 96 KiB of shared memory.
TILES = {
    GPU: {
        2: ((64, Tile(128, 64, 4, 2), Tile(64, 64, 4, 2)),
            (128, Tile(64, 64, 4, 2), Tile(32, 64, 4, 1)),
            (256, Tile(32, 32, 4, 2), Tile(32, 32, 4, 1))),
        4: ((64, Tile(64, 32, 4, 2), Tile(32, 32, 4, 1)),
            (128, Tile(32, 32, 4, 1), Tile(16, 32, 4, 1))),
        8: ((64, Tile(16, 16, 4, 1), Tile(16, 16, 4, 1)),),
    },
    CPU: dict.fromkeys((2, 4, 8), ((256, Tile(32, 64, 1, 1), Tile(32, 64, 1, 1)),)),
}  # fmt: skip
_SMALLEST = Tile(16, 16, 4, 1)


def _constants(x: Tensor, width: int, is_backward: bool, sizes: tuple[int, int]) -> dict[str, int]:
    rows = (row for row in TILES[x.device.type][x.element_size()] if width <= row[0])
    tile = next((row[1 + is_backward] for row in rows), _SMALLEST)
    queries, keys = (max(16, power_of_two(each)) for each in sizes)
    return {
        "BM": min(tile.queries, queries), "BN": min(tile.keys, keys),
        "num_warps": tile.num_warps, "num_stages": tile.num_stages,
    }  # fmt: skip


def _common(
    q: Tensor, k: Tensor, v: Tensor, window: int, scale: float, is_causal: bool, is_backward: bool
) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Sizes and strides, and the constants, of all three kernels."""
    heads, (t, d), (s, dv) = q.shape[1], q.shape[2:], v.shape[2:]
    sizes = (heads, heads // max(1, k.shape[1]), t, s, d, dv, window)
    widths = (max(16, power_of_two(d)), max(16, power_of_two(dv)))
    return (*sizes, *q.stride(), *k.stride(), *v.stride()), {
        "SCALE": scale, "CAUSAL": is_causal, "WINDOW": window > 0, "ACC": accumulator(q),
        "PRECISION": precision_of(q), "BD": widths[0], "BV": widths[1],
        **_constants(q, max(widths), is_backward, (t, s)),
    }  # fmt: skip


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """softmax(q @ kᵀ · scale) @ v by heads, as torch's `scaled_dot_product_attention`.

    q: [batch, heads, T, D]; k: [batch, groups, S, D]; v: [batch, groups, S, DV]; floats of one
    type, any strides; groups divides heads, and neighbouring heads share a group (GQA). is_causal:
    query t sees keys up to t, as torch's. window: query t sees the keys less than `window` away
    from t, with itself. scale: 1 / sqrt(D) where it is None. sinks: [heads], logits that take
    weight and have no value. Returns a contiguous [batch, heads, T, DV]; sums are in f32, a query
    that sees no key gives zeros. The scores are not kept: the backward pass makes them again.
    Raises KernelDtypeUnsupported, KernelShapeInvalid, KernelDeviceInvalid and KernelValueInvalid.
    """
    check_floats("attention", q=q, k=k, v=v, sinks=sinks)
    _check(q, k, v, window, sinks)
    scale = 1.0 / math.sqrt(max(1, q.shape[-1])) if scale is None else scale
    result: Tensor = _ATTENTION(q, k, v, sinks, is_causal, window or 0, scale)[0]
    return result


def _check(q: Tensor, k: Tensor, v: Tensor, window: int | None, sinks: Tensor | None) -> None:
    names = ("[batch, heads, T, D]", "[batch, groups, S, D]", "[batch, groups, S, DV]")
    for name, x, expected in zip("qkv", (q, k, v), names, strict=True):
        if x.dim() != 4:
            raise KernelShapeInvalid(
                function="attention", argument=name, found=list(x.shape), expected=expected
            )
    check_shape("attention", "k", k, (q.shape[0], k.shape[1], k.shape[2], q.shape[3]))
    check_shape("attention", "v", v, (*k.shape[:3], v.shape[3]))
    check_shape("attention", "sinks", sinks, q.shape[1:2])
    if q.shape[1] and (not k.shape[1] or q.shape[1] % k.shape[1]):
        raise KernelValueInvalid(
            function="attention", argument="groups", found=k.shape[1],
            expected=f"a divisor of the {q.shape[1]} heads",
        )  # fmt: skip
    if window is not None and window < 1:
        raise KernelValueInvalid(
            function="attention", argument="window", found=window, expected="a number from 1 on"
        )


# -- ops -------------------------------------------------------------------------------------------


def _run(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, is_causal: bool, window: int,
    scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    out, sums = _fake(q, k, v, sinks, is_causal, window, scale)
    sizes, constants = _common(q, k, v, window, scale, is_causal, False)
    grid = (triton.cdiv(q.shape[2], constants["BM"]), q.shape[0] * q.shape[1])
    launch(
        attention_kernel, grid, q, k, v, None if sinks is None else sinks.contiguous(), out, sums,
        *sizes, SINKS=sinks is not None, **constants,
    )  # fmt: skip
    return out, sums


def _fake(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, is_causal: bool, window: int,
    scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    out = q.new_empty((*q.shape[:3], v.shape[3]))
    return out, q.new_empty(q.shape[:3], dtype=wide)


def _run_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, out: Tensor,
    sums: Tensor, is_causal: bool, window: int, scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    gradient, sums = gradient.contiguous(), sums.contiguous()
    deltas = (widened(gradient) * widened(out)).sum(-1)
    of_q, of_k, of_v = (contiguous_like(each) for each in (q, k, v))
    sizes, constants = _common(q, k, v, window, scale, is_causal, True)
    given = (gradient, q, k, v, sums, deltas)
    grid = (triton.cdiv(q.shape[2], constants["BM"]), q.shape[0] * q.shape[1])
    launch(query_gradient_kernel, grid, *given, of_q, *sizes, **constants)
    grid = (triton.cdiv(k.shape[2], constants["BN"]), k.shape[0] * k.shape[1])
    launch(key_gradient_kernel, grid, *given, of_k, of_v, *sizes, **constants)
    return of_q, of_k, of_v, _sinks_gradient(sinks, sums, deltas, q)


def _sinks_gradient(sinks: Tensor | None, sums: Tensor, deltas: Tensor, q: Tensor) -> Tensor:
    if sinks is None:
        return q.new_empty((0,))
    share = torch.exp(widened(sinks).reshape(1, -1, 1) - sums)
    return -(share * deltas).sum((0, 2)).to(sinks.dtype)


def _fake_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    of_sinks = q.new_empty((0,) if sinks is None else sinks.shape)
    return contiguous_like(q), contiguous_like(k), contiguous_like(v), of_sinks


def _scores(
    q: Tensor, k: Tensor, is_causal: bool, window: int, scale: float
) -> tuple[Tensor, Tensor]:
    """[batch, groups, heads of a group, T, S] in the wide type, -inf where nothing is seen; the
    queries [batch, groups, heads of a group, T, D]."""
    (batch, heads, length, width), groups = q.shape, max(1, k.shape[1])
    query = widened(q).reshape(batch, groups, heads // groups, length, width)
    scores = query @ widened(k).unsqueeze(2).mT * scale
    t = torch.arange(length, device=q.device).unsqueeze(1)
    s = torch.arange(k.shape[2], device=q.device).unsqueeze(0)
    if is_causal:
        scores = torch.where(s <= t, scores, -math.inf)
    if window:
        scores = torch.where((s - t).abs() < window, scores, -math.inf)
    return scores, query


def _meaning(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, is_causal: bool, window: int,
    scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    scores, _ = _scores(q, k, is_causal, window, scale)
    sums = torch.logsumexp(scores, -1)
    if sinks is not None:
        sink = widened(sinks).reshape(1, scores.shape[1], scores.shape[2], 1)
        sums = torch.logaddexp(sums, sink)
    sums = torch.where(sums == -math.inf, 0.0, sums)
    weights = torch.exp(scores - sums.unsqueeze(-1)).to(v.dtype)
    out = weights @ v.unsqueeze(2)
    return out.reshape(*q.shape[:3], v.shape[3]), sums.reshape(q.shape[:3])


def _backward_meaning(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, out: Tensor,
    sums: Tensor, is_causal: bool, window: int, scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    scores, query = _scores(q, k, is_causal, window, scale)
    shape = scores.shape[:4]
    deltas = (widened(gradient) * widened(out)).sum(-1)
    weights = torch.exp(scores - sums.reshape(shape).unsqueeze(-1))
    g = widened(gradient).reshape(*shape, v.shape[3])
    of_v = (weights.mT @ g).sum(2)
    slope = weights * (g @ widened(v).unsqueeze(2).mT - deltas.reshape(shape).unsqueeze(-1)) * scale
    of_q = (slope @ widened(k).unsqueeze(2)).reshape(q.shape)
    of_k = (slope.mT @ query).sum(2)
    of_sinks = _sinks_gradient(sinks, sums, deltas, q)
    return of_q.to(q.dtype), of_k.to(q.dtype), of_v.to(q.dtype), of_sinks


_ATTENTION = define(
    "attention(Tensor q, Tensor k, Tensor v, Tensor? sinks, bool is_causal, SymInt window, "
    "float scale) -> (Tensor, Tensor)",
    run=_run,
    fake=_fake,
    meaning=_meaning,
)
_ATTENTION_BACKWARD = define(
    "attention_backward(Tensor gradient, Tensor q, Tensor k, Tensor v, Tensor? sinks, Tensor out, "
    "Tensor sums, bool is_causal, SymInt window, float scale) -> (Tensor, Tensor, Tensor, Tensor)",
    run=_run_backward,
    fake=_fake_backward,
    meaning=_backward_meaning,
)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.is_causal, ctx.window, ctx.scale = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradient: Tensor | None, _: Any) -> tuple[Any, ...]:
    if gradient is None:
        return (None,) * 7
    found = _ATTENTION_BACKWARD(gradient, *ctx.saved_tensors, ctx.is_causal, ctx.window, ctx.scale)
    of_sinks = None if ctx.saved_tensors[3] is None else found[3]
    return *found[:3], of_sinks, None, None, None


differentiate(_ATTENTION, _save, _backward)
