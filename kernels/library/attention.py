"""Attention, forward and backward, without the scores in memory: of batches, and of sequences of
different lengths that lie one behind the other (packed).

The algorithm is that of Dao, "FlashAttention-2", arXiv 2307.08691 (`attention_kernels.py`). A sink
is a logit of each head that takes weight and gives nothing (Xiao and others, "Efficient streaming
language models with attention sinks", arXiv 2309.17453).
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from aotc.aot.errors import KernelDtypeUnsupported, KernelShapeInvalid, KernelValueInvalid
from aotc.kernels.library import attention_by_torch as by_torch
from aotc.kernels.library.attention_by_torch import Packing
from aotc.kernels.library.attention_kernels import (
    attention_kernel,
    key_gradient_kernel,
    query_gradient_kernel,
)
from aotc.kernels.library.checks import check_device, check_floats, check_shape
from aotc.kernels.library.devices import CPU, GPU
from aotc.kernels.library.launch import accumulator, launch
from aotc.kernels.library.layouts import laid_like, rows_like
from aotc.kernels.library.products import precision_of
from aotc.kernels.library.registration import define, differentiate, widened
from aotc.kernels.library.tiles import power_of_two

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


class _Call(NamedTuple):
    """What all three kernels take, and their grids: over queries by heads, keys by groups."""

    sizes: tuple[Any, ...]
    constants: dict[str, Any]
    query_grid: tuple[int, int]
    key_grid: tuple[int, int]


def _call(
    q: Tensor, k: Tensor, v: Tensor, packing: Packing | None, window: int, scale: float,
    is_causal: bool, is_backward: bool,
) -> _Call:  # fmt: skip
    starts: tuple[Tensor | None, Tensor | None] = (None, None)
    if packing is None:
        batches, (t, s) = q.shape[0], (q.shape[2], k.shape[2])
        counts = t, s
    else:
        starts = packing.query_starts.contiguous(), packing.key_starts.contiguous()
        batches, (t, s) = starts[0].shape[0] - 1, packing[2:]
        counts = q.shape[0], k.shape[0]
    strides = itertools.chain(*map(_strides, (q, k, v)))
    heads, groups, d, dv = q.shape[1], k.shape[1], q.shape[-1], v.shape[-1]
    widths = (max(16, power_of_two(d)), max(16, power_of_two(dv)))
    constants = {
        "SCALE": scale, "CAUSAL": is_causal, "WINDOW": window > 0, "PACKED": packing is not None,
        "ACC": accumulator(q), "PRECISION": precision_of(q), "BD": widths[0], "BV": widths[1],
        **_constants(q, max(widths), is_backward, (t, s)),
    }  # fmt: skip
    return _Call(
        (*starts, heads, heads // max(1, groups), *counts, d, dv, window, *strides),
        constants,
        (triton.cdiv(t, constants["BM"]), batches * heads),
        (triton.cdiv(s, constants["BN"]), batches * groups),
    )


def _strides(x: Tensor) -> tuple[int, ...]:
    """From one batch, head, row and column to the next; packed sequences are one batch."""
    return x.stride() if x.dim() == 4 else (0, x.stride(1), x.stride(0), x.stride(2))


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
    weight and have no value. Returns [batch, heads, T, DV], whose memory has the dims in q's order
    (contiguous where DV is not D, or q has no dense rows); sums are in f32, a query that sees no
    key gives zeros. The scores are not kept: the backward pass makes them again.

    Of f16 and bf16 on CUDA it is computed by cuDNN or FlashAttention, as torch's settings say,
    where these take it; their gradients may differ from call to call in the order of their sums,
    but not under `torch.use_deterministic_algorithms`.
    Raises KernelDtypeUnsupported, KernelShapeInvalid, KernelDeviceInvalid and KernelValueInvalid.
    """
    check_floats("attention", q=q, k=k, v=v, sinks=sinks)
    _check("attention", q, k, v, window, sinks)
    scale = 1.0 / math.sqrt(max(1, q.shape[-1])) if scale is None else scale
    result: Tensor = _ATTENTION(q, k, v, sinks, is_causal, window or 0, scale)[0]
    return result


def attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    is_causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """`attention` of sequences of different lengths, packed one behind the other without padding.

    q: [queries, heads, D]; k: [keys, groups, D]; v: [keys, groups, DV]; floats of one type, any
    strides, the rows of all sequences. cu_seqlens_q, cu_seqlens_k: i32 or i64 [sequences + 1];
    sequence i has the rows from element i to before element i + 1; the first element is 0, none is
    below the one before it, the last is at most the number of rows. max_seqlen_q, max_seqlen_k:
    numbers that no sequence is longer than. Sequences may be empty.

    is_causal, window: the last query of a sequence stands at its last key (bottom-right aligned,
    as in flash-attention; `attention` aligns the first ones, as torch does): query t of T stands at
    key t + S - T, sees keys up to there, and less than `window` away from there. In
    flash-attention's words `window_size` is (window - 1, window - 1), causal (window - 1, 0).
    scale, sinks: as `attention`'s. Returns [queries, heads, DV], laid out as `attention`'s; queries
    without a key and rows behind the last sequence give zeros. The arguments are those of
    `flash_attn_varlen_func` (Dao, arXiv 2307.08691).

    Raises KernelDtypeUnsupported, KernelShapeInvalid, KernelDeviceInvalid and KernelValueInvalid.
    Wrong offsets raise on the CPU; on CUDA they are not read by the host, so that nothing waits:
    no memory outside the tensors is touched, and the numbers are undefined.
    """
    check_floats("attention_varlen", q=q, k=k, v=v, sinks=sinks)
    _check("attention_varlen", q, k, v, window, sinks)
    _check_packing(q, Packing(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k))
    scale = 1.0 / math.sqrt(max(1, q.shape[-1])) if scale is None else scale
    result: Tensor = _ATTENTION_VARLEN(
        q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
        is_causal, window or 0, scale,
    )[0]  # fmt: skip
    return result


def _check_packing(q: Tensor, packing: Packing) -> None:
    """Types, shapes and places; the host does not read what the offsets are."""
    name = "attention_varlen"
    for argument, starts in zip(("cu_seqlens_q", "cu_seqlens_k"), packing[:2], strict=True):
        if starts.dtype not in (torch.int32, torch.int64):
            expected = "torch.int32 or torch.int64"
            raise KernelDtypeUnsupported(
                function=name, argument=argument, found=starts.dtype, expected=expected
            )
        check_device(name, argument, starts, q)
        if starts.dim() != 1 or not starts.shape[0]:
            raise KernelShapeInvalid(
                function=name, argument=argument, found=list(starts.shape),
                expected="[sequences + 1]", advice=_STARTS,
            )  # fmt: skip
    check_shape(name, "cu_seqlens_k", packing.key_starts, packing.query_starts.shape)
    for argument, longest in zip(("max_seqlen_q", "max_seqlen_k"), packing[2:], strict=True):
        if longest < 0:
            raise KernelValueInvalid(
                function=name, argument=argument, found=longest, expected="a number from 0 on"
            )


_NAMES = {
    "attention": ("[batch, heads, T, D]", "[batch, groups, S, D]", "[batch, groups, S, DV]"),
    "attention_varlen": ("[queries, heads, D]", "[keys, groups, D]", "[keys, groups, DV]"),
}
"""Dims of queries, keys and values of each function."""
_STARTS = "of lengths it is `F.pad(lengths.cumsum(0), (1, 0))`; "


