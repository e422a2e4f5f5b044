"""Stores of what is contiguous in memory along another dimension than the place it goes to.

    store(p + x·n + y, f(load(q + y·m + x)), mask)

Lane by lane, such elements would be gathered or scattered. Here square blocks are read along the
one dimension, transposed in registers and stored along the other: `2 · block` accesses of whole
vectors and `block · log2 block` shuffles. The last block of a dimension ends where the mask does,
and some of its elements are stored twice.

What is stored or read may be contiguous in runs alone, as rows of a product are that are the pixels
of several images: a block that lies in one run is moved so, and others lane by lane.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from aotc.aot.targets.cpu import copies, memory, root_ops, tiles
from aotc.aot.targets.cpu.elementwise import RULES
from aotc.aot.targets.cpu.evaluate import Kernel
from aotc.aot.targets.cpu.lanes import ITEMSIZE_BYTES, compare
from aotc.aot.targets.cpu.linear import Int, Lane, Linear, Pointer, integer, is_literal, number
from aotc.aot.targets.cpu.memory import Index
from aotc.aot.targets.cpu.ttir import Operation, Value
from aotc.aot.targets.cpu.writer import Operand, constant

MOST_BYTES = 4  # of an element: a block of larger ones does not fit the registers


def read_dimension(kernel: Kernel, store: Operation) -> int | None:
    """The dimension along which the value is contiguous in memory, where its place is not."""
    pointer, value = store.operands[:2]
    shape, block = pointer.type.shape or (), kernel.isa.lanes
    if not _has_blocks(kernel, pointer) or kernel.pending:
        return None
    stored_dim = tiles.lane_dimension(kernel, pointer)
    if is_in_runs(kernel, pointer, 1 - stored_dim):
        stored_dim = 1 - stored_dim
    read_dim = 1 - stored_dim
    if root_ops.longest_from_memory(kernel, [value], stored_dim, block) is not None:
        return None
    runs = _read_in_runs(kernel, value, read_dim)
    longest = root_ops.longest_from_memory(
        kernel, [value], read_dim, block, takes_buffers=True, in_runs=runs
    )
    if longest is None:
        return None
    if runs or tiles.lane_dimension(kernel, value) == read_dim:
        return read_dim
    # Contiguous in runs, within which blocks must begin at multiples of their size.
    return read_dim if _is_whole(kernel, _cuts(kernel, store), read_dim, shape) else None


def _has_blocks(kernel: Kernel, pointer: Value) -> bool:
    shape, element = pointer.type.shape or (), pointer.type.pointee
    if len(shape) != 2 or min(shape) < kernel.isa.lanes or kernel.guard is not None:
        return False
    return element != "i1" and ITEMSIZE_BYTES[element] <= MOST_BYTES


def is_in_runs(kernel: Kernel, pointer: Value, dim: int) -> bool:
    """Whether places follow each other along a dimension in runs, and nowhere along the other.

    That is seen at the first block of the first program: there all indices of programs are 0. Where
    a run ends may not depend on the other dimension, so that one vector's answer is a block's.
    """
    if not _has_blocks(kernel, pointer):
        return False
    with kernel.width(kernel.isa.lanes), kernel.probe() as depth:
        lanes, names = kernel.lanes, ("%place", "%other")
        mark, other = (
            lanes.atom(Operand(name, "i32", depth), "i32", natural=True) for name in names
        )
        if any(memory.is_contiguous(_along(kernel, pointer, each, mark)) for each in range(2)):
            return False
        start, moved = (_along(kernel, pointer, dim, mark, at) for at in (integer(0), other))
        if not isinstance(start, Pointer) or not isinstance(moved, Pointer):
            return False
        if start.base != moved.base or not lanes.add(moved.offset, start.offset, -1).is_uniform:
            return False
        for value, known in kernel.scalars.items():
            if isinstance(known, Int):
                kernel.scalars[value] = integer(known.base.constant, known.kind)
        for scope in kernel.writer.scopes:
            scope.memory = {}
        return memory.is_contiguous(_along(kernel, pointer, dim, integer(0)))


def _read_in_runs(kernel: Kernel, value: Value, dim: int) -> tuple[Value, ...]:
    """Places of the loads in an expression that follow each other along a dimension in runs."""
    found, seen, open_values = list[Value](), set[Value](), [value]
    while open_values:
        current = open_values.pop()
        made = current.owner
        if current in seen or made is None or current in kernel.buffers:
            continue
        seen.add(current)
        if made.name == "tt.load" and is_in_runs(kernel, made.operands[0], dim):
            found.append(made.operands[0])
        elif made.name in RULES:
            open_values += made.operands
    return tuple(found)


def _along(kernel: Kernel, pointer: Value, dim: int, start: Int, other: Int | None = None) -> Lane:
    """The places of a vector along a dimension, by default at the other one's beginning."""
    index = [other or integer(0)] * 2
    index[dim] = Int("i32", start.base, Linear((), 1))
    return kernel.at(pointer, tuple(index))


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
        self.is_in_runs = is_in_runs(kernel, self.pointer, 1 - read_dim)
        self.read_in_runs = _read_in_runs(kernel, self.value, read_dim)

    def write(self, limits: Sequence[Operand], shape: Sequence[int]) -> None:
        """All blocks below the limits of both dimensions, along what is stored: a line that a block
        stores in part is stored to its end by the next one, while it is near."""
        writer, dims = self.kernel.writer, (1 - self.read_dim, self.read_dim)
        stored, read = (limits[dim] for dim in dims)
        whole = [_is_whole(self.kernel, self.cuts, dim, shape) for dim in dims]
        size = self.block
        with self.kernel.width(size), writer.loop(read, size, may_skip=False) as along:
            row = self._start(along.counter, read, is_whole=whole[1])
            tests = [self._is_run(each, self.read_dim, row) for each in self.read_in_runs]
            with writer.loop(stored, size, may_skip=False) as across:
                column = self._start(across.counter, stored, is_whole=whole[0])
                tests.append(self._is_run(self.pointer, 1 - self.read_dim, column))
                self._write_block(row, column, [test for test in tests if test is not None])

    def _start(self, counter: Operand, limit: Operand, *, is_whole: bool) -> Int:
        """Where a block begins: the last one a block before the limit."""
        lanes, writer = self.kernel.lanes, self.kernel.writer
        if is_whole:
            return lanes.atom(counter, "i32", self.block, natural=True)
        last = lanes.binary("sub", limit, constant(self.block, "i32"))
        return lanes.atom(writer.call("llvm.smin.i32", "i32", [counter, last]), "i32", natural=True)

    def _is_run(self, pointer: Value, dim: int, start: Int) -> Operand | None:
        """Whether a block's places follow each other along a dimension; None: always."""
        kernel, lanes, writer = self.kernel, self.kernel.lanes, self.kernel.writer
        if pointer is self.pointer and not self.is_in_runs:
            return None
        places = _along(kernel, pointer, dim, start)
        assert isinstance(places, Pointer)
        if memory.is_contiguous(places):
            return None
        index = [integer(0), integer(0)]
        index[dim] = start
        first = lanes.operand(self._run(pointer, tuple(index)).offset)
        kind = lanes.vector_type(first.type)
        steps = Operand(lanes.literal(range(self.block), first.type), kind)
        following = lanes.binary("add", lanes.splat(first), steps)
        same = compare(lanes, "icmp eq", lanes.operand(places.offset), following)
        return writer.call(f"llvm.vector.reduce.and.v{self.block}i1", "i1", [same])

    def _run(self, pointer: Value, index: Index) -> Pointer:
        """The place of one element, from which on others follow."""
        with self.kernel.width(1):
            found = self.kernel.at(pointer, index)
        assert isinstance(found, Pointer)
        return found

    def _write_block(self, row: Int, column: Int, tests: Sequence[Operand]) -> None:
        def in_one_run() -> list[Operand]:
            self._write_transposed(row, column, is_run=bool(tests))
            return []

        def by_lanes() -> list[Operand]:
            self._write_by_lanes(row, column)
            return []

        if not tests:
            in_one_run()
            return
        is_run = functools.reduce(lambda a, b: self.kernel.lanes.binary("and", a, b), tests)
        self.kernel.writer.branch(is_run, [in_one_run, by_lanes])

    def _write_by_lanes(self, row: Int, column: Int) -> None:
        """Of a block that does not lie in one run; read as vectors where it can be."""
        lanes = self.kernel.lanes
        for place in range(self.block):
            index = self._index(lanes.add(row, integer(place)), self._lanes(column))
            if not self.read_in_runs:
                index = self._index(self._lanes(row), lanes.add(column, integer(place)))
            tiles.with_facts(self.kernel, self.cuts, index, self._write_vector)

    def _write_transposed(self, row: Int, column: Int, *, is_run: bool) -> None:
        kernel, lanes = self.kernel, self.kernel.lanes
        vectors: list[Operand] = []

        def read(index: Index) -> None:
            vectors.append(lanes.splat(lanes.operand(kernel.at(self.value, index))))

        for place in range(self.block):
            at = lanes.add(column, integer(place))
            index = self._index(self._lanes(row), at)
            for pointer in self.read_in_runs if is_run else ():
                first = self._run(pointer, self._index(row, at))
                known = kernel.writer.scope.memory
                known[pointer, index, lanes.width] = first.at(self._lanes(first.offset))
            tiles.with_facts(kernel, self.cuts, index, read)
        for place, vector in enumerate(copies.transposed_block(kernel, vectors)):
            at = lanes.add(row, integer(place))
            stored: Lane | None = None
            if is_run and self.is_in_runs:
                first = self._run(self.pointer, self._index(at, column))
                stored = first.at(self._lanes(first.offset))
            write = functools.partial(self._write_vector, vector=vector, pointer=stored)
            tiles.with_facts(kernel, self.cuts, self._index(at, self._lanes(column)), write)

    def _write_vector(
        self, index: Index, vector: Operand | None = None, pointer: Lane | None = None
    ) -> None:
        kernel, lanes = self.kernel, self.kernel.lanes
        if vector is None:
            vector = lanes.splat(lanes.operand(kernel.at(self.value, index)))
        element = memory.stored_element(self.pointer.type.pointee)
        test = None if self.mask is None else lanes.operand(kernel.at(self.mask, index))
        pointer = kernel.at(self.pointer, index) if pointer is None else pointer
        memory.write(kernel, pointer, vector, element, test)

    def _lanes(self, start: Int) -> Int:
        return Int(start.kind, start.base, Linear((), 1))

    def _index(self, read: Int, stored: Int) -> Index:
        return (read, stored) if self.read_dim == 0 else (stored, read)
