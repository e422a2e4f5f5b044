"""Evaluation of lazy tensors: the value of any tensor at one index, or at a chunk of lanes.

A tensor of Triton IR is an expression; nothing is computed where it is defined. The roots (stores,
reductions, dots, loop-carried values) run over their elements and ask for the values there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from aotc.aot.errors import CompileError
from aotc.aot.targets.cpu import memory
from aotc.aot.targets.cpu.elementwise import RULES
from aotc.aot.targets.cpu.lanes import Lanes, compare, select, typed
from aotc.aot.targets.cpu.linear import (
    LLVM_TYPES,
    Int,
    Lane,
    Pointer,
    float_constant,
    integer,
    is_vector,
)
from aotc.aot.targets.cpu.memory import Bound, Buffer, Index
from aotc.aot.targets.cpu.ttir import (
    Attribute,
    Block,
    Dense,
    Function,
    Operation,
    Value,
    unsupported,
)
from aotc.aot.targets.cpu.writer import Operand, constant


class StoredProduct(NamedTuple):
    """A product that ends in stores, which nobody else reads; `fused_store.py` finds them."""

    operation: Operation
    """The dot, or the loop around it."""
    dot: Operation
    value: Value
    """What the stores read."""
    stores: tuple[Operation, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.type.shape or ()

    @property
    def mask(self) -> Value | None:
        """Where elements are stored, the same for all stores."""
        operands = self.stores[0].operands
        return operands[2] if len(operands) > 2 else None


class Shifted(NamedTuple):
    """A loop-carried tensor that moves by the same amount everywhere: `source + offset`."""

    source: Value
    offset: Int


_TABLES = ("scalars", "buffers", "shifted", "pending", "in_place", "min_depths")
"""What a kernel knows of values by the code that was written."""


@dataclass(eq=False)
class Kernel(memory.Code):
    """State of lowering one kernel: what is known about every value, and where code goes."""

    no_alias: bool
    """Pointer arguments do not overlap (true for kernels of our own)."""
    scalars: dict[Value, Lane] = field(default_factory=dict)
    buffers: dict[Value, Buffer] = field(default_factory=dict)
    shifted: dict[Value, Shifted] = field(default_factory=dict)
    facts: dict[tuple[Value, Index], bool] = field(default_factory=dict)
    """Whether comparisons hold at an index, known because a loop was cut there."""
    pending: dict[Value, Pending] = field(default_factory=dict)
    in_place: dict[Value, Buffer] = field(default_factory=dict)
    """Where a tensor has to be computed: the buffer of the loop-carried value that it follows."""
    fused_store: StoredProduct | None = None
    """The product that stores its elements as it goes, while it is lowered."""
    asked_for: StoredProduct | None = None
    """The product of which only what its stores' mask leaves is asked for, while it is lowered."""
    active_bounds: frozenset[Bound] = frozenset()
    """Where the loops of the current root are cut."""
    functions: Mapping[str, Function] = field(default_factory=dict)
    """What the kernel may call, by symbol."""
    routines: dict[str, Any] = field(default_factory=dict)
    """Functions that were lowered, by symbol."""
    sites: list[dict[str, Any]] | None = None
    """What may be reported to the host, in order; None where nobody listens."""
    is_routine: bool = False
    """Lowered for a caller's sake, not a kernel by itself."""
    assert_lanes: Callable[[Kernel, Operation, Lane], None] | None = None
    """Lowers an assertion in a combination, of lanes of its condition."""

    @property
    def report_argument(self) -> str:
        """What calls pass on for reports to the host, after a comma."""
        return "" if self.sites is None else ", ptr %report"

    @contextmanager
    def probe(self, *, may_skip: bool = True) -> Iterator[int]:
        """Everything written inside is thrown away, and what is known of values by it: to look at
        what an evaluation would give. Gives the depth of the probe's own scope, in which all reads
        of memory are, unless `may_skip` is false: then those that may stand outside of it do."""
        tables = {name: dict(getattr(self, name)) for name in _TABLES}
        pending = {value: (each.index, each.written) for value, each in self.pending.items()}
        facts, scratch_bytes, scrap = dict(self.facts), self.scratch_bytes, self._bin
        try:
            with self.writer.probe(may_skip=may_skip) as depth:
                yield depth
        finally:
            for name, table in tables.items():
                setattr(self, name, table)
            for value, (index, is_written) in pending.items():
                self.pending[value].index, self.pending[value].written = index, is_written
            self.facts, self.scratch_bytes, self._bin = facts, scratch_bytes, scrap

    # -------------------------------------------------------------- evaluation

    def scalar(self, value: Value) -> Lane:
        """The value of a scalar, which was computed where it is defined."""
        if value not in self.scalars:
            name = value.owner.name if value.owner else "block argument"
            raise CompileError(message=f"scalar of `{name}` is not available to the cpu target")
        return self.scalars[value]

    def at(self, value: Value, index: Index) -> Lane:
        """The value of a tensor at an index (one Int a dimension; at most one varies by lane)."""
        if not value.type.is_tensor:
            return self.scalar(value)
        if (value, index) in self.facts:
            return constant("true" if self.facts[value, index] else "false", "i1")
        key = (value, index, self.lanes.width)
        for scope in self.writer.scopes:
            if key in scope.memory:
                known: Lane = scope.memory[key]
                return known
        found = self._compute(value, index)
        home = min(depth_of(found), self.writer.depth)
        self.writer.scopes[home].memory[key] = found
        return found

    def _compute(self, value: Value, index: Index) -> Lane:
        if value in self.pending:
            return self.pending[value].compute(value, index)
        if value in self.buffers and self._covers(self.buffers[value]):
            return memory.read_buffer(self, self.buffers[value], index)
        if value in self.shifted:
            source, offset = self.shifted[value]
            moved = self.at(source, index)
            if isinstance(moved, Pointer):
                return moved.at(self.lanes.add(moved.offset, self.lanes.extend(offset, "i64")))
            if not isinstance(moved, Int):
                steps = self.lanes.splat(self.lanes.operand(self.lanes.extend(offset, "i64")))
                return self.lanes.moved(self.lanes.operand(moved), steps, value.type.pointee)
            return self.lanes.add(moved, offset)
        return self.define(value, index)

    def define(self, value: Value, index: Index) -> Lane:
        """Evaluates the operation that defines `value`, whatever is stored of it."""
        operation = value.owner
        if operation is None:
            raise CompileError(message="a tensor argument of a block has no value")
        if operation.name in VIEWS:
            source, mapped = VIEWS[operation.name](self, operation, value, index)
            return self.at(source, mapped)
        if operation.name in TENSORS:
            return TENSORS[operation.name](self, operation, value, index)
        if operation.name in RULES:
            return RULES[operation.name](
                self.lanes, operation, [self.at(x, index) for x in operation.operands]
            )
        raise unsupported(f"operation `{operation.name}`")

    def _covers(self, buffer: Buffer) -> bool:
        """Everything of the buffer was computed, or all that the current loops ask for."""
        return all(bound in self.active_bounds for bound in buffer.bounds)

    def apply(self, block: Block, arguments: Sequence[Lane]) -> list[Lane]:
        """Runs a combine region on lane values; returns what it returns."""
        known: dict[Value, Lane] = dict(zip(block.arguments, arguments, strict=True))

        def get(value: Value) -> Lane:
            return known[value] if value in known else self.scalar(value)

        for operation in block.operations:
            if operation.name.endswith(".return"):
                return [get(x) for x in operation.operands]
            if operation.name == "arith.constant":
                known[operation.results[0]] = literal(
                    operation.attributes["value"], operation.results[0]
                )
            elif operation.name in RULES:
                operands = [get(x) for x in operation.operands]
                known[operation.results[0]] = RULES[operation.name](self.lanes, operation, operands)
            elif operation.name == "tt.assert" and self.assert_lanes is not None:
                self.assert_lanes(self, operation, get(operation.operands[0]))
            else:
                raise CompileError(
                    message=f"`{operation.name}` in a combine function is not supported"
                )
        raise CompileError(message="a combine function returns nothing")


