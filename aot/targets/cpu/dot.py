"""`tt.dot` as a register-tiled microkernel.

A tile of accumulators stays in vector registers over the whole inner dimension; the left operand is
read element by element and broadcast, the right one a row of vectors at a time. Operands that are
plain contiguous f32 loads are read where they stand (a packed weight never moves); all others are
computed into scratch first, as f32 (dot_operands.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from aotc.aot.errors import CompileError
from aotc.aot.targets.cpu import fused_store, memory, root_ops
from aotc.aot.targets.cpu.dot_operands import Side, side
from aotc.aot.targets.cpu.evaluate import Kernel, StoredProduct
from aotc.aot.targets.cpu.lanes import typed
from aotc.aot.targets.cpu.linear import LLVM_TYPES, Int, Linear, Pointer, integer
from aotc.aot.targets.cpu.memory import Buffer, Index
from aotc.aot.targets.cpu.ttir import Dense, Operation, Value
from aotc.aot.targets.cpu.writer import Operand, constant

ACCUMULATE = {"f32": "fma", "f64": "fma", "i32": "mul"}
"""Accumulator type → how a product is added; operands are widened to it."""


class Tile(NamedTuple):
    """Shape of the block of accumulators: `rows` × `vectors` vectors of `width` lanes."""

    rows: int
    vectors: int
    width: int
    unroll: int


class Product(NamedTuple):
    """accumulator[rows, columns] += a[rows, depth] · b[depth, columns], by tiles."""

    a: Side
    b: Side
    shape: tuple[int, int]
    """Rows and columns."""
    accumulator: Buffer | None
    """None where the elements are stored at once and start from nothing."""
    depth: int
    kind: str
    tile: Tile
    is_new: bool
    """The accumulator holds nothing yet."""
    limits: tuple[Operand, Operand]
    """Rows and columns that anybody asks for."""
    stored: StoredProduct | None
    """The stores that take the elements."""
    is_last: Operand | None
    """Whether they take them now: in the last turn of the loop around; None: they do."""

    @property
    def strip_columns(self) -> int:
        return self.tile.vectors * self.tile.width


def choose_tile(kernel: Kernel, rows: int, columns: int, depth: int) -> Tile:
    """As many accumulators as leave registers for a row of B and one broadcast."""
    isa = kernel.isa
    width = min(isa.lanes, columns)
    vectors = min(isa.tile_vectors, columns // width)
    budget = isa.tile_rows * isa.tile_vectors
    tall = min(rows, max(1, budget // vectors), 2 * isa.tile_rows)
    return Tile(tall, vectors, width, 2 if depth % 2 == 0 else 1)


def dot(kernel: Kernel, operation: Operation) -> None:
    """`tt.dot(a, b, c)`: a[M, K] · b[K, N] + c[M, N] into a buffer."""
    result = operation.results[0]
    shape = result.type.shape or ()
    kind = result.type.element
    if len(shape) != 2 or kind not in ACCUMULATE:
        raise CompileError(
            message=f"dot with a result of rank {len(shape)} and type `{kind}` is not supported"
        )
    product = _product(kernel, operation, (shape[0], shape[1]))
    if shape[1] == product.strip_columns:
        _strip(kernel, product, integer(0))
    else:
        limit = product.limits[1]
        with kernel.writer.loop(limit, product.strip_columns, may_skip=_may_skip(limit)) as loop:
            loop.next_values = []
            column = kernel.lanes.atom(loop.counter, "i32", product.strip_columns, natural=True)
            _strip(kernel, product, column)
    if product.accumulator is not None:
        kernel.buffers[result] = product.accumulator._replace(min_depth=kernel.writer.depth)


def _product(kernel: Kernel, operation: Operation, shape: tuple[int, int]) -> Product:
    left, _, start = operation.operands
    depth = (left.type.shape or ())[1]
    found = kernel.fused_store
    stored = found if found is not None and found.dot is operation else None
    is_new = _is_zero(kernel, start)
    is_at_once = is_new and stored is not None and stored.operation is operation
    whole = constant(shape[0], "i32"), constant(shape[1], "i32")
    return Product(
        side(kernel, operation, shape[0], is_left=True),
        side(kernel, operation, shape[0], is_left=False),
        shape,
        None if is_at_once else _accumulator(kernel, operation, start),
        depth,
        operation.results[0].type.element,
        choose_tile(kernel, shape[0], shape[1], depth),
        is_new,
        whole if stored is None else fused_store.limits(stored, kernel),
        stored,
        None if stored is None else fused_store.is_last_turn(stored, kernel),
    )


def _may_skip(limit: Operand) -> bool:
    """Whether a loop from 0 on to `limit` may make no turn."""
    return not limit.text.isdigit() or int(limit.text) == 0


def _strip(kernel: Kernel, product: Product, column: Int) -> None:
    """All rows of one strip of columns: whole tiles, then what is left."""
    right = product.b.strip(kernel, column, product.strip_columns)
    product = product._replace(b=right)
    rows, tall, limit = product.shape[0], product.tile.rows, product.limits[0]
    whole = rows // tall * tall
    if whole == tall:
        _block(kernel, product, tall, integer(0), column)
    elif whole:
        upper = _smaller(kernel, limit, whole)
        with kernel.writer.loop(upper, tall, may_skip=_may_skip(upper)) as loop:
            loop.next_values = []
            row = kernel.lanes.atom(loop.counter, "i32", tall, natural=True)
            _block(kernel, product, tall, row, column)
    if rows > whole:
        with kernel.writer.loop(limit, rows - whole, lower=constant(whole, "i32")) as loop:
            loop.next_values = []
            _block(kernel, product, rows - whole, integer(whole), column)


def _smaller(kernel: Kernel, limit: Operand, size: int) -> Operand:
    if limit.text.isdigit():
        return constant(min(int(limit.text), size), "i32")
    return kernel.writer.call("llvm.smin.i32", "i32", [limit, constant(size, "i32")])


def _block(kernel: Kernel, product: Product, rows: int, row: Int, column: Int) -> None:
    """accumulator[row : +rows, column : +strip] += a[row : +rows, :] · b[:, column : +strip]"""
    tile, accumulator = product.tile, product.accumulator
    places = [
        (kernel.lanes.add(row, integer(i)), _vector_index(kernel, tile, column, j))
        for i in range(rows)
        for j in range(tile.vectors)
    ]
    with kernel.width(tile.width):
        zero = constant("zeroinitializer", kernel.lanes.vector_type(LLVM_TYPES[product.kind]))
        start = [
            zero
            if product.is_new or accumulator is None
            else kernel.lanes.operand(memory.read_buffer(kernel, accumulator, place))
            for place in places
        ]
        limit = constant(product.depth, "i32")
        with kernel.writer.loop(limit, tile.unroll, start, may_skip=False) as loop:
            totals = list(loop.carried)
            inner = kernel.lanes.atom(loop.counter, "i32", tile.unroll, natural=True)
            for step in range(tile.unroll):
                place = kernel.lanes.add(inner, integer(step))
                totals = _outer_product(kernel, product, rows, (row, place, column), totals)
            _prefetch(kernel, product, (row, inner, column))
            loop.next_values = totals
        _leave(kernel, product, places, loop.results)


def _leave(
    kernel: Kernel, product: Product, places: Sequence[Index], totals: Sequence[Operand]
) -> None:
    """Takes a block of accumulators out of the registers: to memory, or through the stores."""

    def keep() -> list[Operand]:
        assert product.accumulator is not None
        for index, total in zip(places, totals, strict=True):
            pointer = memory.buffer_pointer(kernel, product.accumulator, index)
            memory.write(kernel, pointer, total, product.accumulator.element, None)
        return []

    def close() -> list[Operand]:
        assert product.stored is not None
        value, known = product.stored.value, kernel.writer.scope.memory
        for index, total in zip(places, totals, strict=True):
            own = total._replace(depth=kernel.writer.depth)  # so that nothing moves out of here
            known[value, index, kernel.lanes.width] = typed(kernel.lanes, own, product.kind)
            root_ops.write(kernel, product.stored.stores, product.stored.mask, index)
        return []

    if product.stored is None:
        keep()
    elif product.is_last is None:
        close()
    else:
        kernel.writer.branch(product.is_last, [close, keep])


def _vector_index(kernel: Kernel, tile: Tile, column: Int, vector: int) -> Int:
    """The columns of one vector of a tile, a lane each."""
    lane = Linear((), 1) if tile.width > 1 else Linear()
    return Int("i32", kernel.lanes.add(column, integer(vector * tile.width)).base, lane)


def _outer_product(
    kernel: Kernel, product: Product, rows: int, place: tuple[Int, Int, Int], totals: list[Operand]
) -> list[Operand]:
    """One step of the inner dimension: a column of A by a row of B; `place` is (row, k, column)."""
    lanes, tile = kernel.lanes, product.tile
    row, inner, column = place
    right = [
        product.b.at(kernel, (inner, _vector_index(kernel, tile, column, j)))
        for j in range(tile.vectors)
    ]
    made: list[Operand] = []
    for i in range(rows):
        left = lanes.splat(product.a.at(kernel, (lanes.add(row, integer(i)), inner)))
        for j in range(tile.vectors):
            total = totals[i * tile.vectors + j]
            if ACCUMULATE[product.kind] == "fma":
                suffix = f"v{tile.width}{product.kind}" if tile.width > 1 else product.kind
                factors = [left, lanes.splat(right[j]), total]
                made.append(kernel.writer.call(f"llvm.fma.{suffix}", total.type, factors))
            else:
                made.append(lanes.binary("add", lanes.binary("mul", left, right[j]), total))
    return made


def _prefetch(kernel: Kernel, product: Product, place: tuple[Int, Int, Int]) -> None:
    """Asks for some of the cache lines that follow this block of B: the next one of a weight.

    The requests of all tiles of rows together run once through as many bytes as the block has, at
    the pace at which the processor works, so that memory is asked evenly. Past the end of B they
    are hints about memory that nobody reads.
    """
    load = product.b.value.owner if product.b.is_direct else None
    tile, (rows, columns) = product.tile, product.shape
    if load is None or columns != product.strip_columns:
        return
    lanes = kernel.lanes
    row, inner, column = place
    tiles_of_rows = -(-rows // tile.rows)
    requests = -(-tile.vectors * tile.unroll // tiles_of_rows)  # in a turn of the inner loop
    with kernel.width(1):
        following = kernel.at(load.operands[0], (integer(product.depth), column))
        if not isinstance(following, Pointer):
            return
        which = lanes.divide(row, integer(tile.rows), remainder=False)
        turn = lanes.divide(inner, integer(tile.unroll), remainder=False)
        first = lanes.add(lanes.multiply(which, integer(product.depth // tile.unroll)), turn)
        for request in range(requests):
            line = lanes.add(lanes.multiply(first, integer(requests)), integer(request))
            offset = lanes.extend(lanes.multiply(line, integer(tile.width)), "i64")
            moved = following._replace(offset=lanes.add(following.offset, offset))
            address = kernel.lanes.operand(moved)
            kernel.writer.effect(f"call void @llvm.prefetch.p0({address}, i32 0, i32 2, i32 1)")


def _accumulator(kernel: Kernel, operation: Operation, start: Value) -> Buffer:
    """The buffer to add to, holding `c`: the loop's own where the loop carries this dot."""
    target = kernel.in_place.get(operation.results[0])
    if start in kernel.buffers and target is not None and kernel.buffers[start].base == target.base:
        return target._replace(min_depth=kernel.writer.depth)
    if start in kernel.pending:
        root_ops.force(kernel, start)
    into = target or root_ops.new_buffer(kernel, operation.results[0])
    if _is_zero(kernel, start):
        return into._replace(min_depth=kernel.writer.depth)
    return root_ops.materialize(kernel, start, into)


def _is_zero(kernel: Kernel, value: Value) -> bool:
    """Whether a tensor is zeros that stand nowhere in memory."""
    made = value.owner
    if made is None or made.name != "arith.constant" or value in kernel.buffers:
        return False
    found = made.attributes["value"]
    numbers = found.values if isinstance(found, Dense) else (found,)
    return all(number == 0 and math.copysign(1, float(number)) > 0 for number in numbers)
