"""Signatures whose shapes depend on the call: sizes read from the inputs, checked, put to use.

A `Size` names a dim of the program and says where it is read: dim `axis` of input `input` has
`scale` · size + `offset` elements. A `Condition` is what the exported model asks of sizes beside
their ranges: a value (see `extent.py`) between `low` and `high`.
"""

from __future__ import annotations

from ..arrays.dtypes import DTYPES
from ..errors import InputRank, SizeGuard, SizeMismatch, SizeOutOfRange
from ..record import Record
from .extent import (
    DIMS_LIMIT,
    ROWS_LIMIT,
    VALUE_LIMIT,
    Extent,
    RowsSchema,
    broken_rows,
    evaluate,
)
from .schema import Fields, Integer, List, Schema, Text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from .extent import Row

EXTENT_LIMIT = (1 << 31) - 1


class TensorSpec(Record):
    """One input or output: name, element type (a key of DTYPES) and shape, of ints or `Extent`s."""

    __slots__ = ("dtype", "name", "shape")
    name: str
    dtype: str
    shape: tuple[Any, ...]

    def __init__(self, name: str, dtype: str, shape: Sequence[Any]) -> None:
        extents = (Extent(*each) if type(each) is list else each for each in shape)
        self._set(name=name, dtype=dtype, shape=tuple(extents))

    @property
    def is_fixed(self) -> bool:
        """Whether no size of the shape depends on the call."""
        return not any(isinstance(extent, Extent) for extent in self.shape)

    def admits(self, shape: Sequence[int]) -> bool:
        """Whether some sizes of a call give this shape, as far as its fixed extents tell."""
        pairs = zip(self.shape, shape, strict=False)
        fits = all(isinstance(own, Extent) or own == found for own, found in pairs)
        return fits and len(self.shape) == len(shape)

    def at(self, values: Sequence[int]) -> TensorSpec:
        """The same for given sizes: numbers of values are replaced by the values."""
        shape = (values[each.index] if isinstance(each, Extent) else each for each in self.shape)
        return TensorSpec(self.name, self.dtype, tuple(shape))

    @property
    def nbytes(self) -> int:
        """Size of the contiguous array in bytes; only for fixed shapes."""
        size: int = DTYPES[self.dtype].itemsize_bytes
        for extent in self.shape:
            size *= extent
        return size

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


class Size(Record):
    """A dim of the program: its name, its range (both ends included), and where it is read."""

    __slots__ = ("axis", "high", "input", "low", "name", "offset", "scale")
    name: str
    low: int
    high: int
    input: int
    axis: int
    scale: int
    offset: int

    def __init__(
        self, name: str, low: int, high: int, input: int, axis: int, scale: int = 1, offset: int = 0
    ) -> None:
        self._set(name=name, low=low, high=high, input=input, axis=axis, scale=scale, offset=offset)

    def __str__(self) -> str:
        return f"{self.name} = {self.low}..{self.high}"


class Condition(Record):
    """What sizes must meet: value number `index` lies from `low` to `high`; `text` says it."""

    __slots__ = ("high", "index", "low", "text")
    index: int
    low: int
    high: int
    text: str

    def __init__(self, index: int, low: int, high: int, text: str) -> None:
        self._set(index=index, low=low, high=high, text=text)


SIZES_SCHEMA: dict[str, Schema] = {
    "dims": List(
        Fields(
            {
                "name": Text(),
                "low": Integer(1, EXTENT_LIMIT),
                "high": Integer(1, EXTENT_LIMIT),
                "input": Integer(0, 4095),
                "axis": Integer(0, 63),
                "scale": Integer(1, EXTENT_LIMIT),
                "offset": Integer(-EXTENT_LIMIT, EXTENT_LIMIT),
            }
        ),
        limit=DIMS_LIMIT,
    ),
    "guards": List(
        Fields(
            {
                "index": Integer(0, ROWS_LIMIT + DIMS_LIMIT),
                "low": Integer(-VALUE_LIMIT, VALUE_LIMIT),
                "high": Integer(-VALUE_LIMIT, VALUE_LIMIT),
                "text": Text(1024),
            }
        ),
        limit=256,
    ),
    "sizes": RowsSchema(),
}