@dataclass(eq=False)
class Pending:
    """A tensor that the first root to read it also writes to memory."""

    kernel: Kernel
    buffer: Buffer
    index: Index | None = None
    """Index of the root's loops at which the element is stored."""
    written: bool = False

    def compute(self, value: Value, index: Index) -> Lane:
        found = self.kernel.define(value, index)
        if index == self.index:
            memory.write_buffer(self.kernel, self.buffer, index, found)
            self.written = True
        return found


def depth_of(lane: Lane) -> int:
    """Depth of the innermost scope that a lane value depends on."""
    if isinstance(lane, Operand):
        return lane.depth
    if isinstance(lane, Pointer):
        return max(lane.base.depth, depth_of(lane.offset))
    linears = (lane.base, lane.stride)
    return max((atom.operand.depth for linear in linears for atom, _ in linear.terms), default=0)


def literal(attribute: Attribute, value: Value) -> Lane:
    """A constant of the type of `value`; a splat for tensors."""
    kind = value.type.element
    number = attribute.values[0] if isinstance(attribute, Dense) else attribute
    if isinstance(number, bool) or kind == "i1":
        return constant("true" if number else "false", "i1")
    if not isinstance(number, (int, float)):
        raise CompileError(message=f"constant `{number}` is not understood")
    if kind.startswith(("f", "b")):
        return float_constant(float(number), kind)
    operand = constant(int(number), LLVM_TYPES[kind])
    return integer(int(number), kind) if kind in ("i32", "i64") else operand


