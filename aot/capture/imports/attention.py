"""Import rows of torch's attention: as arithmetic, and for the processor, forward and backward, as
ops of ours, where `dynamo/attention.py` leaves them whole in graphs of AOTAutograd.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aotc.aot.capture.imports.call import Call, NotSupported, Rows, wide
from aotc.aot.ir import build
from aotc.aot.ir.graph import AttrValue, Node, make
from aotc.aot.ir.size import is_static
from aotc.aot.ir.types import FLOATS_TO_F32


def _attention(
    call: Call,
    query: Node,
    key: Node,
    value: Node,
    mask: Node | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    has_groups: bool = False,
) -> Node:
    factor = _factor(query, dropout, scale)
    groups = query.shape[-3] // key.shape[-3] if has_groups else 1
    query, key, value, mask = _grouped(query, key, value, mask, groups)
    if query.dtype == "f16":  # torch keeps scores in f32; those beyond 65504 have no f16
        query, key = wide(query), wide(key)
    scores = wide(build.matmul(query, build.transpose(key))) * factor
    if is_causal:
        scores = _causal(scores)
    if mask is not None:
        scores = _masked(scores, mask)
    weights = build.safe_softmax(scores, (scores.type.rank - 1,))
    context = build.matmul(build.cast(weights, value.dtype), value)
    return build.reshape(context, call.shape)


def _grouped(
    query: Node, key: Node, value: Node, mask: Node | None, groups: int
) -> tuple[Node, Node, Node, Node | None]:
    """A dim of `groups` query heads beside each key head; nothing is repeated in memory."""
    rank = query.type.rank
    if mask is not None:
        mask = build.align(mask, rank)
    if groups == 1:
        return query, key, value, mask
    lead, heads = query.shape[:-3], key.shape[-3]
    query = build.reshape(query, (*lead, heads, groups, *query.shape[-2:]))
    key, value = (
        build.reshape(item, (*item.shape[:-2], 1, *item.shape[-2:])) for item in (key, value)
    )
    if mask is not None:
        split = (1, 1) if mask.shape[-3] == 1 else (heads, groups)
        mask = build.reshape(mask, (*mask.shape[:-3], *split, *mask.shape[-2:]))
    return query, key, value, mask


def _causal(scores: Node) -> Node:
    shape = (*[1] * (scores.type.rank - 2), *scores.shape[-2:])
    row, column = build.iota(shape, len(shape) - 2), build.iota(shape, len(shape) - 1)
    return _masked(scores, column <= row)


def _masked(scores: Node, mask: Node) -> Node:
    """scores + mask; where a bool hides a key, + -inf, which of an infinite score makes NaN."""
    if mask.dtype == "bool":
        none = build.scalar(0.0, scores.dtype)
        mask = build.where(mask, none, -math.inf)
    return scores + build.cast(mask, scores.dtype)


def _forward(call: Call, *given: Any) -> tuple[Node, Node]:
    operands, attrs = _read(given[:3], *given[3:])
    attrs |= {"softcap": 0.0, "has_sinks": False, "is_safe": True}
    return make("attention", operands, attrs), make("attention_log_sum_exp", operands, attrs)


def _backward(call: Call, gradient: Node, *given: Any) -> tuple[Node, ...]:
    operands, attrs = _read(given[:3], *given[5:])
    ends = gradient, given[3], build.cast(given[4], "f32")
    read = (*operands[:3], *ends, *operands[3:])
    return tuple(make("attention_backward", read, {**attrs, "result": at}) for at in range(3))


def _read(
    operands: Sequence[Node],
    dropout: float,
    is_causal: bool,
    mask: Node | None,
    scale: float | None,
) -> tuple[tuple[Node, ...], dict[str, AttrValue]]:
    """q, k, v and perhaps a mask, and what both ops say of their scores; raises `NotSupported` for
    what the kernels cannot say."""
    query = operands[0]
    factor = _factor(query, dropout, scale)
    masks = [] if mask is None else [build.align(mask, 4)]
    read = (*operands, *masks)
    if any(each.dtype not in FLOATS_TO_F32 for each in read):
        raise NotSupported(f"attention of `{query.dtype}` with heads that share keys")
    if not all(is_static(each.shape[1::2]) for each in operands):
        raise NotSupported("attention of a dynamic number of heads, or of their elements")
    return read, {"scale": factor, "causal": is_causal, "offset": 0, "window": 0}


def _factor(query: Node, dropout: float, scale: float | None) -> float:
    """What products of queries and keys are scaled by."""
    if dropout:
        raise NotSupported("attention with dropout")
    return 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)


ROWS: Rows = {
    "scaled_dot_product_attention": _attention,
    "_scaled_dot_product_flash_attention_for_cpu": _forward,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _backward,
}
