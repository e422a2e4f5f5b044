"""Root operations: they run over the elements of lazy tensors and write them to memory: stores and
atomics."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from aotc.aot.targets.cpu import memory, tiles
from aotc.aot.targets.cpu.elementwise import RULES
from aotc.aot.targets.cpu.evaluate import VIEWS, Kernel, Pending
from aotc.aot.targets.cpu.lanes import ITEMSIZE_BYTES, as_f32, from_f32, select, typed
from aotc.aot.targets.cpu.linear import LLVM_TYPES, Int, Lane, Linear, Pointer, integer
from aotc.aot.targets.cpu.memory import Bound, Buffer, Index
from aotc.aot.targets.cpu.splits import splits_of
from aotc.aot.targets.cpu.tiles import Conjunct
from aotc.aot.targets.cpu.ttir import Operation, Value, unsupported
from aotc.aot.targets.cpu.usage import COSTS
from aotc.aot.targets.cpu.windows import ROWS, Rows, rows_of
from aotc.aot.targets.cpu.writer import Operand

LONG = 10  # instructions that wait for each other: from one function on, more vectors are faster
SIDE_BY_SIDE = ((4, 32), (2, 8))
"""Vectors of a long expression in a turn, by the fewest that a row must have: of fewer, much of the
last turn would be without work."""
MOST_SUMS = 4  # vectors of sums side by side
SHORT = 4  # instructions that need no registers beside those of the partial results
MOST_ACROSS = 8  # vectors of these
NARROW = frozenset({"f32", "f16", "bf16", "i32", "i1", "i8"})
NUMBERS = NARROW | {"f64", "i64", "i16"}


def new_buffer(kernel: Kernel, value: Value, bounds: tuple[Bound, ...] = ()) -> Buffer:
    """Scratch for a tensor, to be written in the current scope."""
    shape = value.type.shape or ()
    size_bytes = ITEMSIZE_BYTES[value.type.element]
    for size in shape:
        size_bytes *= size
    return Buffer(
        kernel.allocate(size_bytes), shape, value.type.element, kernel.writer.depth, bounds
    )


def materialize(kernel: Kernel, value: Value, into: Buffer | None = None) -> Buffer:
    """Computes all elements of a tensor into memory."""
    buffer = into or new_buffer(kernel, value)

    def body(index: Index) -> None:
        memory.write_buffer(kernel, buffer, index, kernel.at(value, index))

    lane = tiles.lane_dimension(kernel, value)
    tiles.run(kernel, buffer.shape, body, lane_dim=lane)
    return buffer._replace(min_depth=kernel.writer.depth)


def defer(kernel: Kernel, value: Value) -> None:
    """Marks a tensor to be written to memory by the first root that runs over all of it."""
    kernel.pending[value] = Pending(kernel, new_buffer(kernel, value))


class Filling:
    """While a root runs, the pending tensors of its shape are written at the root's own index."""

    def __init__(self, kernel: Kernel, shape: Sequence[int]) -> None:
        self.kernel = kernel
        self.values = [each for each in kernel.pending if each.type.shape == tuple(shape)]

    def enter(self, index: Index) -> None:
        for value in self.values:
            self.kernel.pending[value].index = index

    def finish(self, bounds: Sequence[Bound]) -> None:
        kernel = self.kernel
        for value in self.values:
            pending = kernel.pending[value]
            pending.index = None
            if pending.written:
                del kernel.pending[value]
                depth = kernel.writer.depth
                kernel.buffers[value] = pending.buffer._replace(
                    bounds=tuple(bounds), min_depth=depth
                )


def force(kernel: Kernel, value: Value) -> None:
    """Computes a pending tensor now."""
    pending = kernel.pending.pop(value)
    kernel.buffers[value] = materialize(
        kernel, value, pending.buffer._replace(min_depth=kernel.writer.depth)
    )


# ------------------------------------------------------------------------ store


