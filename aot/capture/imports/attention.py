"""Import rows of torch's attention for the processor, forward and backward.

They stand in graphs of AOTAutograd where `dynamo/attention.py` leaves them whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotc.aot.capture.imports.call import Call, NotSupported, Rows
from aotc.aot.ir import build
from aotc.aot.ir.graph import AttrValue, Node, make
from aotc.aot.ir.size import is_static
from aotc.aot.ir.types import FLOATS_TO_F32


def _forward(call: Call, *given: Any) -> tuple[Node, Node]:
    operands, attrs = _read(given[:3], *given[3:])
    attrs |= {"is_safe": True}
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
    if dropout:
        raise NotSupported("attention with dropout")
    masks = [] if mask is None else [build.align(mask, 4)]
    read = (*operands, *masks)
    if any(each.dtype not in FLOATS_TO_F32 for each in read):
        raise NotSupported(f"attention of `{query.dtype}` with heads that share keys")
    if not all(is_static(each.shape) for each in read):
        raise NotSupported("attention with heads that share keys, of dynamic sizes")
    factor = float(query.shape[-1]) ** -0.5 if scale is None else float(scale)
    return read, {"scale": factor, "causal": is_causal, "offset": 0}


ROWS: Rows = {
    "_scaled_dot_product_flash_attention_for_cpu": _forward,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _backward,
}
