"""Conversions as a kernel spells them: of numbers, and of the bits of an element."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aotc.aot.ir.graph import Node
from aotc.aot.ir.types import DTYPES, holds_exactly
from aotc.aot.lower.body import Value
from aotc.aot.lower.literal import computed, rounded, spelled, wrapped


def _cast(node: Node, operand: Value) -> str:
    """Rounds to a 16-bit type at once, though the value goes on in f32."""
    given = node.inputs[0].dtype
    source, target = computed(given), computed(node.dtype)
    rounds = computed(node.dtype) != node.dtype and not holds_exactly(given, node.dtype)
    if source == target and not rounds:
        return ""
    text = wrapped(operand.text, source) if operand.is_literal else operand.text
    if rounds:
        text = text if source == target else f"{text}.to({spelled(target)})"
        return rounded(text, node.dtype)
    row = DTYPES[target]
    if DTYPES[source].kind == "float" and row.kind == "int" and row.itemsize_bytes < 4:
        text = f"{text}.to({spelled('i32')})"  # eager's way: it wraps around what does not fit
    return f"{text}.to({spelled(target)})"


def _bitcast(node: Node, operand: Value) -> str:
    source, target = node.inputs[0].dtype, node.dtype
    text = wrapped(operand.text, source) if operand.is_literal else operand.text
    text += f".to({spelled(source)})" if computed(source) != source else ""
    text += f".to({spelled(target)}, bitcast=True)"
    return text + (f".to({spelled(computed(target))})" if computed(target) != target else "")


# Op → text of its result, of an operand that is rounded to its type; empty: the operand itself.
CONVERSIONS: Mapping[str, Callable[[Node, Value], str]] = {"cast": _cast, "bitcast": _bitcast}