def store(kernel: Kernel, run: Sequence[Operation]) -> None:
    """`tt.store(pointer, value, mask?)`, one or several in a loop that ends where the mask does."""
    first = run[0]
    mask = first.operands[2] if len(first.operands) > 2 else None
    shape = first.operands[0].type.shape or ()
    cuts = tiles.conjuncts(kernel, mask, shape) if mask is not None and shape else []
    filling = Filling(kernel, shape)
    values = [operation.operands[1] for operation in run]
    lane = tiles.lane_dimension(kernel, first.operands[0]) if shape else None
    joined = min(_joined(value) for value in values)
    if joined and lane is not None and lane < len(shape) - joined and not filling.values:
        cuts = [cut for cut in cuts if cut.bound.dim < len(shape) - joined]

        def each(index: Index) -> None:
            for sides in itertools.product(*(range(size) for size in shape[-joined:])):
                write(kernel, run, mask, (*index[:-joined], *map(integer, sides)))

        tiles.run(kernel, shape, each, lane_dim=lane, cuts=cuts, whole=joined)
        return

    vectors = vectors_of(kernel, values, lane, cuts)
    places = splits_of(kernel, values, shape, lane, cuts) if lane is not None else []
    rows = None
    if lane is not None and not kernel.pending and not places:
        rows = rows_of(kernel, values, lane, vectors * kernel.isa.lanes, cuts)

    def body(index: Index) -> None:
        filling.enter(index)
        if rows is None:
            write(kernel, run, mask, index)
        else:
            _write_rows(kernel, run, mask, rows, index, cuts)

    tiles.run(kernel, shape, body, lane_dim=lane, cuts=cuts, vectors=vectors, splits=places,
              rows=1 if rows is None else ROWS)  # fmt: skip
    filling.finish([cut.bound for cut in cuts])


def _joined(value: Value) -> int:
    """How many of the last dims are sides of joins: they are written out, so that an element of
    what all sides share is computed once for them."""
    count = 0
    while value.owner is not None and value.owner.name == "tt.join":
        value, count = value.owner.operands[0], count + 1
    return count


def _write_rows(
    kernel: Kernel,
    run: Sequence[Operation],
    mask: Value | None,
    rows: Rows,
    index: Index,
    cuts: Sequence[tiles.Conjunct],
) -> None:
    """The same as `write` for rows together, where what is known of the first holds for all."""
    kept, indices = kernel.facts, rows.indices(kernel, index)
    held = [cut for cut in cuts if cut.fact(kernel, index) in kept]
    facts = {cut.fact(kernel, each): True for cut in held for each in indices}
    kernel.facts = {**kept, **facts}
    for value, row in rows.steps:
        kernel.at(value, indices[row])
    for each in indices:
        write(kernel, run, mask, each)
    kernel.facts = kept


def write(kernel: Kernel, run: Sequence[Operation], mask: Value | None, index: Index) -> None:
    """What the stores of a run write at one index, where their mask lets them."""
    test = kernel.lanes.operand(kernel.at(mask, index)) if mask is not None else None
    for operation in run:
        pointer, value = operation.operands[:2]
        element = pointer.type.pointee
        address = kernel.at(pointer, index)
        found = kernel.lanes.operand(kernel.at(value, index))
        if element == "i1":
            found = kernel.lanes.cast("zext", found, "i8")
        stored, where = memory.stored_element(element), test
        if kernel.guard is not None:
            where = kernel.guard.within(operation, address, stored, test)
        memory.write(kernel, address, found, stored, where)


_NAMES = ("and", "or", "xor", "add", "fadd", "max", "min", "umax", "umin", "xchg")
_ATOMICS = dict(enumerate(_NAMES, 1))
"""Code of `atomic_rmw_op` → LLVM's name."""


def atomic(kernel: Kernel, operation: Operation) -> None:
    """`tt.atomic_rmw` and `tt.atomic_cas`, one element at a time; the old values are kept."""
    result = operation.results[0]
    shape = result.type.shape or ()
    buffer = new_buffer(kernel, result) if shape else None

    def body(index: Index) -> None:
        operands = [kernel.at(x, index) for x in operation.operands]
        old = _atomic_element(kernel, operation, operands)
        lane = typed(kernel.lanes, old, result.type.element)
        if buffer is None:
            kernel.scalars[result] = lane
        else:
            memory.write_buffer(kernel, buffer, index, lane)

    each_element(kernel, shape, body)
    if buffer is not None:
        kernel.buffers[result] = buffer._replace(min_depth=kernel.writer.depth)


def each_element(kernel: Kernel, shape: tuple[int, ...], body: Callable[[Index], None]) -> None:
    """Scalar loops over a tile: an extra dimension of one takes the lanes."""
    if not shape:
        body(())
        return
    tiles.run(kernel, (*shape, 1), lambda index: body(index[:-1]), lane_dim=len(shape))


