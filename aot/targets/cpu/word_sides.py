"""Operands of products by vector instructions that multiply by words.

A word of the left operand is repeated in a vector, and the right one gives a word for each column
(Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2):

- `VDPBF16PS` adds two products of bf16 to each f32. It takes subnormal inputs as zeros and gives no
  subnormal sums.
- `VPDPBUSD` adds four products of an unsigned by a signed byte to each i32. Both operands of ours
  are signed, so the right one gets 128 added to each byte, Σ a · (b + 128) = Σ a · b + 128 · Σ a,
  and the last term, the same for all columns, is taken off before.
- `VPMADDWD` multiplies pairs of i16: bytes 0 and 2 of a word, and bytes 1 and 3, each widened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from aotc.aot.targets.cpu import copies, operands, root_ops, words
from aotc.aot.targets.cpu.evaluate import Kernel
from aotc.aot.targets.cpu.lanes import ITEMSIZE_BYTES
from aotc.aot.targets.cpu.linear import Int
from aotc.aot.targets.cpu.memory import Index
from aotc.aot.targets.cpu.ttir import Operation, Value
from aotc.aot.targets.cpu.words import WORD_BYTES, Copy, Matrix, Order
from aotc.aot.targets.cpu.writer import Operand, constant

FEWEST_ROWS = 4  # of a product, from which a copy of the right operand pays
FEWEST_LANES = 4  # of the instructions
LINE_BYTES = 64  # of the cache
BYTES_OF_ONE = 0x01010101


Added = Callable[[Kernel, Operand, Operand, Operand], Operand]


class Instruction(NamedTuple):
    """What multiplies words of one element type."""

    total: str
    """Type of the sums."""
    pack: int
    """Elements of a word."""
    added: Added
    """(left, right, total) → total + Σ left · right, word by word; all are vectors."""
    is_unsigned: bool = False
    """The right operand's bytes have 128 added to them."""


def _of_bf16(kernel: Kernel, left: Operand, right: Operand, total: Operand) -> Operand:
    bits = 8 * WORD_BYTES * kernel.lanes.width
    factors = [_as(kernel, each, 2, "bfloat") for each in (right, left)]
    name = f"llvm.x86.avx512bf16.dpbf16ps.{bits}"
    return kernel.writer.call(name, total.type, [total, *factors])


def _of_bytes(kernel: Kernel, left: Operand, right: Operand, total: Operand) -> Operand:
    bits = 8 * WORD_BYTES * kernel.lanes.width
    factors = [_as(kernel, each, 4, "i8") for each in (right, left)]
    return kernel.writer.call(f"llvm.x86.avx512.vpdpbusd.{bits}", total.type, [total, *factors])


def _of_pairs(kernel: Kernel, left: Operand, right: Operand, total: Operand) -> Operand:
    writer, lanes = kernel.writer, kernel.lanes
    (first, odd), (second, other) = (_halves(kernel, each) for each in (left, right))
    for pair in ((first, second), (odd, other)):
        total = lanes.binary("add", writer.call(MADD[lanes.width], total.type, pair), total)
    return total


def _halves(kernel: Kernel, word: Operand) -> tuple[Operand, Operand]:
    """Bytes 0 and 2 of each word, and bytes 1 and 3, as i16."""
    halves, writer = _as(kernel, word, 2, "i16"), kernel.writer
    moved = writer.emit(f"shl {halves}, splat (i16 8)", halves.type, [halves])
    even, odd = (
        writer.emit(f"ashr {each}, splat (i16 8)", halves.type, [each]) for each in (moved, halves)
    )
    return even, odd


def _as(kernel: Kernel, word: Operand, pack: int, element: str) -> Operand:
    kind = f"<{pack * kernel.lanes.width} x {element}>"
    return kernel.writer.emit(f"bitcast {word} to {kind}", kind, [word])


MADD = {
    4: "llvm.x86.sse2.pmadd.wd",
    8: "llvm.x86.avx2.pmadd.wd",
    16: "llvm.x86.avx512.pmaddw.d.512",
}
"""By words of a vector."""
INSTRUCTIONS = {
    "vdpbf16ps": Instruction("f32", 2, _of_bf16),
    "vpdpbusd": Instruction("i32", 4, _of_bytes, is_unsigned=True),
    "vpmaddwd": Instruction("i32", 4, _of_pairs),
}
"""By the names that `Isa.multiplies_words` gives."""