# ------------------------------------------------------------------------ views

Element: TypeAlias = tuple[Value, Index]  # an element of a tensor
View: TypeAlias = Callable[[Kernel, Operation, Value, Index], Element]


def _broadcast(kernel: Kernel, operation: Operation, value: Value, index: Index) -> Element:
    source = operation.operands[0]
    shape = source.type.shape or ()
    return source, tuple(integer(0) if n == 1 else i for n, i in zip(shape, index, strict=True))


def _expand_dims(kernel: Kernel, operation: Operation, value: Value, index: Index) -> Element:
    axis = operation.integer("axis")
    return operation.operands[0], index[:axis] + index[axis + 1 :]


def _transpose(kernel: Kernel, operation: Operation, value: Value, index: Index) -> Element:
    order = operation.integers("order")
    mapped = [integer(0)] * len(order)
    for place, source in enumerate(order):
        mapped[source] = index[place]
    return operation.operands[0], tuple(mapped)


def _reshape(kernel: Kernel, operation: Operation, value: Value, index: Index) -> Element:
    source = operation.operands[0]
    flat = linear_index(kernel.lanes, value.type.shape or (), index)
    return source, split_index(kernel.lanes, source.type.shape or (), flat)


def _split(kernel: Kernel, operation: Operation, value: Value, index: Index) -> Element:
    return operation.operands[0], (*index, integer(value.index))


def linear_index(lanes: Lanes, shape: Sequence[int], index: Index) -> Int:
    flat = integer(0)
    for size, i in zip(shape, index, strict=True):
        flat = lanes.add(lanes.multiply(flat, integer(size)), i)
    return flat


def split_index(lanes: Lanes, shape: Sequence[int], flat: Int) -> Index:
    found: list[Int] = []
    for place, size in reversed(list(enumerate(shape))):
        if size == 1:
            found.append(integer(0))
        elif all(n == 1 for n in shape[:place]):
            found.append(flat)
            flat = integer(0)
        else:
            found.append(lanes.divide(flat, integer(size), remainder=True))
            flat = lanes.divide(flat, integer(size), remainder=False)
    return tuple(reversed(found))


VIEWS: dict[str, View] = {
    "tt.broadcast": _broadcast,
    "tt.expand_dims": _expand_dims,
    "tt.trans": _transpose,
    "tt.reshape": _reshape,
    "tt.split": _split,
}
"""Operations that only say where an element of their operand stands."""


# ---------------------------------------------------------------------- tensors


def _constant(kernel: Kernel, operation: Operation, value: Value, index: Index) -> Lane:
    found = operation.attributes["value"]
    if isinstance(found, Dense) and len(found.values) > 1:
        flat = linear_index(kernel.lanes, value.type.shape or (), index)
        return memory.read_table(kernel, found, value.type.element, flat)
    return literal(found, value)


def _choose(
    kernel: Kernel, first: Value, second: Value, chooser: Int, at: Index, other: Index
) -> Lane:
    if chooser.constant is not None:
        return kernel.at(second, other) if chooser.constant else kernel.at(first, at)
    condition = compare(kernel.lanes, "icmp eq", kernel.lanes.operand(chooser), constant(0, "i32"))
    made = select(
        kernel.lanes, condition,
        kernel.lanes.operand(kernel.at(first, at)), kernel.lanes.operand(kernel.at(second, other)),
    )  # fmt: skip
    return typed(kernel.lanes, made, first.type.element)


