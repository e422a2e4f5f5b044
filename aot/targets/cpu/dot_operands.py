"""Operands of the dot's microkernel: where they are read, and their copies in scratch.

A plain load is read where it stands if its rows follow each other closely. Rows far apart would
share the few lines that the nearest cache has for addresses alike, and take an entry of the table
of pages each; they are copied next to each other first, as is all that is computed.
"""

from __future__ import annotations

from typing import NamedTuple

from aotc.aot.targets.cpu import memory, root_ops, tiles
from aotc.aot.targets.cpu.evaluate import Kernel
from aotc.aot.targets.cpu.lanes import ITEMSIZE_BYTES, as_f32
from aotc.aot.targets.cpu.linear import Int, Linear, Pointer, integer
from aotc.aot.targets.cpu.memory import Buffer, Index
from aotc.aot.targets.cpu.ttir import Operation, Value
from aotc.aot.targets.cpu.writer import Operand, constant

FEWEST_ROWS = 16  # of a product, from which a copy of B costs little beside its multiplications
LINE_BYTES = 64  # of the cache
NEAR_BYTES = 16 * 1024  # what the rows of an operand may span to stay in the nearest cache


class Side(NamedTuple):
    """An operand that the microkernel can read: a lazy load or a buffer, by (row, column).

    One that has to be copied and is not yet has neither: see `strip`.
    """

    value: Value
    wide: str
    """Type of the elements that are multiplied."""
    buffer: Buffer | None = None
    is_direct: bool = False
    is_turned: bool = False
    """The buffer holds the columns one after the other."""
    start: Int | None = None
    """The buffer's first column, if not the operand's own first."""

    def at(self, kernel: Kernel, index: Index) -> Operand:
        """The element, or the lanes, at an index of the operand."""
        if self.buffer is None:
            return kernel.lanes.operand(kernel.at(self.value, index))
        row, column = index
        if self.start is not None:
            column = kernel.lanes.add(column, self.start, -1)
        place = (column, row) if self.is_turned else (row, column)
        return kernel.lanes.operand(memory.read_buffer(kernel, self.buffer, place))

    def strip(self, kernel: Kernel, column: Int, columns: int) -> Side:
        """The operand with so many columns from `column` on copied, where it must be copied."""
        if self.is_direct or self.buffer is not None:
            return self
        start = None if column.constant == 0 else column
        buffer = _widened(kernel, self, columns, start)
        return self._replace(buffer=buffer, start=start)


def side(kernel: Kernel, dot: Operation, rows: int, *, is_left: bool) -> Side:
    """An operand of a product of so many rows; the left one is copied at once, if at all."""
    value = dot.operands[0 if is_left else 1]
    found = _known(kernel, Side(value, dot.results[0].type.element))
    if found.buffer is not None:
        return found
    turned = _turned(kernel, value) if is_left else None
    if turned is not None:
        source = _known(kernel, Side(turned, found.wide))
        columns = (turned.type.shape or ())[1]
        return source.strip(kernel, integer(0), columns)._replace(is_turned=True)
    if value.type.element == found.wide and _is_direct(kernel, value, rows, is_left):
        return found._replace(is_direct=True)
    if not is_left:
        return found
    shape = value.type.shape or ()
    is_turned = rows >= FEWEST_ROWS and tiles.lane_dimension(kernel, value) == 0
    return found._replace(is_turned=is_turned).strip(kernel, integer(0), shape[1])


def _known(kernel: Kernel, operand: Side) -> Side:
    """The operand with the buffer that it stands in already, if that serves."""
    known = kernel.buffers.get(operand.value)
    if known is None or known.element != operand.wide or known.bounds:
        return operand
    return operand._replace(buffer=known)


def _turned(kernel: Kernel, value: Value) -> Value | None:
    """x where the left operand is the transposed x and x is computed: it is read by elements, so
    that any order serves."""
    made = value.owner
    if made is None or made.name != "tt.trans" or value in kernel.buffers:
        return None
    source = made.operands[0]
    behind = source.owner
    is_load = behind is not None and behind.name == "tt.load"
    return None if is_load and source not in kernel.buffers else source


def _is_direct(kernel: Kernel, value: Value, rows: int, is_left: bool) -> bool:
    """Whether the operand is best read where it stands.

    It is an unmasked load whose address is linear in the inner dimension; B's rows are contiguous.
    """
    load = value.owner
    if load is None or load.name != "tt.load" or len(load.operands) > 1 or value in kernel.pending:
        return False
    stride = _stride(kernel, load.operands[0], 1 if is_left else 0)
    if stride is None:
        return False
    shape = value.type.shape or ()
    item_bytes = ITEMSIZE_BYTES[value.type.element]
    if is_left:
        return abs(stride) <= 1 or rows < FEWEST_ROWS
    columns = shape[1]
    is_packed = stride == columns or abs(stride) * shape[0] * item_bytes <= NEAR_BYTES
    if rows >= FEWEST_ROWS and not is_packed:
        return False
    width = min(kernel.isa.lanes, columns)
    with kernel.width(width), kernel.writer.probe() as depth:
        mark = kernel.lanes.atom(Operand("%column", "i32", depth), "i32", width, natural=True)
        column = Int("i32", mark.base, Linear((), 1) if width > 1 else Linear())
        pointer = kernel.at(load.operands[0], (integer(0), column))
        return width == 1 or memory.is_contiguous(pointer)