class Left(NamedTuple):
    """The left operand by words, each of one row."""

    matrix: Matrix
    item_bytes: int
    depth: int
    instruction: Instruction
    min_depth: int

    def at(self, kernel: Kernel, index: Index) -> Operand:
        """The word that begins at an index of the operand, in all lanes."""
        address = kernel.lanes.operand(self.matrix.address(*index))
        text = f"load i32, {address}, align {self.item_bytes}"
        return kernel.lanes.splat(kernel.writer.load(text, "i32", [address], self.min_depth))

    def before(self, kernel: Kernel, row: Int) -> Operand | None:
        """What is added to a row's sums because of the right operand's 128; None: nothing."""
        if not self.instruction.is_unsigned:
            return None
        count = min(kernel.isa.lanes, self.depth * self.item_bytes // WORD_BYTES)
        with kernel.width(count):
            lanes, writer = kernel.lanes, kernel.writer
            kind = lanes.vector_type("i32")
            ones = lanes.splat(constant(BYTES_OF_ONE, "i32"))
            zero = constant("zeroinitializer", kind)
            step = count * WORD_BYTES // self.item_bytes
            limit = constant(self.depth, "i32")
            with writer.loop(limit, step, [zero], may_skip=False) as loop:
                inner = lanes.atom(loop.counter, "i32", step, natural=True)
                address = lanes.operand(self.matrix.address(row, inner))
                text = f"load {kind}, {address}, align {self.item_bytes}"
                row_words = writer.load(text, kind, [address], self.min_depth)
                (total,) = loop.carried
                loop.next_values = [self.instruction.added(kernel, row_words, ones, total)]
            found = writer.call(f"llvm.vector.reduce.add.v{count}i32", "i32", [loop.results[0]])
        with kernel.width(1):
            return kernel.lanes.binary("mul", found, constant(-128, "i32"))


class Right(NamedTuple):
    """The right operand by words, a lane for each column; a copy has no place before `strip`."""

    value: Value
    order: Order
    matrix: Matrix | None
    copy: Copy | None
    is_unsigned: bool
    min_depth: int

    @property
    def is_direct(self) -> bool:
        return self.copy is None

    def at(self, kernel: Kernel, index: Index) -> Operand:
        """The words that begin at a row of the operand."""
        assert self.matrix is not None
        inner, column = index
        address = kernel.lanes.operand(self.matrix.address(inner, Int("i32", column.base)))
        kind = kernel.lanes.vector_type("i32")
        text = f"load {kind}, {address}, align {self.order.item_bytes}"
        found = kernel.writer.load(text, kind, [address], self.min_depth)
        return words.flipped(kernel, found) if self.is_unsigned and self.is_direct else found

    def strip(self, kernel: Kernel, column: Int, columns: int) -> Right:
        """The operand with the columns from `column` on copied, where it must be copied."""
        if self.copy is None:
            return self
        flips = self.is_unsigned
        made = words.copied_strip(kernel, self.order, self.copy, column, flips=flips)
        return self._replace(matrix=made, min_depth=kernel.writer.depth)


def instruction_of(kernel: Kernel, operation: Operation) -> Instruction | None:
    """What multiplies the operands of a `tt.dot` by words; None where the instruction set has
    nothing for them, or the product is too small."""
    left, right = operation.operands[:2]
    element, result = left.type.element, operation.results[0].type
    name, (rows, columns) = dict(kernel.isa.multiplies_words).get(element), result.shape or ()
    if name is None:
        return None
    found, depth = INSTRUCTIONS[name], (left.type.shape or ())[1]
    is_alike = right.type.element == element and result.element == found.total
    if not is_alike or columns < FEWEST_LANES or depth < FEWEST_LANES * found.pack:
        return None
    order = Order(element, depth, columns)
    if rows < FEWEST_ROWS and _in_place(kernel, right, order) is None:
        return None
    return found


def left_of(kernel: Kernel, value: Value, instruction: Instruction, kept: int = 0) -> Left:
    """The left operand where its rows lie element by element, or a copy of it. `kept`: elements of
    a row that are multiplied, if fewer than all."""
    if value in kernel.pending:
        root_ops.force(kernel, value)
    element, (rows, whole) = value.type.element, value.type.shape or (1, 1)
    item_bytes, depth = ITEMSIZE_BYTES[element], kept or whole
    load = operands.plain_load(kernel, value, is_cut=depth < whole)
    if load is not None and operands.step(kernel, load.operands[0], 1, may_be_kept=True) == 1:
        matrix, min_depth = words.of_load(kernel, load, 0), kernel.min_depth(load)
        return Left(matrix, item_bytes, depth, instruction, min_depth)
    known = kernel.buffers.get(value)
    if known is None or known.bounds or known.element != element:
        # A line more than a row has: steps of a power of two would share places of the cache.
        known = copies.copied(kernel, value, (rows, whole + LINE_BYTES // item_bytes))
    matrix = words.of_buffer(kernel, known)
    return Left(matrix, item_bytes, depth, instruction, known.min_depth)


def right_of(
    kernel: Kernel, value: Value, strip_columns: int, instruction: Instruction, kept: int = 0
) -> Right:
    """The right operand where it stands in the order of words, or memory for strips of it. `kept`:
    rows of it that are multiplied, if fewer than all."""
    if value in kernel.pending:
        root_ops.force(kernel, value)
    order = Order(value.type.element, kept or (value.type.shape or ())[0], strip_columns)
    matrix, is_unsigned = _in_place(kernel, value, order), instruction.is_unsigned
    if matrix is not None:
        assert value.owner is not None
        return Right(value, order, matrix, None, is_unsigned, kernel.min_depth(value.owner))
    copy = words.copy_of(kernel, value, order)
    return Right(value, order, None, copy, is_unsigned, kernel.writer.depth)


def is_in_place(kernel: Kernel, right: Value, instruction: Instruction, depth: int) -> bool:
    """Whether the first rows of the right operand stand in the order of words."""
    order = Order(right.type.element, depth, (right.type.shape or (0, 0))[1])
    return depth % instruction.pack == 0 and _in_place(kernel, right, order) is not None


def _in_place(kernel: Kernel, value: Value, order: Order) -> Matrix | None:
    width = min(kernel.isa.lanes, order.columns)
    return words.right_in_place(kernel, value, order, (order.pack, width))
