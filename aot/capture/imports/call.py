"""What a row of the import table gets: the ATen node's types, and operands ready for our ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotc.aot.capture.sizes import extent_of
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make, number
from aotc.aot.ir.size import Extent, Shape, UndecidedSize, is_static
from aotc.aot.ir.storage import Array
from aotc.aot.ir.types import DTYPES, SHORT_FLOATS, TensorType, round_scalar

DTYPE_NAMES: dict[torch.dtype, str] = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
}

# Element types of the parts of complex tensors, which rows of their own take (`complexes.py`).
COMPONENTS: dict[torch.dtype, str] = {torch.complex64: "f32", torch.complex128: "f64"}
NO_COMPLEX = "keep its parts, `torch.view_as_real(x)`, and take `torch.view_as_complex` of them"

Operand = Node | Extent | bool | float
# A row: (call, arguments in the order of the op's schema, defaults filled in) → result.
# An op with several results gives a tuple; `None` there is a result that may not be used.
Row = Callable[..., Node | Sequence[Node | None]]
Rows = dict[str, Row]


NO_KERNEL = "torch has no kernel of it"  # so that eager raises
EAGER_RAISES = "so that eager raises"
OF_STORAGE = "a place in the storage of an argument, which may begin anywhere in it"


class NotSupported(Exception):
    """A row met arguments that it has no import for; carries the reason."""


def type_of(value: torch.Tensor) -> TensorType:
    """Type of a (fake) tensor; raises `NotSupported` for dtypes and sizes that we lack."""
    if value.dtype in COMPONENTS:
        raise NotSupported(f"element type `{value.dtype}`: {NO_COMPLEX}")
    return part_type_of(value)


def part_type_of(value: torch.Tensor) -> TensorType:
    """The same, where a complex tensor has the type of its parts."""
    if value.layout is not torch.strided:
        raise NotSupported(f"a tensor of the layout `{value.layout}`")
    dtype = COMPONENTS.get(value.dtype) or DTYPE_NAMES.get(value.dtype)
    if dtype is None:
        raise NotSupported(f"element type `{value.dtype}`")
    try:
        shape = tuple(map(extent_of, value.shape))
    except UndecidedSize as refused:
        raise NotSupported(str(refused)) from None
    return TensorType(dtype, shape)


def not_equal(found: Extent, expected: Extent) -> None:
    """What refuses sizes that nothing makes equal."""
    raise NotSupported(f"dims [{found}, {expected}] differ")


@dataclass(frozen=True, slots=True)
class Call:
    """One ATen call that is being imported."""

    results: tuple[TensorType, ...]  # what torch says of its results
    operand_values: tuple[Any, ...]  # the arguments as torch saw them: fake tensors, numbers
    table: Callable[[Array, str], Node]  # a constant of these numbers and this element type
    is_complex: bool = False  # whether the first result is, whose parts have the type given
    # What is to hold of the elements of a node at each call: kind, low end, high end.
    check: Callable[..., None] = lambda *_, **named: None
    # Have calls whose sizes differ be refused; raises `NotSupported` where that cannot be had.
    require_equal: Callable[[Extent, Extent], None] = not_equal

    @property
    def shape(self) -> Shape:
        """Shape of the first result."""
        return self.results[0].shape

    @property
    def dtype(self) -> str:
        """Element type of the first result."""
        return self.results[0].dtype

    def promoted(self) -> str:
        """Element type that torch computes the first two operands in."""
        first, second = self.operand_values[:2]
        return DTYPE_NAMES[torch.result_type(first, second)]

    def operand(self, value: Operand, dtype: str) -> Node:
        """`value` cast to `dtype` and given the result's rank (rank 0 stays).

        A whole number wraps around as eager's operand does; see `fitting`.
        """
        if not isinstance(value, Node):
            if isinstance(value, int) and DTYPES[dtype].kind == "int":
                value = wrapped_number(value, dtype)
            return number(value, dtype)
        converted = build.cast(value, dtype)
        if converted.type.rank in (0, len(self.shape)):
            return converted
        return build.align(converted, len(self.shape))

    def fitting(self, value: Operand) -> Operand:
        """`value` where eager converts a number to the result's type, and raises where it does not
        fit: a bound, an exponent, a factor of a sum."""
        if not isinstance(value, int) or DTYPES[self.dtype].kind != "int":
            return value
        is_below = self.dtype == "u8" and -256 < value < 0  # which it takes for 256 more
        if not is_below and wrapped_number(value, self.dtype) != value:
            raise NotSupported(f"{value} does not fit `{self.dtype}`, {EAGER_RAISES}")
        return value

    def operands(self, *values: Operand) -> tuple[Node, ...]:
        """Each in the result's element type and rank."""
        return tuple(self.operand(value, self.dtype) for value in values)

    def pointwise(self, op: str, *operands: Operand, dtype: str = "") -> Node:
        """`op` on operands of `dtype` (the result's unless given), broadcast to the result."""
        compute = dtype or self.dtype
        nodes = [self.operand(value, compute) for value in operands]
        return self.fill(build.pointwise(op, *nodes))

    def check_index(self, index: Node, extent: Extent, wraps: bool = False) -> None:
        """Each element names a place among `extent`; with `wraps` also from the end, below 0."""
        self.check(index, "index", -extent if wraps else 0, extent - 1)

    def sized(self, data: Node, shape: Sequence[Extent], broadcasts: bool = False) -> Node:
        """`data` with the sizes of `shape`, which torch asks for at each call where export does not
        prove it; with `broadcasts` dims of 1 stay, and `data` may have fewer dims."""
        first = len(shape) - data.type.rank
        for axis, (own, wanted) in enumerate(zip(data.shape, shape[first:], strict=True)):
            if own == wanted or is_static((own, wanted)) or (broadcasts and own == 1):
                continue
            self.require_equal(own, wanted)
            places = build.minimum(build.counter(1, 0, wanted), own - 1)
            data = make("take", (data, places), {"axis": axis})
        return data

    def check_divisor(self, divisor: Node) -> None:
        """No element is 0."""
        self.check(divisor, "divisor", 0, 0)

    def check_assertion(self, holds: Node, message: str) -> None:
        """No element is false; the error has the message."""
        self.check(holds, "assertion", 0, 0, operation=message)

    def scaled(self, op: str, left: Operand, right: Operand) -> Node:
        """The product or quotient `op`; a wider tensor of one number keeps its bits."""
        wide_types = {x.dtype for x in (left, right) if isinstance(x, Node) and x.type.rank == 0}
        if self.dtype not in SHORT_FLOATS or not {"f32", "f64"} & wide_types:
            return self.pointwise(op, left, right)
        return build.cast(self.pointwise(op, left, right, dtype="f32"), self.dtype)

    def fill(self, node: Node) -> Node:
        """`node` repeated where only scalars or smaller operands made it."""
        return build.expand(node, self.shape)