def _stride(kernel: Kernel, pointer: Value, dim: int) -> int | None:
    """Elements from one place of a dimension to the next; None where that varies."""
    with kernel.width(1), kernel.writer.probe() as depth:
        place = Operand("%place", "i32", depth)
        index = [integer(0), integer(0)]
        index[dim] = kernel.lanes.atom(place, "i32", natural=True)
        found = kernel.at(pointer, tuple(index))
        if not isinstance(found, Pointer) or found.base.depth == depth:
            return None
        varying = [row for row in found.offset.base.terms if row[0].operand.depth == depth]
        if len(varying) > 1 or any(atom.origin != place for atom, _ in varying):
            return None
        return sum(factor for _, factor in varying)


def _widened(kernel: Kernel, operand: Side, columns: int, start: Int | None) -> Buffer:
    """Computes some columns of an operand into scratch, in the accumulator's input type."""
    value = operand.value
    shape = ((value.type.shape or ())[0], columns)
    item_bytes = ITEMSIZE_BYTES[operand.wide]
    # A line more than a column has: steps of a power of two would share a few places of the cache.
    place = (columns, shape[0] + LINE_BYTES // item_bytes) if operand.is_turned else shape
    memory_bytes = item_bytes * place[0] * place[1]
    buffer = Buffer(kernel.allocate(memory_bytes), place, operand.wide, kernel.writer.depth)
    lane = tiles.lane_dimension(kernel, value)
    block = min(kernel.isa.lanes, *shape)
    is_whole = block == kernel.isa.lanes and value not in kernel.pending
    if lane == 0 and not operand.is_turned and is_whole:
        _write_transposed(kernel, value, buffer, block, start or integer(0))
    else:
        _write_widened(kernel, operand, buffer, shape, lane, start)
    return buffer._replace(min_depth=kernel.writer.depth)


def _write_widened(
    kernel: Kernel,
    operand: Side,
    buffer: Buffer,
    shape: tuple[int, int],
    lane: int,
    start: Int | None,
) -> None:
    filling = root_ops.Filling(kernel, shape) if start is None else None

    def body(index: Index) -> None:
        if filling is not None:
            filling.enter(index)
        row, column = index
        moved = column if start is None else kernel.lanes.add(column, start)
        found = kernel.lanes.operand(kernel.at(operand.value, (row, moved)))
        found = _widen(kernel, found, operand.value, buffer)
        place = (column, row) if operand.is_turned else (row, column)
        pointer = memory.buffer_pointer(kernel, buffer, place)
        memory.write(kernel, pointer, found, buffer.element, None)

    tiles.run(kernel, shape, body, lane_dim=lane)
    if filling is not None:
        filling.finish([])


def _write_transposed(kernel: Kernel, value: Value, buffer: Buffer, block: int, start: Int) -> None:
    """An operand that is contiguous down its columns: read by columns, transposed in registers.

    A block of `block` × `block` elements takes that many reads, shuffles · log2 and writes. A few
    columns are read to their end, one block after the other: the processor sees how they go on.
    """
    rows, columns = buffer.shape
    with kernel.width(block):
        lanes = kernel.lanes
        with kernel.writer.loop(constant(columns, "i32"), block, may_skip=False) as across:
            across.next_values = []
            column = lanes.atom(across.counter, "i32", block, natural=True)
            with kernel.writer.loop(constant(rows, "i32"), block, may_skip=False) as down:
                down.next_values = []
                row = lanes.atom(down.counter, "i32", block, natural=True)
                vectors = []
                for i in range(block):
                    place = lanes.add(lanes.add(column, start), integer(i))
                    index = (Int("i32", row.base, Linear((), 1)), place)
                    found = lanes.splat(lanes.operand(kernel.at(value, index)))
                    vectors.append(_widen(kernel, found, value, buffer))
                for i, vector in enumerate(_transpose(kernel, vectors)):
                    index = (lanes.add(row, integer(i)), Int("i32", column.base, Linear((), 1)))
                    pointer = memory.buffer_pointer(kernel, buffer, index)
                    memory.write(kernel, pointer, vector, buffer.element, None)


def _transpose(kernel: Kernel, vectors: list[Operand]) -> list[Operand]:
    """Turns a square block over: exchanges ever larger halves of pairs of vectors."""
    size = len(vectors)
    current = list(vectors)
    step = 1
    while step < size:
        for i in range(size):
            if i & step:
                continue
            a, b = current[i], current[i + step]
            low = [p if not p & step else size + p - step for p in range(size)]
            high = [p + step if not p & step else size + p for p in range(size)]
            current[i], current[i + step] = (_shuffle(kernel, a, b, x) for x in (low, high))
        step *= 2
    return current


def _shuffle(kernel: Kernel, a: Operand, b: Operand, picks: list[int]) -> Operand:
    mask = ", ".join(f"i32 {p}" for p in picks)
    return kernel.writer.emit(
        f"shufflevector {a}, {b}, <{len(picks)} x i32> <{mask}>", a.type, [a, b]
    )


def _widen(kernel: Kernel, operand: Operand, value: Value, buffer: Buffer) -> Operand:
    """A lane value of the operand in the type that the microkernel multiplies."""
    narrow, wide = value.type.element, buffer.element
    if wide == "i32":
        return operand if narrow == wide else kernel.lanes.cast("sext", operand, "i32")
    found = as_f32(kernel.lanes, operand, narrow)
    return (
        kernel.lanes.cast("fpext", found, "double") if wide == "f64" and narrow != "f64" else found
    )