def broken_sizes(tree: dict[str, Any]) -> Iterator[tuple[str, object, str]]:
    """Relations between the dims, sizes, guards and shapes of a manifest that do not hold."""
    dims, inputs = tree["dims"], tree["inputs"]
    yield from broken_rows(tree["sizes"], len(dims))
    count = len(dims) + len(tree["sizes"])
    for index, row in enumerate(dims):
        field = f"dims[{index}]"
        if row["low"] > row["high"]:
            yield f"{field}.high", row["high"], f"at least {row['low']}"
        is_there = row["input"] < len(inputs)
        if not is_there or row["axis"] >= len(inputs[row["input"]]["shape"]):
            yield (
                f"{field}.input",
                f"dim {row['axis']} of input {row['input']}",
                "one that is there",
            )
    for kind in ("inputs", "outputs"):
        for index, row in enumerate(tree[kind]):
            for extent in row["shape"]:
                if type(extent) is list and extent[0] >= count:
                    yield f"{kind}[{index}].shape", f"value {extent[0]}", f"one of {count}"
    for index, row in enumerate(tree["guards"]):
        if row["index"] >= count:
            yield f"guards[{index}].index", row["index"], f"less than {count}"


class Signature:
    """The inputs and outputs of a program whose shapes depend on the call."""

    __slots__ = ("dims", "guards", "inputs", "outputs", "rows")

    def __init__(
        self,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        dims: tuple[Size, ...],
        rows: Sequence[Row],
        guards: tuple[Condition, ...],
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.dims = dims
        self.rows = rows
        self.guards = guards

    def bind(self, shapes: Sequence[Sequence[int]]) -> list[int]:
        """All values for these shapes of the inputs; the first ones are the dims' sizes.

        Raises `InputRank`, `SizeOutOfRange`, `SizeMismatch`, `SizeGuard` and `SizeInvalid`.
        """
        for spec, shape in zip(self.inputs, shapes, strict=True):
            if len(shape) != len(spec.shape):
                raise InputRank(
                    role="input",
                    name=spec.name,
                    found=len(shape),
                    shape=list(shape),
                    rank=len(spec.shape),
                    expected=f"(shape {list(spec.shape)})",
                )
        values = evaluate(self.rows, [self._read(dim, shapes) for dim in self.dims])
        for spec, shape in zip(self.inputs, shapes, strict=True):
            for axis, (extent, found) in enumerate(zip(spec.shape, shape, strict=True)):
                wanted = values[extent.index] if isinstance(extent, Extent) else extent
                if wanted != found:
                    raise self._mismatch(spec, axis, found, wanted)
        for guard in self.guards:
            if not guard.low <= values[guard.index] <= guard.high:
                sizes = zip(self.dims, values, strict=False)
                listing = ", ".join(f"{dim.name} = {value}" for dim, value in sizes)
                raise SizeGuard(guard=guard.text, sizes=listing)
        return values

    def values(self, sizes: Sequence[int]) -> list[int]:
        """All values for sizes of the dims."""
        return evaluate(self.rows, sizes)

    def _read(self, dim: Size, shapes: Sequence[Sequence[int]]) -> int:
        """The size of a dim, from the input that has it."""
        found = shapes[dim.input][dim.axis]
        size, rest = divmod(found - dim.offset, dim.scale)
        name = self.inputs[dim.input].name
        if rest:
            expected = f"`{self.inputs[dim.input].shape[dim.axis]}` for a whole `{dim.name}`"
            raise SizeMismatch(
                role="input", name=name, axis=dim.axis, found=found, expected=expected
            )
        if not dim.low <= size <= dim.high:
            raise SizeOutOfRange(
                size=dim.name,
                found=size,
                role="input",
                name=name,
                axis=dim.axis,
                low=dim.low,
                high=dim.high,
            )
        return size

    def _mismatch(self, spec: TensorSpec, axis: int, found: int, wanted: int) -> SizeMismatch:
        """The error that also tells where the sizes behind the expected one were read."""
        extent, expected = spec.shape[axis], str(wanted)
        if isinstance(extent, Extent):
            own = (
                f"`{dim.name}` is dim {dim.axis} of input `{self.inputs[dim.input].name}`"
                for dim in self.dims
                if dim.name in extent.text
            )
            expected = f"{wanted} (`{extent}`, where {', '.join(own)})"
        return SizeMismatch(role="input", name=spec.name, axis=axis, found=found, expected=expected)

    def at(self, values: Sequence[int]) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
        """Inputs and outputs of fixed shapes."""
        return (
            tuple(spec.at(values) for spec in self.inputs),
            tuple(spec.at(values) for spec in self.outputs),
        )
