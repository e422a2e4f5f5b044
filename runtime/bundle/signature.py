"""Signatures whose shapes depend on the call: sizes read from the inputs, checked, put to use.

A `Dim` names a dim of the program and says where it is read: dim `axis` of input `input` has
`scale` · size + `offset` elements. A `Guard` is what the exported model asks of sizes beside
their ranges: a value (see `extent.py`) between `low` and `high`.

A size that only states show is read nowhere: a session fixes it when it is opened, as it does all
sizes of its states (`SessionSizes`).
"""

from __future__ import annotations

from ..arrays.dtypes import DTYPES, bytes_of
from ..errors import (
    InputRank,
    SessionSizeDiffers,
    SessionSizeInvalid,
    SessionSizeUnknown,
    SizeGuard,
    SizeMismatch,
    SizeOutOfRange,
)
from ..record import Record, field
from .extent import INDEX, VALUE_LIMIT, Extent, Number, broken_rows, evaluate
from .schema import Choice, Integer, List, Optional, Text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from .extent import Row
    from .schema import Broken

EXTENT_LIMIT = (1 << 31) - 1
NO_SIZES: Mapping[str, int] = {}


class FixedSizeMismatch(SizeMismatch):
    """A dim of an array has another size than the program was built for."""

    hint = "this size is fixed at build time: rebuild with a `Dim` there, or pad the input"