def _check(
    function: str, q: Tensor, k: Tensor, v: Tensor, window: int | None, sinks: Tensor | None
) -> None:
    names = _NAMES[function]
    for name, x, expected in zip("qkv", (q, k, v), names, strict=True):
        if x.dim() != expected.count(",") + 1:
            other = "attention_varlen" if function == "attention" else "attention"
            raise KernelShapeInvalid(
                function=function, argument=name, found=list(x.shape), expected=expected,
                advice=f"{_NAMES[other][0]} is taken by `aotc.kernels.{other}`; ",
            )  # fmt: skip
    batch = q.shape[:1] if q.dim() == 4 else ()
    check_shape(function, "k", k, (*batch, *k.shape[len(batch) : -1], q.shape[-1]))
    check_shape(function, "v", v, (*k.shape[:-1], v.shape[-1]))
    check_shape(function, "sinks", sinks, q.shape[1:2])
    if q.shape[1] and (not k.shape[1] or q.shape[1] % k.shape[1]):
        raise KernelValueInvalid(
            function=function, argument="groups", found=k.shape[1],
            expected=f"a divisor of the {q.shape[1]} heads",
        )  # fmt: skip
    if window is not None and window < 1:
        raise KernelValueInvalid(
            function=function, argument="window", found=window, expected="a number from 1 on"
        )


# -- ops -------------------------------------------------------------------------------------------