def _atomic_element(kernel: Kernel, operation: Operation, operands: Sequence[Lane]) -> Operand:
    lanes = kernel.lanes
    address = lanes.operand(operands[0])
    element = operation.results[0].type.element
    kind = LLVM_TYPES[element]
    if kernel.guard is not None:
        mask = lanes.operand(operands[2]) if operation.name == "tt.atomic_rmw" else None
        is_inside = kernel.guard.within(operation, operands[0], element, mask)
        address = select(lanes, is_inside, address, kernel.bin())
    if operation.name == "tt.atomic_cas":
        return _exchanged(kernel, address, [lanes.operand(x) for x in operands[1:3]], kind)
    code = operation.integer("atomic_rmw_op")
    if code not in _ATOMICS:
        raise unsupported(f"atomic operation {code}")
    value = lanes.operand(operands[1])
    if len(operands) > 2:
        mask = lanes.operand(operands[2])
        if mask.text != "true":
            safe = kernel.bin()
            address = kernel.writer.emit(
                f"select {mask}, {address}, {safe}", "ptr", [mask, address, safe]
            )
    if _ATOMICS[code] == "fadd" and element == "bf16":
        return _added_bits(kernel, address, value, element)
    return kernel.writer.effect(f"atomicrmw {_ATOMICS[code]} {address}, {value} seq_cst", kind)


def _exchanged(kernel: Kernel, address: Operand, pair: Sequence[Operand], kind: str) -> Operand:
    """`tt.atomic_cas`: floats and pointers are compared by their bits."""
    lanes = kernel.lanes
    bits = {"float": "i32", "double": "i64", "half": "i16"}.get(kind, kind)
    expected, wanted = (lanes.cast("bitcast", x, bits) for x in pair)
    made = kernel.writer.effect(
        f"cmpxchg {address}, {expected}, {wanted} seq_cst seq_cst", f"{{ {bits}, i1 }}"
    )
    old = kernel.writer.effect(f"extractvalue {made} , 0", bits)
    return old if bits == kind else kernel.writer.effect(f"bitcast {old} to {kind}", kind)


def _added_bits(kernel: Kernel, address: Operand, value: Operand, element: str) -> Operand:
    """Adds to a float that travels as its bits, until no other thread was in between."""
    lanes, writer, kind = kernel.lanes, kernel.writer, LLVM_TYPES[element]
    first = writer.effect(f"load atomic {kind}, {address} seq_cst, align 2", kind)
    with writer.while_loop([first]) as (phis, test, repeat, results):
        a, b = (as_f32(lanes, x, element) for x in (phis[0], value))
        wanted = from_f32(lanes, lanes.binary("fadd", a, b), element)
        exchange = f"cmpxchg {address}, {phis[0]}, {wanted} seq_cst seq_cst"
        made = writer.effect(exchange, f"{{ {kind}, i1 }}")
        old = writer.effect(f"extractvalue {made}, 0", kind)
        is_done = writer.effect(f"extractvalue {made}, 1", "i1")
        test(writer.effect(f"xor {is_done}, true", "i1"), [old])
        repeat([old])
    return results[0]


def histogram(kernel: Kernel, operation: Operation) -> None:
    """`tt.histogram(values, mask?)`: how many values are each number below that of the bins.

    Values beyond the bins, of which Triton says nothing, are counted nowhere.
    """
    result, values = operation.results[0], operation.operands[0]
    mask = operation.operands[1] if len(operation.operands) > 1 else None
    (bins,) = result.type.shape or (1,)
    kind = LLVM_TYPES[result.type.element]
    buffer = new_buffer(kernel, result)
    zero = integer(0, result.type.element)
    tiles.run(kernel, buffer.shape, lambda at: memory.write_buffer(kernel, buffer, at, zero))

    def body(index: Index) -> None:
        lanes, writer = kernel.lanes, kernel.writer
        value = lanes.cast("zext", lanes.operand(kernel.at(values, index)), "i64")
        is_counted = writer.emit(f"icmp ult {value}, {bins}", "i1", [value])
        if mask is not None:
            is_counted = lanes.binary("and", is_counted, lanes.operand(kernel.at(mask, index)))
        text = f"getelementptr {kind}, {buffer.base}, {value}"
        place = writer.emit(text, "ptr", [buffer.base, value])
        safe = kernel.bin()
        place = writer.emit(f"select {is_counted}, {place}, {safe}", "ptr", [is_counted, place])
        count = writer.effect(f"load {kind}, {place}", kind)
        more = writer.effect(f"add {count}, 1", kind)
        writer.effect(f"store {more}, {place}")

    each_element(kernel, values.type.shape or (), body)
    kernel.buffers[result] = buffer._replace(min_depth=kernel.writer.depth)


