"""Import rows of torch's attention for the processor, forward and backward.

They stand in graphs of AOTAutograd where `dynamo/attention.py` leaves them whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotc.aot.capture.imports.call import Call, NotSupported, Rows
from aotc.aot.ir import build, own_attention
from aotc.aot.ir.graph import Node
from aotc.aot.ir.own_attention import Scoring
from aotc.aot.ir.size import is_static


def _forward(call: Call, query: Node, key: Node, value: Node, *how: Any) -> tuple[Node, Node]:
    return own_attention.forward(query, key, value, _scoring((query, key, value), *how))


def _backward(call: Call, gradient: Node, *given: Any) -> tuple[Node, Node, Node]:
    query, key, value, out, sums, *how = given
    scoring = _scoring((query, key, value), *how)
    ends = out, build.cast(sums, "f32")
    return own_attention.backward(gradient, query, key, value, ends, scoring)


def _scoring(
    operands: Sequence[Node],
    dropout: float,
    is_causal: bool,
    mask: Node | None,
    scale: float | None,
) -> Scoring:
    """What both ops say of their scores; raises `NotSupported` for what the kernels cannot say."""
    query = operands[0]
    if dropout:
        raise NotSupported("attention with dropout")
    read = (*operands, *([] if mask is None else [mask]))
    if any(each.dtype not in own_attention.DTYPES for each in read):
        raise NotSupported(f"attention of `{query.dtype}` with heads that share keys")
    if not all(is_static(each.shape) for each in read):
        raise NotSupported("attention with heads that share keys, of sizes that a call decides")
    factor = float(query.shape[-1]) ** -0.5 if scale is None else scale
    return Scoring(float(factor), 0 if is_causal else None, mask)


ROWS: Rows = {
    "_scaled_dot_product_flash_attention_for_cpu": _forward,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _backward,
}