def wrapped_number(value: bool | float, dtype: str) -> bool | float:
    """A number as an element: floats are rounded, integers wrap around."""
    kind = DTYPES[dtype]
    if kind.kind != "int":
        return round_scalar(value, dtype)
    bits = kind.itemsize_bytes * 8
    low = 0 if dtype == "u8" else -(2 ** (bits - 1))
    return (int(value) - low) % 2**bits + low


def axes_of(dims: Sequence[int] | int | torch.dtype | None, rank: int) -> tuple[int, ...]:
    """Dims as sorted non-negative axes; none given means all.

    So does an element type, which overloads without dims have in their place.
    """
    if (
        dims is None
        or isinstance(dims, torch.dtype)
        or (not isinstance(dims, int) and len(dims) == 0)
    ):
        return tuple(range(rank))
    listed = [dims] if isinstance(dims, int) else list(dims)
    return tuple(sorted({dim % rank if rank else 0 for dim in listed})) if rank else ()


def wide(data: Node) -> Node:
    """16-bit floats as f32, for rows that torch computes in f32 inside."""
    return build.cast(data, "f32") if data.dtype in ("f16", "bf16") else data


def spread(values: Sequence[int] | int, count: int) -> tuple[int, ...]:
    """One entry a spatial dim from a list that may be a number or have one entry."""
    listed = [values] if isinstance(values, int) else list(values)
    return tuple(listed * count if len(listed) == 1 else listed)


def wrapped(indices: Node, extent: int) -> Node:
    """Indices counted from the end made positive."""
    if indices.op == "iota":
        return indices
    shifted = indices + extent
    return build.where(indices < 0, shifted, indices)
