"""Import rows of torch's attention for the processor, forward and backward.

They stand in graphs of AOTAutograd where `dynamo/attention.py` leaves them whole.
"""

from __future__ import annotations

from aotc.aot.capture.importing import Call, NotSupported, Rows
from aotc.aot.ir import build, own_attention
from aotc.aot.ir.graph import Node
from aotc.aot.ir.own_attention import Scoring
from aotc.aot.ir.size import is_static

KERNEL_DTYPES = ("f32", "bf16", "f16")


def _forward(
    call: Call,
    query: Node,
    key: Node,
    value: Node,
    dropout: float = 0.0,
    is_causal: bool = False,
    mask: Node | None = None,
    scale: float | None = None,
) -> tuple[Node, Node]:
    _check(query, key, value, mask, dropout)
    return own_attention.forward(query, key, value, _scoring(query, is_causal, mask, scale))


def _backward(
    call: Call,
    gradient: Node,
    query: Node,
    key: Node,
    value: Node,
    out: Node,
    sums: Node,
    dropout: float,
    is_causal: bool,
    mask: Node | None = None,
    scale: float | None = None,
) -> tuple[Node, Node, Node]:
    _check(query, key, value, mask, dropout)
    scoring = _scoring(query, is_causal, mask, scale)
    ends = out, build.cast(sums, "f32")
    return own_attention.backward(gradient, query, key, value, ends, scoring)


def _check(query: Node, key: Node, value: Node, mask: Node | None, dropout: float) -> None:
    if dropout:
        raise NotSupported("attention with dropout")
    operands = (query, key, value, *([] if mask is None else [mask]))
    if any(each.dtype not in KERNEL_DTYPES for each in operands):
        raise NotSupported(f"attention of `{query.dtype}` with heads that share keys")
    if not all(is_static(each.shape) for each in operands):
        raise NotSupported("attention with heads that share keys, of sizes that a call decides")


def _scoring(query: Node, is_causal: bool, mask: Node | None, scale: float | None) -> Scoring:
    factor = float(query.shape[-1]) ** -0.5 if scale is None else scale
    return Scoring(float(factor), is_causal, mask)


ROWS: Rows = {
    "_scaled_dot_product_flash_attention_for_cpu": _forward,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _backward,
}