def vectors_of(
    kernel: Kernel, values: list[Value], lane: int | None, cuts: Sequence[Conjunct]
) -> int:
    """How many vectors of elements a store computes side by side over contiguous memory, along
    dimension `lane`: up to four for long expressions of f32 and for long sums of products of what
    is loaded; else one.

    An element of a long expression waits for one instruction after the other, and a processor looks
    only so far ahead: it does not reach the next turn of the loop. Vectors in one turn, instruction
    by instruction, wait together; constants that have no register left are read from memory by the
    instructions that need them. What all lanes of sums are multiplied by is read once for them.
    """
    shape, width = values[0].type.shape or (), kernel.isa.lanes
    if lane is None or kernel.pending or shape[lane] < 2 * width:
        return 1
    walk, longest = _walked(kernel, values, lane, 2 * width)
    if not walk.is_fit or longest < LONG:
        return 1
    if 2 * min(walk.loads, walk.factors) >= longest:
        return min(MOST_SUMS, shape[lane] // width)
    ends = [cut.bound.upper.constant for cut in cuts if cut.bound.dim == lane]
    extent = min([shape[lane], *(end for end in ends if end is not None)])
    return next((vectors for vectors, least in SIDE_BY_SIDE if extent >= least * width), 1)


def vectors_across(kernel: Kernel, values: Sequence[Value], lane: int) -> int:
    """How many vectors of partial results a reduction along another dimension has at a time: as
    many as there are registers for, so that a row of memory is read in long pieces and additions
    do not wait for each other; one where the expressions behind need registers of their own."""
    shape, width = values[0].type.shape or (), kernel.isa.lanes
    registers = sum(max(1, ITEMSIZE_BYTES[value.type.element] // 4) for value in values)
    most = 1 << max(0, (MOST_ACROSS // registers).bit_length() - 1)
    vectors = min(most, shape[lane] // width)
    if vectors < 2:
        return 1
    walk = _Walk(kernel, types=NUMBERS)
    longest = _walked(kernel, values, lane, vectors * width, walk)[1]
    return vectors if walk.is_fit and longest <= SHORT else 1


def longest_from_memory(
    kernel: Kernel,
    values: Sequence[Value],
    lane: int,
    width: int,
    *,
    takes_buffers: bool = False,
    in_runs: Collection[Value] = (),
) -> float | None:
    """Instructions on the longest way from memory to one of the values, which read contiguous
    memory along `lane`; None where they read other memory or have other types. takes_buffers: what
    stands in scratch counts as memory too; in_runs: so do these places of loads."""
    walk = _Walk(kernel, takes_buffers, in_runs)
    longest = _walked(kernel, values, lane, width, walk)[1]
    return longest if walk.is_fit else None


def _walked(
    kernel: Kernel,
    values: Sequence[Value],
    lane: int,
    width: int,
    walk: _Walk | None = None,
) -> tuple[_Walk, float]:
    """The walk through the expressions behind values, and the longest way."""
    shape = values[0].type.shape or ()
    with kernel.width(width), kernel.probe() as depth:
        mark = kernel.lanes.atom(Operand("%place", "i32", depth), "i32", width, natural=True)
        index = [integer(0)] * len(shape)
        index[lane] = Int("i32", mark.base, Linear((), 1))
        walk = walk or _Walk(kernel)
        longest = max(walk.length(value, tuple(index)) for value in values)
    return walk, longest


@dataclass(slots=True)
class _Walk:
    """Goes through the expressions behind values; `is_fit` until one has other memory or types."""

    kernel: Kernel
    takes_buffers: bool = False
    in_runs: Collection[Value] = ()
    types: Collection[str] = NARROW
    is_fit: bool = True
    loads: int = 0
    """Of neighbouring elements."""
    factors: int = 0
    """Loads of one element for all lanes."""
    known: dict[tuple[Value, Index], float] = field(default_factory=dict)

    def length(self, value: Value, index: Index) -> float:
        """Instructions on the longest way from memory to the value."""
        key = (value, index)
        if key not in self.known:
            self.known[key] = 0
            self.known[key] = self._length(value, index)
        return self.known[key]

    def _length(self, value: Value, index: Index) -> float:
        made = value.owner
        if made is None or not value.type.is_tensor or not self.is_fit:
            return 0
        if value in self.kernel.buffers:
            place = memory.buffer_pointer(self.kernel, self.kernel.buffers[value], index)
            self.is_fit = self.takes_buffers and self._is_even(place)
            return 0
        if made.name == "tt.load":
            pointer = made.operands[0]
            self.is_fit = pointer in self.in_runs or self._is_even(self.kernel.at(pointer, index))
            return 0
        if made.name in VIEWS:
            return self.length(*VIEWS[made.name](self.kernel, made, value, index))
        if made.name in RULES:
            self.is_fit = value.type.element in self.types
            return COSTS.get(made.name, 1) + max(self.length(x, index) for x in made.operands)
        self.is_fit = made.name in ("arith.constant", "tt.splat", "tt.make_range")
        return 0

    def _is_even(self, found: Lane) -> bool:
        """Whether the lanes read neighbouring elements, or all the same one."""
        if isinstance(found, Pointer) and found.offset.is_uniform:
            self.factors += 1
            return True
        self.loads += 1
        return memory.is_contiguous(found)
