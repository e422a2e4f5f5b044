"""8-bit floats inside a program: rows of ATen ops that take or give them.

No type of ours is an 8-bit float. Inside an import such a tensor is a `Float8`: a weight by its
bits, which are stored as they are and widened where they are read, and what the program computes
by the numbers in f32, rounded to the format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch

from aotc.aot.capture.imports.call import Call, NotSupported, Row, type_of
from aotc.aot.capture.imports.indexing import ROWS as INDEXING
from aotc.aot.capture.imports.movement import ROWS as MOVEMENT
from aotc.aot.capture.imports.pointwise import IDENTITIES
from aotc.aot.capture.sizes import extent_of
from aotc.aot.ir import build
from aotc.aot.ir.float8 import E4M3, E5M2, Format, bits_of, rounded, widened
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.types import TensorType

END = (
    "8-bit floats have rows of ops that move and convert them alone: convert them, as to "
    "`torch.bfloat16`, before"
)
AT_ENDS = (
    "8-bit floats at the ends of a program: give and take their bytes, `x.view(torch.uint8)`, and "
    "view these in the model, `x.view({dtype})`"
)


FORMATS: dict[torch.dtype, Format] = {
    torch.float8_e4m3fn: E4M3,
    torch.float8_e5m2: E5M2,
}


@dataclass(frozen=True, slots=True, eq=False)
class Float8:
    """A tensor of 8-bit floats: as bits, u8, or as their numbers, f32."""

    format: Format
    node: Node

    def numbers(self) -> Node:
        """The numbers in f32."""
        return self.node if self.node.dtype == "f32" else widened(self.node, self.format)


@cache
def saturates() -> bool:
    """Whether this torch takes what lies beyond a format without infinities for its ends."""
    return not torch.tensor(1e9).to(torch.float8_e4m3fn).float().isnan().item()


def is_float8(node: torch.fx.Node) -> bool:
    """Whether a node of a torch graph takes or gives 8-bit floats."""
    values = [node.meta.get("val"), *(each.meta.get("val") for each in node.all_input_nodes)]
    flat = [
        item
        for value in values
        for item in (value if isinstance(value, list | tuple) else (value,))
    ]
    return any(isinstance(item, torch.Tensor) and item.dtype in FORMATS for item in flat)


def float8_types(node: torch.fx.Node) -> tuple[TensorType, ...]:
    """Types of a call's results, 8-bit floats as their numbers in f32."""
    value = node.meta["val"]
    values = value if isinstance(value, list | tuple) else (value,)
    return tuple(
        TensorType("f32", tuple(map(extent_of, each.shape)))
        if each.dtype in FORMATS
        else type_of(each)
        for each in values
    )


def float8_constant(tensor: torch.Tensor, bits: Callable[[torch.Tensor], Node]) -> Float8:
    """A weight of 8-bit floats as a constant of bytes."""
    return Float8(FORMATS[tensor.dtype], bits(tensor.contiguous().view(torch.uint8)))


def float8_row(name: str) -> Row:
    """The row of an op that takes or gives 8-bit floats; it raises `NotSupported` for others."""
    if name in MOVED:
        return partial(_moved, MOVEMENT[name])
    if name in LOOKED_UP:
        return partial(_moved, INDEXING[name])
    return ROWS.get(name, _refused)


def at_end(dtype: torch.dtype) -> str:
    """Why an input or an output of this type is refused; empty for one that is no 8-bit float."""
    return AT_ENDS.format(dtype=dtype) if dtype in FORMATS else ""


def _refused(call: Call, *arguments: Any) -> Node:
    raise NotSupported(END)


def _moved(row: Row, call: Call, data: Any, *arguments: Any) -> Any:
    """An op that moves elements: their bits, or their numbers."""
    if isinstance(data, Sequence):
        kind, nodes = data[0].format, [each.numbers() for each in data]
        return Float8(kind, row(call, nodes, *arguments))
    kinds = tuple(TensorType(data.node.dtype, each.shape) for each in call.results)
    found = row(replace(call, results=kinds), data.node, *arguments)
    if isinstance(found, Sequence):
        return tuple(Float8(data.format, each) for each in found)
    return Float8(data.format, found)


def _converted(call: Call, data: Node | Float8, target: torch.dtype, *rest: Any) -> Any:
    """A conversion from or to 8-bit floats."""
    found = data.numbers() if isinstance(data, Float8) else data
    if target not in FORMATS:
        return build.cast(found, call.dtype)
    kind = FORMATS[target]
    if isinstance(data, Float8) and data.format == kind:
        return data
    return Float8(kind, rounded(build.cast(found, "f32"), kind, saturates()))


def _viewed(call: Call, data: Any, shape: Any) -> Any:
    """`view` under another shape, or of bits as bytes."""
    if not isinstance(shape, torch.dtype):
        return _moved(MOVEMENT["view"], call, data, shape)
    if isinstance(data, Float8) and shape in (torch.uint8, torch.int8):
        is_bits = data.node.dtype == "u8"
        bits = data.node if is_bits else bits_of(data.node, data.format)
        return bits if call.dtype == "u8" else make("bitcast", (bits,), {"dtype": call.dtype})
    if isinstance(data, Float8) and FORMATS.get(shape) == data.format:
        return data
    if shape in FORMATS and isinstance(data, Node) and data.dtype in ("u8", "i8"):
        bits = make("bitcast", (data,), {"dtype": "u8"}) if data.dtype == "i8" else data
        return Float8(FORMATS[shape], bits)
    raise NotSupported(END)


def _scaled_mm(
    call: Call,
    left: Float8,
    right: Float8,
    left_scale: Node,
    right_scale: Node,
    bias: Node | None = None,
    result_scale: Node | None = None,
    *_: Any,
) -> Node:
    """(a · b) · s_a · s_b + bias, in f32: products of 8-bit floats are exact in it."""
    rows, columns = call.shape
    factors = []
    for scale, shape in ((left_scale, (rows, 1)), (right_scale, (1, columns))):
        whole = shape if scale.type.numel != 1 else (1, 1)
        if scale.type.numel != whole[0] * whole[1]:
            raise NotSupported("scales of blocks: give one a tensor, a row or a column")
        factors.append(build.reshape(build.cast(scale, "f32"), whole))
    found = build.matmul(left.numbers(), right.numbers()) * factors[0] * factors[1]
    if bias is not None:
        found = found + build.reshape(build.cast(bias, "f32"), (1, columns))
    return build.cast(found, call.dtype)


MOVED = frozenset({
    "_unsafe_view", "as_strided", "cat", "diagonal", "expand", "flatten", "flip", "permute",
    "repeat", "reshape", "roll", "select", "slice", "split", "split_with_sizes", "squeeze",
    "stack", "t", "transpose", "unbind", "unflatten", "unfold", "unsqueeze",
})  # fmt: skip
LOOKED_UP = frozenset({"index_select", "gather", "index"})
ROWS: dict[str, Row] = {
    **dict.fromkeys(IDENTITIES, lambda call, data, *rest: data),
    "_to_copy": _converted,
    "prims::convert_element_type": _converted,
    "view": _viewed,
    "_scaled_mm": _scaled_mm,
}
