"""Products by tiles that end in stores and whose operands both stand in memory, as a pipeline.

    for each block of the result, and once more:
        for k in …:                            multiply this block, sums in tiles
                                               take some rows of the block before through the stores
        leave the sums of this block in memory

A loop around the product runs inside, for each block: its sums stay in tiles over the whole inner
dimension. Tiles and vectors are different units: what follows a product (bias, `erf`, residual,
conversion) costs little where both have work at the same time. A processor looks a few hundred
instructions ahead, so the two are written in turns, a few rows a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from aotc.aot.targets.cpu import control, fused_store, tile_dot
from aotc.aot.targets.cpu import dot as vectors
from aotc.aot.targets.cpu.evaluate import Kernel, StoredProduct
from aotc.aot.targets.cpu.lanes import compare
from aotc.aot.targets.cpu.linear import Int, integer
from aotc.aot.targets.cpu.memory import Buffer
from aotc.aot.targets.cpu.tile_dot import Matrix, Shape
from aotc.aot.targets.cpu.ttir import Operation, Value
from aotc.aot.targets.cpu.writer import Operand, constant

FAR_BYTES = 1 << 20  # of a left operand, from which the second cache has no room for what follows

RunBut = Callable[[Operation, Operation], None]
"""Lowers the block of a loop without one of its operations."""


class _Pipeline(NamedTuple):
    """A product whose blocks are counted: `rows` blocks down for each block of columns."""

    stored: StoredProduct
    shape: Shape
    left: Matrix
    right: Matrix
    run: RunBut
    block: Buffer
    """Where the tiles of a block leave their sums."""
    limit: Operand
    """Rows that anybody asks for."""
    rows: Operand
    count: Operand
    depth: int
    """Of the whole inner dimension; 0 where a launch decides it."""
    rows_at_once: int
    """Rows that a step takes through the stores."""

    @property
    def is_looped(self) -> bool:
        return self.stored.operation is not self.stored.dot


class _Turn(NamedTuple):
    """One turn of the pipeline."""

    now: tuple[Int, Int]
    """Where the block that is multiplied begins."""
    before: tuple[Int, Int]
    is_multiplied: Operand
    rows: Operand
    """Of the block before, to be stored."""


def write(kernel: Kernel, stored: StoredProduct, run: RunBut) -> bool:
    """Lowers a product with its stores, if it suits; else False, and nothing is written."""
    shape = tile_dot.shape_of(kernel, stored.dot)
    if shape is None or not vectors.is_zero(kernel, _start(stored)):
        return False
    found = _operands(kernel, stored, shape, run)
    if found is None:
        return False
    block = tile_dot.block_buffer(kernel, shape)
    limits = fused_store.limits(stored, kernel)
    with kernel.width(1):
        steps = (shape.block_rows, shape.block_columns)
        rows, columns = (_blocks(kernel, *pair) for pair in zip(limits, steps, strict=True))
        count = kernel.lanes.binary("mul", rows, columns)
        depth = _depth(kernel, stored, shape)
        turns = max(1, depth // shape.inner)
        at_once = -(-shape.block_rows // turns) if depth else shape.block_rows
        pipeline = _Pipeline(
            stored, shape, *found, run, block, limits[0], rows, count, depth, at_once
        )
        tile_dot.configure(kernel, shape)
        _write(kernel, pipeline)
        tile_dot.release(kernel)
    return True


def _start(stored: StoredProduct) -> Value:
    """What the sums start with."""
    start = stored.dot.operands[2]
    if stored.operation is stored.dot:
        return start
    return stored.operation.operands[2 + stored.operation.body.arguments.index(start)]


def _operands(
    kernel: Kernel, stored: StoredProduct, shape: Shape, run: RunBut
) -> tuple[Matrix, Matrix] | None:
    """Both operands, if they stand in memory as tiles read them."""
    with kernel.writer.probe(), _turns(kernel, stored, run, ()) as more:
        left = tile_dot.left_in_place(kernel, stored.dot.operands[0], shape)
        right = tile_dot.right_in_place(kernel, stored.dot.operands[1], shape)
        del more
    return None if left is None or right is None else (left, right)


@contextmanager
def _turns(
    kernel: Kernel, stored: StoredProduct, run: RunBut, more: Sequence[Operand]
) -> Iterator[list[Operand]]:
    """The turns of the loop around a product, if there is one; `more` is carried through them."""
    if stored.operation is stored.dot:
        yield list(more)
        return
    with control.turns(kernel, stored.operation, {stored.dot.operands[2]}, more) as loop:
        run(stored.operation, stored.dot)
        carried = list(loop.carried)
        yield carried
        loop.next_values = carried


def _blocks(kernel: Kernel, limit: Operand, step: int) -> Operand:
    if limit.text.isdigit():
        return constant(-(-int(limit.text) // step), "i32")
    lanes = kernel.lanes
    return lanes.binary(
        "sdiv", lanes.binary("add", limit, constant(step - 1, "i32")), constant(step, "i32")
    )


def _depth(kernel: Kernel, stored: StoredProduct, shape: Shape) -> int:
    if stored.operation is stored.dot:
        return shape.depth
    ends = [kernel.scalars[x] for x in stored.operation.operands[:3]]
    known = [each.constant for each in ends if isinstance(each, Int) and each.constant is not None]
    if len(known) < len(ends):
        return 0
    return max(0, len(range(*known))) * shape.depth


def _write(kernel: Kernel, pipeline: _Pipeline) -> None:
    lanes, writer, shape = kernel.lanes, kernel.writer, pipeline.shape
    last = lanes.binary("add", pipeline.count, constant(1, "i32"))
    with writer.loop(last, 1, may_skip=vectors.may_skip(last)) as loop:
        turn = _turn(kernel, pipeline, loop.counter)
        tile_dot.clear(kernel, shape)
        _multiply_block(kernel, pipeline, turn)
        start = integer(0), integer(0)
        tile_dot.move(kernel, "tilestored64", shape, pipeline.block, start)


def _turn(kernel: Kernel, pipeline: _Pipeline, number: Operand) -> _Turn:
    """The last turn multiplies nothing, the first stores nothing: both look at some block there."""
    lanes, writer = kernel.lanes, kernel.writer
    one, zero = constant(1, "i32"), constant(0, "i32")
    final = lanes.binary("sub", pipeline.count, one)
    now = _place(kernel, pipeline, writer.call("llvm.smin.i32", "i32", [number, final]))
    previous = writer.call("llvm.smax.i32", "i32", [lanes.binary("sub", number, one), zero])
    before = _place(kernel, pipeline, previous)
    rest = lanes.binary("sub", pipeline.limit, lanes.operand(before[0]))
    whole = constant(pipeline.shape.block_rows, "i32")
    asked = writer.call("llvm.smin.i32", "i32", [rest, whole])
    is_first = compare(lanes, "icmp eq", number, zero)
    rows = writer.emit(f"select {is_first}, i32 0, {asked}", "i32", [is_first, asked])
    return _Turn(now, before, compare(lanes, "icmp slt", number, pipeline.count), rows)


def _place(kernel: Kernel, pipeline: _Pipeline, number: Operand) -> tuple[Int, Int]:
    """Row and column at which a block begins: blocks of columns share those of rows below."""
    lanes, found = kernel.lanes, []
    for name, step in (
        ("urem", pipeline.shape.block_rows),
        ("udiv", pipeline.shape.block_columns),
    ):
        which = lanes.binary(name, number, pipeline.rows)
        start = lanes.binary("mul", which, constant(step, "i32"))
        found.append(lanes.atom(start, "i32", step, natural=True))
    return found[0], found[1]


def _multiply_block(kernel: Kernel, pipeline: _Pipeline, turn: _Turn) -> None:
    """All of the inner dimension of a block."""
    shape, writer = pipeline.shape, kernel.writer
    first = constant(0, "i32")
    with _turns(kernel, pipeline.stored, pipeline.run, [first]) as carried:
        limit = constant(shape.depth, "i32")
        with writer.loop(limit, shape.inner, carried, may_skip=False) as loop:
            inner = kernel.lanes.atom(loop.counter, "i32", shape.inner, natural=True)
            _step(kernel, pipeline, turn, inner)
            loop.next_values = [_store_rows(kernel, pipeline, turn, loop.carried[0])]
        carried[:] = loop.results


def _step(kernel: Kernel, pipeline: _Pipeline, turn: _Turn, inner: Int) -> None:
    shape, place = pipeline.shape, (turn.now[0], inner, turn.now[1])

    def multiply() -> list[Operand]:
        tile_dot.multiply(kernel, shape, pipeline.left, pipeline.right, place)
        left_bytes = shape.rows * pipeline.depth * shape.item_bytes
        if shape.rows >= tile_dot.FEWEST_STREAMING_ROWS and 0 < left_bytes < FAR_BYTES:
            tile_dot.ask_for_following(kernel, shape, pipeline.right, place, pipeline.depth)
        return []

    kernel.writer.branch(turn.is_multiplied, [multiply, list])


def _store_rows(kernel: Kernel, pipeline: _Pipeline, turn: _Turn, first: Operand) -> Operand:
    """Some rows of the block before from `first` on; gives the row that follows. The lines of the
    same rows of this block are asked for, so that they are there a turn later."""
    lanes, writer = kernel.lanes, kernel.writer
    following = lanes.binary("add", first, constant(pipeline.rows_at_once, "i32"))
    last = writer.call("llvm.smin.i32", "i32", [following, turn.rows])
    with writer.loop(last, 1, lower=first) as loop:
        own = lanes.atom(loop.counter, "i32", natural=True)
        tile_dot.announce_row(
            kernel, pipeline.shape, pipeline.stored, lanes.add(turn.now[0], own), turn.now[1]
        )
        tile_dot.store_row(
            kernel, pipeline.shape, pipeline.stored, pipeline.block, own, turn.before
        )
    return following
