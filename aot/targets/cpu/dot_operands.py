"""Operands of the dot's microkernel: where they are read, and their copies in scratch.

A plain load is read where it stands if its rows follow each other closely. Rows far apart would
share the few lines that the nearest cache has for addresses alike, and take an entry of the table
of pages each; they are copied next to each other first, as is all that is computed.
"""

from __future__ import annotations

from typing import NamedTuple

from aotc.aot.targets.cpu import memory, sinks, tiles
from aotc.aot.targets.cpu.evaluate import Buffer, Index, Kernel
from aotc.aot.targets.cpu.lanes import ITEMSIZE_BYTES, Int, Linear, Pointer, integer
from aotc.aot.targets.cpu.operands import as_f32
from aotc.aot.targets.cpu.ttir import Value
from aotc.aot.targets.cpu.writer import Operand, constant

FEWEST_ROWS = 16  # of a product, from which a copy of B costs little beside its multiplications
NEAR_BYTES = 16 * 1024  # what the rows of an operand may span to stay in the nearest cache


class Side(NamedTuple):
    """An operand that the microkernel can read: a lazy load or a buffer, by (row, column)."""

    value: Value | None
    buffer: Buffer | None
    is_turned: bool = False
    """Whether the buffer has the operand's columns as its rows."""

    def at(self, kernel: Kernel, index: Index) -> Operand:
        if self.is_turned:
            index = index[::-1]
        if self.buffer is not None:
            return kernel.lanes.operand(memory.read_buffer(kernel, self.buffer, index))
        assert self.value is not None
        return kernel.lanes.operand(kernel.at(self.value, index))


def side(kernel: Kernel, value: Value, wide: str, rows: int, *, is_left: bool) -> Side:
    """An operand of a product of so many rows, as elements of type `wide`."""
    turned = _turned(kernel, value) if is_left else None
    if turned is not None:
        found = side(kernel, turned, wide, rows, is_left=False)
        if found.buffer is not None:
            return found._replace(is_turned=True)
    if (
        value in kernel.buffers
        and kernel.buffers[value].element == wide
        and not kernel.buffers[value].bounds
    ):
        return Side(None, kernel.buffers[value])
    if value.type.element == wide and _is_direct(kernel, value, rows, is_left):
        return Side(value, None)
    return Side(None, _widened(kernel, value, wide))


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
    stride = _depth_stride(kernel, load.operands[0], is_left)
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


def _depth_stride(kernel: Kernel, pointer: Value, is_left: bool) -> int | None:
    """Elements from one place of the inner dimension to the next; None where that varies."""
    with kernel.width(1), kernel.writer.probe() as depth:
        inner = Operand("%inner", "i32", depth)
        mark = kernel.lanes.atom(inner, "i32", natural=True)
        found = kernel.at(pointer, (integer(0), mark) if is_left else (mark, integer(0)))
        if not isinstance(found, Pointer) or found.base.depth == depth:
            return None
        varying = [row for row in found.offset.base.terms if row[0].operand.depth == depth]
        if len(varying) > 1 or any(atom.origin != inner for atom, _ in varying):
            return None
        return sum(coefficient for _, coefficient in varying)


def _widened(kernel: Kernel, value: Value, wide: str) -> Buffer:
    """Computes an operand into scratch, in the accumulator's input type."""
    shape = value.type.shape or ()
    buffer = Buffer(
        kernel.allocate(ITEMSIZE_BYTES[wide] * shape[0] * shape[1]),
        shape,
        wide,
        kernel.writer.depth,
    )
    lane = tiles.lane_dimension(kernel, value)
    block = min(kernel.isa.lanes, *shape)
    if lane == 0 and block == kernel.isa.lanes and value not in kernel.pending:
        _write_transposed(kernel, value, buffer, block)
    else:
        _write_widened(kernel, value, buffer, lane)
    return buffer._replace(floor=kernel.writer.depth)


def _write_widened(kernel: Kernel, value: Value, buffer: Buffer, lane: int) -> None:
    filling = sinks.Filling(kernel, buffer.shape)

    def body(index: Index) -> None:
        filling.enter(index)
        found = _widen(kernel, kernel.lanes.operand(kernel.at(value, index)), value, buffer)
        memory.write(
            kernel, memory.buffer_pointer(kernel, buffer, index), found, buffer.element, None
        )

    tiles.run(kernel, buffer.shape, body, lane_dim=lane)
    filling.finish([])


def _write_transposed(kernel: Kernel, value: Value, buffer: Buffer, block: int) -> None:
    """An operand that is contiguous down its columns: read by columns, turned over in registers.

    A block of `block` × `block` elements takes that many reads, shuffles · log2 and writes.
    """
    rows, columns = buffer.shape
    with kernel.width(block):
        lanes = kernel.lanes
        with kernel.writer.loop(constant(rows, "i32"), block, may_skip=False) as down:
            down.next_values = []
            row = lanes.atom(down.counter, "i32", block, natural=True)
            with kernel.writer.loop(constant(columns, "i32"), block, may_skip=False) as across:
                across.next_values = []
                column = lanes.atom(across.counter, "i32", block, natural=True)
                vectors = []
                for i in range(block):
                    index = (Int("i32", row.base, Linear((), 1)), lanes.add(column, integer(i)))
                    found = lanes.splat(lanes.operand(kernel.at(value, index)))
                    vectors.append(_widen(kernel, found, value, buffer))
                for i, vector in enumerate(_transpose(kernel, vectors)):
                    index = (lanes.add(row, integer(i)), Int("i32", column.base, Linear((), 1)))
                    place = memory.buffer_pointer(kernel, buffer, index)
                    memory.write(kernel, place, vector, buffer.element, None)


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
