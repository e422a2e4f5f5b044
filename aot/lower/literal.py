"""Element types and literals and conversions as a kernel has them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from aotc.aot.ir.graph import Node
from aotc.aot.ir.types import DTYPES, SHORT_FLOATS, Scalar, holds_exactly, round_scalar
from aotc.aot.lower.body import Value

# Rounding between fused operations need not be reproduced, but for what `ir/rounding.py` says.
_COMPUTED = dict.fromkeys(SHORT_FLOATS, "f32")


_NUMBER = re.compile(r'-?[\d.]+(e[+-]?\d+)?|True|False|float\("[^"]+"\)')


def computed(dtype: str) -> str:
    """Element type in which a kernel computes values of `dtype`."""
    return _COMPUTED.get(dtype, dtype)


def triton_type(dtype: str) -> str:
    """Triton's name of an element type: `tl.float32`."""
    return DTYPES[dtype].triton_language


def pointer(dtype: str) -> str:
    """Triton's type of a pointer to elements of `dtype`: `*fp32`."""
    return f"*{DTYPES[dtype].triton}"


def literal(value: Scalar, dtype: str) -> str:
    """A literal of `dtype`; a plain Python number wherever Triton types it right by itself."""
    dtype = computed(dtype)
    if DTYPES[dtype].kind == "float":
        if value == 0 and math.copysign(1.0, value) < 0:
            return f"({wrapped('0.0', dtype)} * -1.0)"  # Triton makes 0.0 of the literal -0.0
        text = repr(float(value)) if math.isfinite(value) else f'float("{float(value)}")'
    else:
        text = repr(value)
    return text if dtype in ("f32", "i32", "i64") else wrapped(text, dtype)


def as_tensor(text: str, dtype: str) -> str:
    """A value that a tile can be made of: a plain number as a tensor of one element."""
    return wrapped(text, dtype) if _NUMBER.fullmatch(text) else text


def rounded(text: str, dtype: str) -> str:
    """A value that is computed in a wider type, rounded to `dtype` and wide again.

    LLVM and ptxas keep such a pair of conversions: neither is asked for inexact arithmetic.
    """
    return f"{text}.to({triton_type(dtype)}).to({triton_type(computed(dtype))})"


def rounded_literal(text: str, dtype: str) -> str:
    """The same of a literal's text."""
    if text == literal(-0.0, dtype):
        return text
    value = float(text.removeprefix('float("').removesuffix('")'))
    return literal(round_scalar(value, dtype), dtype)


def wrapped(text: str, dtype: str) -> str:
    """A literal as a tensor of rank 0, for operations that need an element type."""
    return f"tl.full((), {text}, {triton_type(computed(dtype))})"


def bare(text: str) -> str:
    """Without the outer parentheses of `(a + b)`."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and place < len(text) - 1:
            return text
    return text[1:-1]


def _cast(node: Node, operand: Value) -> str:
    """Rounds to a 16-bit type at once, though the value goes on in f32."""
    given = node.inputs[0].dtype
    source, target = computed(given), computed(node.dtype)
    rounds = computed(node.dtype) != node.dtype and not holds_exactly(given, node.dtype)
    if source == target and not rounds:
        return ""
    text = wrapped(operand.text, source) if operand.is_literal else operand.text
    if rounds:
        text = text if source == target else f"{text}.to({triton_type(target)})"
        return rounded(text, node.dtype)
    row = DTYPES[target]
    if DTYPES[source].kind == "float" and row.kind == "int" and row.itemsize_bytes < 4:
        text = f"{text}.to({triton_type('i32')})"  # eager's way: it wraps around what does not fit
    return f"{text}.to({triton_type(target)})"


def _bitcast(node: Node, operand: Value) -> str:
    source, target = node.inputs[0].dtype, node.dtype
    text = wrapped(operand.text, source) if operand.is_literal else operand.text
    text += f".to({triton_type(source)})" if computed(source) != source else ""
    text += f".to({triton_type(target)}, bitcast=True)"
    return text + (f".to({triton_type(computed(target))})" if computed(target) != target else "")


# Op → text of its result, of an operand that is rounded to its type; empty: the operand itself.
CONVERSIONS: Mapping[str, Callable[[Node, Value], str]] = {"cast": _cast, "bitcast": _bitcast}