def _run(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, is_causal: bool, window: int,
    scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    form = by_torch.Form(is_causal, window, scale)
    by = by_torch.choice(q, k, v, form)
    if by is not None:
        out, sums = by_torch.forward(by, q, k, v, sinks, form)
        return laid_like(out, q), sums
    out, sums = _fake(q, k, v, sinks, is_causal, window, scale)
    _launch(q, k, v, sinks, out, sums, _call(q, k, v, None, window, scale, is_causal, False))
    return out, sums


def _run_varlen(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, query_starts: Tensor,
    key_starts: Tensor, longest_queries: int, longest_keys: int, is_causal: bool, window: int,
    scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if q.is_cpu:
        _check_starts("q", query_starts, longest_queries, q.shape[0])
        _check_starts("k", key_starts, longest_keys, k.shape[0])
    packing = Packing(query_starts, key_starts, longest_queries, longest_keys)
    form = by_torch.Form(is_causal, window, scale)
    if by_torch.takes_packed(q, k, v, packing, form):
        out, sums = by_torch.forward_packed(q, k, v, sinks, packing, form)
        return laid_like(out, q), sums
    out, sums = _fake(q, k, v, sinks)
    out.zero_()  # of rows behind the last sequence
    sums.zero_()
    _launch(q, k, v, sinks, out, sums, _call(q, k, v, packing, window, scale, is_causal, False))
    return out, sums


def _check_starts(of: str, starts: Tensor, longest: int, count: int) -> None:
    """Raise `KernelValueInvalid` for offsets that are none of `count` rows, and for a sequence
    that is longer than was said."""
    found = starts.tolist()
    lengths = [last - first for first, last in itertools.pairwise(found)]
    if found[0] or found[-1] > count or min(lengths, default=0) < 0:
        raise KernelValueInvalid(
            function="attention_varlen", argument=f"cu_seqlens_{of}",
            found=str(found[:8])[:-1] + (", ...]" if len(found) > 8 else "]"),
            expected=f"numbers from 0 to {count} that begin with 0 and do not fall", advice=_STARTS,
        )  # fmt: skip
    if max(lengths, default=0) > longest:
        raise KernelValueInvalid(
            function="attention_varlen", argument=f"max_seqlen_{of}", found=longest,
            expected=f"at least {max(lengths)}, the length of the longest sequence",
        )  # fmt: skip


def _launch(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, out: Tensor, sums: Tensor, call: _Call
) -> None:
    launch(
        attention_kernel, call.query_grid, q, k, v, None if sinks is None else sinks.contiguous(),
        out, sums, *call.sizes, *_strides(out)[:3], SINKS=sinks is not None, **call.constants,
    )  # fmt: skip


def _fake(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor]:
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    sums = q.new_empty(q.shape[:-1], dtype=wide)
    if q.shape[-1] == v.shape[-1]:
        return rows_like(q), sums
    return q.new_empty((*q.shape[:-1], v.shape[-1])), sums


def _run_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, out: Tensor,
    sums: Tensor, is_causal: bool, window: int, scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    form = by_torch.Form(is_causal, window, scale)
    by = by_torch.choice(q, k, v, form)
    if by is not None:
        found = by_torch.gradients(by, gradient, q, k, v, out, sums, form)
        return _gradients_by_torch(found, gradient, q, k, v, sinks, out, sums)
    call = _call(q, k, v, None, window, scale, is_causal, True)
    results = [rows_like(each) for each in (q, k, v)]
    return _launch_backward(gradient, q, k, v, sinks, out, sums, results, call)


def _gradients_by_torch(
    found: tuple[Tensor, Tensor, Tensor], gradient: Tensor, q: Tensor, k: Tensor, v: Tensor,
    sinks: Tensor | None, out: Tensor, sums: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """What torch's kernels found for q, k and v, laid out as these, and the gradient of sinks."""
    of_q, of_k, of_v = map(laid_like, found, (q, k, v))
    if sinks is None:
        return of_q, of_k, of_v, q.new_empty((0,))
    deltas = (widened(gradient) * widened(out)).sum(-1)
    return of_q, of_k, of_v, _sinks_gradient(sinks, sums, deltas, q)


def _run_varlen_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, out: Tensor,
    sums: Tensor, query_starts: Tensor, key_starts: Tensor, longest_queries: int,
    longest_keys: int, is_causal: bool, window: int, scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    packing = Packing(query_starts, key_starts, longest_queries, longest_keys)
    form = by_torch.Form(is_causal, window, scale)
    if by_torch.takes_packed(q, k, v, packing, form):
        found = by_torch.gradients_packed(gradient, q, k, v, out, sums, packing, form)
        return _gradients_by_torch(found, gradient, q, k, v, sinks, out, sums)
    call = _call(q, k, v, packing, window, scale, is_causal, True)
    results = [rows_like(each).zero_() for each in (q, k, v)]
    return _launch_backward(gradient, q, k, v, sinks, out, sums, results, call)


def _launch_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, out: Tensor,
    sums: Tensor, results: list[Tensor], call: _Call,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    gradient, out = (x if x.stride(-1) == 1 else x.contiguous() for x in (gradient, out))
    sums, deltas = sums.contiguous(), torch.zeros_like(sums, memory_format=torch.contiguous_format)
    of_q, of_k, of_v = results
    g, o, x, y, z = (_strides(each)[:3] for each in (gradient, out, of_q, of_k, of_v))
    launch(
        query_gradient_kernel, call.query_grid, gradient, out, q, k, v, sums, deltas, of_q,
        *call.sizes, *g, *o, *x, **call.constants,
    )  # fmt: skip
    launch(
        key_gradient_kernel, call.key_grid, gradient, q, k, v, sums, deltas, of_k, of_v,
        *call.sizes, *g, *y, *z, **call.constants,
    )  # fmt: skip
    return of_q, of_k, of_v, _sinks_gradient(sinks, sums, deltas, q)


def _sinks_gradient(sinks: Tensor | None, sums: Tensor, deltas: Tensor, q: Tensor) -> Tensor:
    """sums, deltas: [batch, heads, T], or [queries, heads]."""
    if sinks is None:
        return q.new_empty((0,))
    shape, others = ((1, -1, 1), (0, 2)) if sums.dim() == 3 else ((1, -1), (0,))
    share = torch.exp(widened(sinks).reshape(shape) - sums)
    weighted = torch.where(deltas == 0, 0.0, share * deltas)  # rows of no sequence have no sum
    return -weighted.sum(others).to(sinks.dtype)


def _fake_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    of_sinks = q.new_empty((0,) if sinks is None else sinks.shape)
    return rows_like(q), rows_like(k), rows_like(v), of_sinks


# -- meanings --------------------------------------------------------------------------------------

Lengths = tuple[Tensor, Tensor]
"""Queries and keys of each sequence, [batch]."""


def _scores(
    q: Tensor, k: Tensor, is_causal: bool, window: int, scale: float, lengths: Lengths | None
) -> tuple[Tensor, Tensor]:
    """[batch, groups, heads of a group, T, S] in the wide type, -inf where nothing is seen; the
    queries [batch, groups, heads of a group, T, D]."""
    (batch, heads, length, width), groups = q.shape, max(1, k.shape[1])
    query = widened(q).reshape(batch, groups, heads // groups, length, width)
    scores = query @ widened(k).unsqueeze(2).mT * scale
    t = torch.arange(length, device=q.device).unsqueeze(1)
    s = torch.arange(k.shape[2], device=q.device).unsqueeze(0)
    if lengths is not None:
        queries, keys = (each.reshape(-1, 1, 1, 1, 1) for each in lengths)
        t = t + (keys - queries)
        scores = torch.where(s < keys, scores, -math.inf)
    if is_causal:
        scores = torch.where(s <= t, scores, -math.inf)
    if window:
        scores = torch.where((s - t).abs() < window, scores, -math.inf)
    return scores, query


def _meaning(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, is_causal: bool, window: int,
    scale: float, lengths: Lengths | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """A softmax where each query sees a key, so that it is recognised: where nobody reads the sums
    it becomes one kernel."""
    scores, _ = _scores(q, k, is_causal, window, scale, lengths)
    sums = torch.logsumexp(scores, -1)
    if sinks is not None:
        sink = widened(sinks).reshape(1, scores.shape[1], scores.shape[2], 1)
        sums = torch.logaddexp(sums, sink)
    sums = torch.where(sums == -math.inf, 0.0, sums)
    if sinks is None and lengths is None and (not window or _are_fewer(q, k)):
        weights = torch.softmax(scores, -1)
    else:
        weights = torch.exp(scores - sums.unsqueeze(-1))
    out = (weights.to(v.dtype) @ v.unsqueeze(2)).reshape(*q.shape[:3], v.shape[3])
    return _laid_as(out, q), sums.reshape(q.shape[:3])


def _laid_as(x: Tensor, q: Tensor) -> Tensor:
    """`x` in the layout that `_fake` says, as far as it is known: views of it count on that."""
    if x.shape != q.shape or not all(isinstance(each, int) for each in (*q.shape, *q.stride())):
        return x
    order = sorted(range(q.dim()), key=rows_like(q).stride().__getitem__, reverse=True)
    back = [order.index(dim) for dim in range(q.dim())]
    return x.permute(order).contiguous().permute(back)


def _are_fewer(q: Tensor, k: Tensor) -> bool:
    """Whether there are no more queries than keys, as far as it is known: then each sees one."""
    t, s = q.shape[2], k.shape[2]
    return isinstance(t, int) and isinstance(s, int) and t <= s


def _backward_meaning(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, out: Tensor,
    sums: Tensor, is_causal: bool, window: int, scale: float, lengths: Lengths | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    scores, query = _scores(q, k, is_causal, window, scale, lengths)
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


def _taken(x: Tensor, places: Tensor) -> Tensor:
    """Rows `places` of `x`; the one behind its last is of zeros."""
    return torch.cat([x, x.new_zeros((1, *x.shape[1:]))])[places]


def _padded(x: Tensor, starts: Tensor, longest: int) -> Tensor:
    """[rows, heads, ...] → [sequences, heads, longest, ...], zeros behind each sequence."""
    places = starts[:-1].unsqueeze(1) + torch.arange(longest, device=x.device)
    places = torch.where(places < starts[1:].unsqueeze(1), places, x.shape[0])
    return _taken(x, places).transpose(1, 2)


def _packed(x: Tensor, starts: Tensor, count: int) -> Tensor:
    """[sequences, heads, longest, ...] → [count, heads, ...], zeros behind the last sequence."""
    sequences, longest = x.shape[0], x.shape[2]
    row = torch.arange(count, device=x.device)
    sequence = (row.unsqueeze(1) >= starts[1:]).sum(1)  # those that have ended
    places = sequence * longest + row - starts[sequence]
    places = torch.where(row < starts[-1], places, sequences * longest)
    return _taken(x.transpose(1, 2).flatten(0, 1), places)


def _varlen_meaning(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, query_starts: Tensor,
    key_starts: Tensor, longest_queries: int, longest_keys: int, is_causal: bool, window: int,
    scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    results = _meaning(
        _padded(q, query_starts, longest_queries),
        *(_padded(each, key_starts, longest_keys) for each in (k, v)),
        sinks, is_causal, window, scale, (query_starts.diff(), key_starts.diff()),
    )  # fmt: skip
    out, sums = (_packed(each, query_starts, q.shape[0]) for each in results)
    return _laid_as(out, q), sums


def _varlen_backward_meaning(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, out: Tensor,
    sums: Tensor, query_starts: Tensor, key_starts: Tensor, longest_queries: int,
    longest_keys: int, is_causal: bool, window: int, scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    of_queries = (_padded(each, query_starts, longest_queries) for each in (gradient, q, out, sums))
    of_keys = (_padded(each, key_starts, longest_keys) for each in (k, v))
    (wide_gradient, wide_q, wide_out, wide_sums), (wide_k, wide_v) = of_queries, of_keys
    found = _backward_meaning(
        wide_gradient, wide_q, wide_k, wide_v, sinks, wide_out, wide_sums,
        is_causal, window, scale, (query_starts.diff(), key_starts.diff()),
    )  # fmt: skip
    of_k, of_v = (_packed(each, key_starts, k.shape[0]) for each in found[1:3])
    return _packed(found[0], query_starts, q.shape[0]), of_k, of_v, found[3]


_ATTENTION = define(
    "attention(Tensor q, Tensor k, Tensor v, Tensor? sinks, bool is_causal, SymInt window, "
    "float scale) -> (Tensor, Tensor)",
    run=_run,
    fake=_fake,
    meaning=_meaning,
    called_on=(GPU,),
)
_ATTENTION_BACKWARD = define(
    "attention_backward(Tensor gradient, Tensor q, Tensor k, Tensor v, Tensor? sinks, Tensor out, "
    "Tensor sums, bool is_causal, SymInt window, float scale) -> (Tensor, Tensor, Tensor, Tensor)",
    run=_run_backward,
    fake=_fake_backward,
    meaning=_backward_meaning,
    called_on=(GPU,),
)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.is_causal, ctx.window, ctx.scale = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradient: Tensor | None, _: Any) -> tuple[Any, ...]:
    if gradient is None:
        return (None,) * 7
    saved = ctx.saved_tensors  # once: a checkpoint computes them at each look
    found = _ATTENTION_BACKWARD(gradient, *saved, ctx.is_causal, ctx.window, ctx.scale)
    of_sinks = None if saved[3] is None else found[3]
    return *found[:3], of_sinks, None, None, None


differentiate(_ATTENTION, _save, _backward)


_ATTENTION_VARLEN = define(
    "attention_varlen(Tensor q, Tensor k, Tensor v, Tensor? sinks, Tensor query_starts, "
    "Tensor key_starts, SymInt longest_queries, SymInt longest_keys, bool is_causal, "
    "SymInt window, float scale) -> (Tensor, Tensor)",
    run=_run_varlen,
    fake=_fake,
    meaning=_varlen_meaning,
    called_on=(GPU,),
)
_ATTENTION_VARLEN_BACKWARD = define(
    "attention_varlen_backward(Tensor gradient, Tensor q, Tensor k, Tensor v, Tensor? sinks, "
    "Tensor out, Tensor sums, Tensor query_starts, Tensor key_starts, SymInt longest_queries, "
    "SymInt longest_keys, bool is_causal, SymInt window, float scale) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    run=_run_varlen_backward,
    fake=_fake_backward,
    meaning=_varlen_backward_meaning,
    called_on=(GPU,),
)


def _save_varlen(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.numbers = inputs[6:]
    ctx.save_for_backward(*inputs[:4], *output, *inputs[4:6])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _varlen_backward(ctx: Any, gradient: Tensor | None, _: Any) -> tuple[Any, ...]:
    if gradient is None:
        return (None,) * 11
    saved = ctx.saved_tensors
    found = _ATTENTION_VARLEN_BACKWARD(gradient, *saved, *ctx.numbers)
    of_sinks = None if saved[3] is None else found[3]
    return *found[:3], of_sinks, *(None,) * 7


differentiate(_ATTENTION_VARLEN, _save_varlen, _varlen_backward)
