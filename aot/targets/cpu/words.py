"""Operands of products by words: neighbours along the inner dimension in four bytes.

Instructions that multiply and add several neighbours at once (tiles, `VDPBF16PS`, `VPDPBUSD`) take
the left operand as rows lie in memory, and the right one with pairs of rows (fours of 8-bit ones)
side by side: element (k, n) stands in row k / 2, at place 2n + k mod 2. A right operand that
stands in memory so is read there; every other is copied into that order, a strip at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from aotc.aot.targets.cpu import copies, memory, operands, tiles
from aotc.aot.targets.cpu.evaluate import Kernel
from aotc.aot.targets.cpu.lanes import ITEMSIZE_BYTES, shuffled
from aotc.aot.targets.cpu.linear import Int, Linear, integer
from aotc.aot.targets.cpu.memory import Buffer
from aotc.aot.targets.cpu.ttir import Operation, Value
from aotc.aot.targets.cpu.writer import Operand, constant

WORD_BYTES = 4
SIGNS = -0x7F7F7F80  # the sign of each byte of a word


class Order(NamedTuple):
    """What is copied of a right operand: its depth and so many columns."""

    element: str
    depth: int
    columns: int

    @property
    def item_bytes(self) -> int:
        return ITEMSIZE_BYTES[self.element]

    @property
    def pack(self) -> int:
        """Elements of a word."""
        return WORD_BYTES // self.item_bytes


class Matrix(NamedTuple):
    """An operand in memory: where the tile at (row, inner) or (inner, column) begins."""

    address: Callable[[Int, Int], Operand]
    stride_bytes: int
    """From one row of a tile to the next."""
    is_streamed: bool = False
    """What follows in memory is read next: in the loop around, or by the next program."""


class Copy(NamedTuple):
    """A right operand that has to be copied: memory for a strip of it in the order of words."""

    value: Value
    buffer: Buffer


def right_in_place(
    kernel: Kernel, value: Value, order: Order, block: tuple[int, int]
) -> Matrix | None:
    """The right operand if it stands in memory in the order of words: in each block of so many rows
    and columns. The depth of the order may be less than all: its mask holds there."""
    is_cut = order.depth < (value.type.shape or (0,))[0]
    load = operands.plain_load(kernel, value, is_cut=is_cut)
    if load is None:
        return None
    step = operands.word_step(kernel, load.operands[0], order.pack, block)
    return None if step is None else of_load(kernel, load, step)._replace(is_streamed=True)


def of_buffer(kernel: Kernel, buffer: Buffer) -> Matrix:
    stride_bytes = buffer.shape[1] * ITEMSIZE_BYTES[buffer.element]

    def address(row: Int, place: Int) -> Operand:
        return kernel.lanes.operand(memory.buffer_pointer(kernel, buffer, (row, place)))

    return Matrix(address, stride_bytes)


def of_load(kernel: Kernel, load: Operation, step: int) -> Matrix:
    def address(row: Int, place: Int) -> Operand:
        return kernel.lanes.operand(kernel.at(load.operands[0], (row, place)))

    return Matrix(address, step * ITEMSIZE_BYTES[load.results[0].type.element])


def copy_of(kernel: Kernel, value: Value, order: Order) -> Copy:
    """Memory for strips of a right operand."""
    size = (order.depth // order.pack, order.columns * order.pack)
    base = kernel.allocate(order.item_bytes * size[0] * size[1])
    return Copy(value, Buffer(base, size, order.element, kernel.writer.depth))


def copied_strip(
    kernel: Kernel, order: Order, right: Copy, column: Int, *, flips: bool = False
) -> Matrix:
    """A strip of the right operand, copied into the order of words; `flips` the bytes' signs: then
    they are unsigned, and larger by 128."""
    if tiles.lane_dimension(kernel, right.value) == 0:
        _copy_along_depth(kernel, order, right, column, flips)
    else:
        _copy_along_columns(kernel, order, right, column, flips)
    buffer = right.buffer._replace(min_depth=kernel.writer.depth)
    found = of_buffer(kernel, buffer)

    def address(inner: Int, place: Int) -> Operand:
        lanes = kernel.lanes
        words = lanes.divide(inner, integer(order.pack), remainder=False)
        own = lanes.add(place, column, -1)
        return found.address(words, lanes.multiply(own, integer(order.pack)))

    return Matrix(address, found.stride_bytes)


def _copy_along_columns(
    kernel: Kernel, order: Order, right: Copy, column: Int, flips: bool
) -> None:
    """Neighbours in memory are columns: rows are read by vectors, whose elements take turns."""
    width = min(2 * kernel.isa.lanes, order.columns)
    words = constant(order.depth // order.pack, "i32")
    with kernel.width(width), kernel.writer.loop(words, 1, may_skip=False) as loop:
        lanes = kernel.lanes
        word = lanes.atom(loop.counter, "i32", natural=True)
        first = lanes.multiply(word, integer(order.pack))
        for start in range(0, order.columns, width):
            place = Int("i32", lanes.add(column, integer(start)).base, Linear((), 1))
            rows = [
                lanes.splat(lanes.operand(kernel.at(right.value, (at, place))))
                for at in (lanes.add(first, integer(each)) for each in range(order.pack))
            ]
            while len(rows) > 1:  # of four rows the first and the third meet first
                half = len(rows) // 2
                pairs = zip(rows[:half], rows[half:], strict=True)
                rows = [_interleaved(kernel, *pair) for pair in pairs]
            target = word, integer(start * order.pack)
            _write(kernel, right.buffer, target, flipped(kernel, rows[0]) if flips else rows[0])


def _interleaved(kernel: Kernel, first: Operand, other: Operand) -> Operand:
    """Elements of two vectors in turns."""
    count = int(first.type[1:].partition(" ")[0])
    places = [each // 2 + (each % 2) * count for each in range(2 * count)]
    return shuffled(kernel.writer, [first, other], places)


def _copy_along_depth(kernel: Kernel, order: Order, right: Copy, column: Int, flips: bool) -> None:
    """Neighbours in memory are along the inner dimension: squares of words are transposed."""
    size = min(kernel.isa.lanes, order.depth // order.pack, order.columns)
    with kernel.width(size * order.pack):
        lanes, writer = kernel.lanes, kernel.writer
        depth, columns = constant(order.depth, "i32"), constant(order.columns, "i32")
        with writer.loop(columns, size, may_skip=False) as across:
            own = lanes.atom(across.counter, "i32", size, natural=True)
            with writer.loop(depth, size * order.pack, may_skip=False) as down:
                inner = lanes.atom(down.counter, "i32", size * order.pack, natural=True)
                along = Int("i32", inner.base, Linear((), 1))
                square = []
                for each in range(size):
                    place = lanes.add(lanes.add(column, own), integer(each))
                    found = lanes.splat(lanes.operand(kernel.at(right.value, (along, place))))
                    kind = f"<{size} x i32>"
                    square.append(writer.emit(f"bitcast {found} to {kind}", kind, [found]))
                first = lanes.divide(inner, integer(order.pack), remainder=False)
                start = lanes.multiply(own, integer(order.pack))
                for each, row in enumerate(copies.transposed_block(kernel, square)):
                    target = lanes.add(first, integer(each)), start
                    _write(kernel, right.buffer, target, flipped(kernel, row) if flips else row)


def flipped(kernel: Kernel, row: Operand) -> Operand:
    """A vector of bytes, or of words of them, with the sign of each byte flipped."""
    bits = "i8 -128" if row.type.endswith("i8>") else f"i32 {SIGNS}"
    return kernel.writer.emit(f"xor {row}, splat ({bits})", row.type, [row])


def _write(kernel: Kernel, buffer: Buffer, index: tuple[Int, Int], row: Operand) -> None:
    address = kernel.lanes.operand(memory.buffer_pointer(kernel, buffer, index))
    kernel.writer.effect(f"store {row}, {address}, align {WORD_BYTES}")