def _join(kernel: Kernel, operation: Operation, value: Value, index: Index) -> Lane:
    first, second = operation.operands
    return _choose(kernel, first, second, index[-1], index[:-1], index[:-1])


def _concatenate(kernel: Kernel, operation: Operation, value: Value, index: Index) -> Lane:
    first, second = operation.operands
    size = (first.type.shape or (1,))[0]
    which = kernel.lanes.divide(index[0], integer(size), remainder=False)
    rest = (kernel.lanes.divide(index[0], integer(size), remainder=True), *index[1:])
    return _choose(kernel, first, second, which, rest, rest)


def _gather(kernel: Kernel, operation: Operation, value: Value, index: Index) -> Lane:
    source, places = operation.operands
    place = kernel.at(places, index)
    if not isinstance(place, Int):
        signed = kernel.lanes.cast("sext", kernel.lanes.operand(place), "i32")
        place = kernel.lanes.atom(signed, "i32")
    place = kernel.lanes.extend(place, "i32")  # as all indices are
    axis = operation.integer("axis")
    return kernel.at(source, (*index[:axis], place, *index[axis + 1 :]))


def _load(kernel: Kernel, operation: Operation, value: Value, index: Index) -> Lane:
    pointer, *rest = operation.operands
    address = kernel.at(pointer, index)
    sizes = operation.integers("operandSegmentSizes") or [1, 0, 0]
    is_plain = kernel.guard is None and not operation.integer("isVolatile")
    if kernel.lanes.width > 1 and sizes[1] and is_plain and memory.has_steps(kernel, address):
        common, own = _mask_parts(kernel, rest[0], index)
        if common is not None and memory.is_covered(kernel, address, own):
            operands = [address, own, *(kernel.at(x, index) for x in rest[1:])]
            return memory.load(kernel, operation, operands, common)
    return memory.load(kernel, operation, [address, *(kernel.at(x, index) for x in rest)])


def _mask_parts(kernel: Kernel, mask: Value, index: Index) -> tuple[Operand | None, Operand]:
    """What a mask asks of all lanes alike, None where that is nothing, and of each by itself."""
    common: Operand | None = None
    own = constant("true", "i1")
    waiting = [(mask, index)]
    while waiting:
        value, place = waiting.pop()
        made = value.owner
        is_stored = value in kernel.buffers or value in kernel.pending or value in kernel.shifted
        if (value, place) not in kernel.facts and made is not None and not is_stored:
            if made.name == "arith.andi":
                waiting += [(operand, place) for operand in reversed(made.operands)]
                continue
            if made.name in VIEWS:
                waiting.append(VIEWS[made.name](kernel, made, value, place))
                continue
        part = kernel.lanes.operand(kernel.at(value, place))
        if part.text == "true":
            continue
        if part.text == "false":
            return None, part
        if is_vector(part):
            own = part if own.text == "true" else kernel.lanes.binary("and", own, part)
        else:
            common = part if common is None else kernel.lanes.binary("and", common, part)
    return common, own


def anything(kernel: Kernel, value: Value) -> Lane:
    """What `ub.poison` is: some number, the same each time it is read."""
    kind = LLVM_TYPES[value.type.element]
    found = kernel.writer.emit(f"freeze {kind} poison", kind)
    if value.type.is_pointer and not value.type.is_tensor:
        return Pointer(found, integer(0, "i64"), value.type.pointee)
    return typed(kernel.lanes, found, value.type.element)


TENSORS: dict[str, Callable[[Kernel, Operation, Value, Index], Lane]] = {
    "arith.constant": _constant,
    "ub.poison": lambda kernel, operation, value, index: anything(kernel, value),
    "tt.make_range": lambda kernel, operation, _, index: kernel.lanes.add(
        index[0], integer(operation.integer("start"))
    ),
    "tt.splat": lambda kernel, operation, *_: kernel.scalar(operation.operands[0]),
    "tt.load": _load,
    "tt.join": _join,
    "tt.cat": _concatenate,
    "tt.gather": _gather,
}
"""Operations that need more than the values of their operands at the same index."""