class TensorSpec(Record):
    """One input or output: name, element type (a key of DTYPES) and shape, of ints or `Extent`s.

    order: the dims as memory has them, outermost first; empty where they stand so in the shape. It
    is written by `MemoryOrder` of the manifest.
    """

    name: str = field(Text())
    dtype: str = field(Choice(*DTYPES))
    shape: tuple[Any, ...] = field(List(Number(0, 1 << 40, is_named=True), limit=64))
    order: tuple[int, ...] = ()

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
        return TensorSpec(self.name, self.dtype, tuple(shape), self.order)

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes, which has no gaps; only for fixed shapes."""
        return bytes_of(self.dtype, self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}{self.order_text}"

    @property
    def order_text(self) -> str:
        """The order of memory for people; empty where it is contiguous."""
        return f" in memory order {list(self.order)}" if self.order else ""


class Dim(Record):
    """A dim of the program: its name, its range (both ends included), and where it is read.

    input: None where no input shows it, and the session has it.
    """

    name: str = field(Text())
    low: int = field(Integer(1, EXTENT_LIMIT))
    high: int = field(Integer(1, EXTENT_LIMIT))
    input: int | None = field(Optional(Integer(0, 4095)))
    axis: int = field(Integer(0, 63))
    scale: int = field(Integer(1, EXTENT_LIMIT), default=1)
    offset: int = field(Integer(-EXTENT_LIMIT, EXTENT_LIMIT), default=0)

    def __str__(self) -> str:
        return f"{self.name} = {self.low}..{self.high}"


class SessionDim(Record):
    """A size of states: its name, its range (both ends included), and what a session has that was
    not asked for another one."""

    name: str = field(Text())
    low: int = field(Integer(1, EXTENT_LIMIT))
    high: int = field(Integer(1, EXTENT_LIMIT))
    default: int = field(Integer(1, EXTENT_LIMIT))

    def __str__(self) -> str:
        return f"{self.name} = {self.low}..{self.high}, {self.default} unless asked"


class SessionSizes(Record):
    """The states of a program, with what their shapes are made of: `dims`, and rows over them."""

    dims: tuple[SessionDim, ...]
    rows: tuple[Row, ...]
    states: tuple[TensorSpec, ...]

    def broken(self) -> Broken:
        """Every relation between sizes, rows and shapes that does not hold."""
        yield from broken_rows(self.rows, len(self.dims))
        count = len(self.dims) + len(self.rows)
        for index, dim in enumerate(self.dims):
            if not dim.low <= dim.default <= dim.high:
                expected = f"from {dim.low} to {dim.high}"
                yield f"session_dims[{index}].default", dim.default, expected
        for index, spec in enumerate(self.states):
            for extent in spec.shape:
                if isinstance(extent, Extent) and extent.index >= count:
                    yield f"states[{index}].shape", f"value {extent.index}", f"one of {count}"

    def bind(self, given: Mapping[str, Any]) -> dict[str, int]:
        """All sizes by name; raises `SessionSizeUnknown` and `SessionSizeInvalid`."""
        names = {dim.name for dim in self.dims}
        for name in given:
            if name not in names:
                expected = ", ".join(str(dim) for dim in self.dims) or "none: its states are fixed"
                raise SessionSizeUnknown(name=name, expected=expected)
        found = {}
        for dim in self.dims:
            size = given.get(dim.name, dim.default)
            if type(size) is not int or not dim.low <= size <= dim.high:
                ends = {"low": dim.low, "high": dim.high}
                raise SessionSizeInvalid(name=dim.name, found=repr(size)[:64], **ends)
            found[dim.name] = size
        return found

    def at(self, sizes: Mapping[str, int]) -> tuple[TensorSpec, ...]:
        """The states at these sizes; raises `SizeInvalid`."""
        values = evaluate(self.rows, [sizes[dim.name] for dim in self.dims])
        return tuple([spec.at(values) for spec in self.states])


class Guard(Record):
    """What sizes must meet: value number `index` lies from `low` to `high`; `text` says it."""

    index: int = field(INDEX)
    low: int = field(Integer(-VALUE_LIMIT, VALUE_LIMIT))
    high: int = field(Integer(-VALUE_LIMIT, VALUE_LIMIT))
    text: str = field(Text(1024))

    def holds(self, values: Sequence[int]) -> bool:
        """Whether the sizes whose values these are meet it."""
        return self.low <= values[self.index] <= self.high


class Signature(Record):
    """The inputs and outputs of a program whose shapes depend on the call."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dims: tuple[Dim, ...]
    rows: tuple[Row, ...]
    guards: tuple[Guard, ...]

    def broken(self) -> Broken:
        """Every relation between the dims, rows, guards and shapes that does not hold."""
        dims, inputs = self.dims, self.inputs
        yield from broken_rows(self.rows, len(dims))
        count = len(dims) + len(self.rows)
        for index, dim in enumerate(dims):
            field = f"dims[{index}]"
            if dim.low > dim.high:
                yield f"{field}.high", dim.high, f"at least {dim.low}"
            if dim.input is None:
                continue
            if dim.input >= len(inputs) or dim.axis >= len(inputs[dim.input].shape):
                yield f"{field}.input", f"dim {dim.axis} of input {dim.input}", "one that is there"
        for index, guard in enumerate(self.guards):
            if guard.index >= count:
                yield f"guards[{index}].index", guard.index, f"less than {count}"

    def bind(
        self, shapes: Sequence[Sequence[int]], session: Mapping[str, int] = NO_SIZES
    ) -> list[int]:
        """All values for these shapes of the inputs; the first ones are the dims' sizes.

        session: the sizes that a session has. Raises `InputRank`, `SizeOutOfRange`,
        `SessionSizeDiffers`, `SizeMismatch`, `SizeGuard` and `SizeInvalid`.
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
        values = evaluate(self.rows, [self._read(dim, shapes, session) for dim in self.dims])
        for spec, shape in zip(self.inputs, shapes, strict=True):
            for axis, (extent, found) in enumerate(zip(spec.shape, shape, strict=True)):
                wanted = values[extent.index] if isinstance(extent, Extent) else extent
                if wanted != found:
                    raise self._mismatch(spec, axis, found, wanted)
        for guard in self.guards:
            if not guard.holds(values):
                sizes = zip(self.dims, values, strict=False)
                listing = ", ".join(f"{dim.name} = {value}" for dim, value in sizes)
                raise SizeGuard(guard=guard.text, sizes=listing)
        return values

    def values(self, sizes: Sequence[int]) -> list[int]:
        """All values for sizes of the dims."""
        return evaluate(self.rows, sizes)

    def _read(self, dim: Dim, shapes: Sequence[Sequence[int]], session: Mapping[str, int]) -> int:
        """The size of a dim, from the input that has it, else from the session."""
        if dim.input is None:  # of the session's states, or of other entries alone
            return min(max(session.get(dim.name, dim.low), dim.low), dim.high)
        found = shapes[dim.input][dim.axis]
        size, rest = divmod(found - dim.offset, dim.scale)
        name = self.inputs[dim.input].name
        if rest:
            expected = f"`{self.inputs[dim.input].shape[dim.axis]}` for a whole `{dim.name}`"
            raise SizeMismatch(
                role="input", name=name, axis=dim.axis, found=found, expected=expected
            )
        expected_size = session.get(dim.name, size)
        if size != expected_size:
            raise SessionSizeDiffers(
                size=dim.name,
                found=size,
                role="input",
                name=name,
                axis=dim.axis,
                expected=expected_size,
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
                if dim.name in extent.text and dim.input is not None
            )
            expected = f"{wanted} (`{extent}`, where {', '.join(own)})"
        kind = SizeMismatch if isinstance(extent, Extent) else FixedSizeMismatch
        return kind(role="input", name=spec.name, axis=axis, found=found, expected=expected)

    def at(self, values: Sequence[int]) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
        """Inputs and outputs of fixed shapes."""
        return (
            tuple(spec.at(values) for spec in self.inputs),
            tuple(spec.at(values) for spec in self.outputs),
        )
