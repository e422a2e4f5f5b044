"""Stores of what is contiguous in memory along another dimension than the place it goes to.

    store(p + x·n + y, f(load(q + y·m + x)), mask)

Lane by lane, such elements would be gathered or scattered. Here square blocks are read along the
one dimension, transposed in registers and stored along the other: `2 · block` accesses of whole
vectors and `block · log2 block` shuffles. The last block of a dimension ends where the mask does,
and some of its elements are stored twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotc.aot.targets.cpu import copies, memory, root_ops, tiles
from aotc.aot.targets.cpu.evaluate import Kernel
from aotc.aot.targets.cpu.lanes import ITEMSIZE_BYTES, compare
from aotc.aot.targets.cpu.linear import Int, Linear, integer, is_literal, number
from aotc.aot.targets.cpu.memory import Index
from aotc.aot.targets.cpu.ttir import Operation, Value
from aotc.aot.targets.cpu.writer import Operand, constant

MOST_BYTES = 4  # of an element: a block of larger ones does not fit the registers


def read_dimension(kernel: Kernel, store: Operation) -> int | None:
    """The dimension along which the value is contiguous in memory, where its place is not."""
    pointer, value = store.operands[:2]
    shape, element = pointer.type.shape or (), pointer.type.pointee
    block = kernel.isa.lanes
    if len(shape) != 2 or min(shape) < block or kernel.guard is not None:
        return None
    if kernel.pending or element == "i1" or ITEMSIZE_BYTES[element] > MOST_BYTES:
        return None
    stored_dim = tiles.lane_dimension(kernel, pointer)
    read_dim = 1 - stored_dim
    if root_ops.longest_from_memory(kernel, [value], stored_dim, block) is not None:
        return None
    if root_ops.longest_from_memory(kernel, [value], read_dim, block) is None:
        return None
    if tiles.lane_dimension(kernel, value) == read_dim:
        return read_dim
    # Contiguous in runs, within which blocks must begin at multiples of their size.
    return read_dim if _is_whole(kernel, _cuts(kernel, store), read_dim, shape) else None


def _is_whole(
    kernel: Kernel, cuts: Sequence[tiles.Conjunct], dim: int, shape: Sequence[int]
) -> bool:
    """Whether a dimension ends where a block does."""
    block, own = kernel.isa.lanes, [cut for cut in cuts if cut.bound.dim == dim]
    return shape[dim] % block == 0 and tiles.end_at_multiples(own, block)


def _cuts(kernel: Kernel, store: Operation) -> list[tiles.Conjunct]:
    if len(store.operands) < 3:
        return []
    return tiles.conjuncts(kernel, store.operands[2], store.operands[0].type.shape or ())


def store(kernel: Kernel, operation: Operation, read_dim: int) -> None:
    """The store, in square blocks where there is one, else as any other."""
    block, cuts = constant(kernel.isa.lanes, "i32"), _cuts(kernel, operation)
    shape = operation.operands[0].type.shape or ()
    limits = [
        tiles.limit(kernel, [cut for cut in cuts if cut.bound.dim == dim], size)[0]
        for dim, size in enumerate(shape)
    ]

    def by_blocks() -> list[Operand]:
        kept, kernel.active_bounds = kernel.active_bounds, frozenset(cut.bound for cut in cuts)
        _Blocks(kernel, operation, cuts, read_dim).write(limits, shape)
        kernel.active_bounds = kept
        return []

    def otherwise() -> list[Operand]:
        root_ops.store(kernel, [operation])
        return []

    is_large: Operand | None = None
    for limit in limits:
        found = compare(kernel.lanes, "icmp sge", limit, block)
        is_large = found if is_large is None else kernel.lanes.binary("and", is_large, found)
    assert is_large is not None
    if all(is_literal(limit) and number(limit) >= kernel.isa.lanes for limit in limits):
        by_blocks()
    else:
        kernel.writer.branch(is_large, [by_blocks, otherwise])


class _Blocks:
    """A store in square blocks."""

    def __init__(
        self,
        kernel: Kernel,
        operation: Operation,
        cuts: Sequence[tiles.Conjunct],
        read_dim: int,
    ) -> None:
        self.kernel, self.cuts, self.read_dim = kernel, cuts, read_dim
        self.pointer, self.value, *masks = operation.operands
        self.mask: Value | None = masks[0] if masks else None
        self.block = kernel.isa.lanes

    def write(self, limits: Sequence[Operand], shape: Sequence[int]) -> None:
        """All blocks below the limits of both dimensions: each line of what is read to its end."""
        writer, dims = self.kernel.writer, (1 - self.read_dim, self.read_dim)
        stored, read = (limits[dim] for dim in dims)
        whole = [_is_whole(self.kernel, self.cuts, dim, shape) for dim in dims]
        size = self.block
        with self.kernel.width(size), writer.loop(stored, size, may_skip=False) as across:
            column = self._start(across.counter, stored, is_whole=whole[0])
            with writer.loop(read, size, may_skip=False) as along:
                row = self._start(along.counter, read, is_whole=whole[1])
                self._write_block(row, column)

    def _start(self, counter: Operand, limit: Operand, *, is_whole: bool) -> Int:
        """Where a block begins: the last one a block before the limit."""
        lanes, writer = self.kernel.lanes, self.kernel.writer
        if is_whole:
            return lanes.atom(counter, "i32", self.block, natural=True)
        last = lanes.binary("sub", limit, constant(self.block, "i32"))
        return lanes.atom(writer.call("llvm.smin.i32", "i32", [counter, last]), "i32", natural=True)

    def _write_block(self, row: Int, column: Int) -> None:
        kernel, lanes = self.kernel, self.kernel.lanes
        along_row = Int("i32", row.base, Linear((), 1))
        along_column = Int("i32", column.base, Linear((), 1))
        vectors: list[Operand] = []

        def read(index: Index) -> None:
            vectors.append(lanes.splat(lanes.operand(kernel.at(self.value, index))))

        for place in range(self.block):
            index = self._index(along_row, lanes.add(column, integer(place)))
            tiles.with_facts(kernel, self.cuts, index, read)
        element = memory.stored_element(self.pointer.type.pointee)
        for place, vector in enumerate(copies.transposed_block(kernel, vectors)):

            def write(index: Index, vector: Operand = vector) -> None:
                test = None if self.mask is None else lanes.operand(kernel.at(self.mask, index))
                memory.write(kernel, kernel.at(self.pointer, index), vector, element, test)

            index = self._index(lanes.add(row, integer(place)), along_column)
            tiles.with_facts(kernel, self.cuts, index, write)

    def _index(self, read: Int, stored: Int) -> Index:
        return (read, stored) if self.read_dim == 0 else (stored, read)
