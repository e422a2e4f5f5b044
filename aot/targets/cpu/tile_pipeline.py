"""Products by tiles that end in stores and whose operands both stand in memory, as a pipeline.

    for each block of the result:
        for k in …:                    four products of tiles, and behind each of them
                                       some rows of the block before through the stores
        leave the sums of this block in memory
    the last block through the stores

A loop around the product runs inside, for each block: its sums stay in tiles over the whole inner
dimension. Tiles and vectors are different units: what follows a product (bias, `erf`, residual,
conversion) costs little where both have work at the same time. A processor looks a few hundred
instructions ahead, and fewer where they wait for each other: so the two are written in turns.

Blocks follow each other down the columns, which stay in the nearest cache. Where the depth is short
the memory of the result takes longer than that of the operands, and they follow each other along
the rows: whole rows of the result, and of what is added to it, are then read and written in the
order of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from aotc.aot.targets.cpu import control, depths, fused_store, operands, root_ops, tile_dot
from aotc.aot.targets.cpu import dot as vectors
from aotc.aot.targets.cpu.evaluate import Kernel, StoredProduct
from aotc.aot.targets.cpu.lanes import compare
from aotc.aot.targets.cpu.linear import Int, integer
from aotc.aot.targets.cpu.memory import Buffer
from aotc.aot.targets.cpu.tile_dot import Shape
from aotc.aot.targets.cpu.ttir import Operation, Value
from aotc.aot.targets.cpu.words import Matrix
from aotc.aot.targets.cpu.writer import Operand, constant

MOST_ROW_DEPTH_BYTES = 512  # of a row of the left operand, up to which blocks go along the rows
MOST_NEAR_BYTES = 256 << 10  # of the right operand, which passes by each block of rows then
FAR_BYTES = 1 << 20  # of a left operand, from which the second cache has no room for what follows

Place: TypeAlias = tuple[Int, Int]
"""Row and column."""
RunBut: TypeAlias = Callable[[Operation, Operation], None]
"""Lowers the block of a loop without one of its operations."""


class _Pipeline(NamedTuple):
    """A product whose blocks are counted: `rows` of them below each other."""

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
    blocks: Operand
    """How many there are in all."""
    columns: int
    """Blocks beside each other; 0 where a launch decides how many there are."""
    depth: int
    """Of the whole inner dimension; 0 where a launch decides it."""
    width: int
    """Elements of a vector."""
    start: Value | None
    """What is added to the sums when they are stored; None: nothing."""

    @property
    def goes_along_rows(self) -> bool:
        """Whether a block is followed by the one beside it, and not by the one below it."""
        row_bytes = self.depth * self.shape.item_bytes
        near_bytes = row_bytes * self.columns * self.shape.block_columns
        is_short = 0 < row_bytes <= MOST_ROW_DEPTH_BYTES
        return is_short and self.columns > 1 and near_bytes <= MOST_NEAR_BYTES

    def shares(self) -> list[int]:
        """How many rows follow each product of a step: as evenly as the depth allows, all of them
        behind the first where it is not known."""
        count, rows = self.shape.down * self.shape.across, self.shape.block_rows
        if not self.depth:
            return [rows] + [0] * (count - 1)
        each = -(-rows * self.shape.inner // self.depth)
        return [(each + count - 1 - place) // count for place in range(count)]


class _Turn(NamedTuple):
    """One turn of the pipeline."""

    now: Place
    """Where the block that is multiplied begins."""
    before: Place
    rows: Operand
    """Of the block before, to be stored."""


def write(kernel: Kernel, stored: StoredProduct, run: RunBut) -> bool:
    """Lowers a product with its stores, if it suits; else False, and nothing is written."""
    shape = tile_dot.shape_of(kernel, stored.dot)
    start = start_of(stored)
    has_start = not operands.is_zero(kernel, start)
    if shape is None or (has_start and fused_store.is_written(stored, start)):
        return False
    found = _operands(kernel, stored, shape, run)
    if found is None:
        return False
    shape = found[0]
    if start in kernel.pending:
        root_ops.force(kernel, start)
    block = tile_dot.block_buffer(kernel, shape)
    limits = fused_store.limits(stored, kernel)
    with kernel.width(1):
        steps = (shape.block_rows, shape.block_columns)
        rows, columns = (_blocks(kernel, *pair) for pair in zip(limits, steps, strict=True))
        blocks = kernel.lanes.binary("mul", rows, columns)
        depth = _depth(kernel, stored, shape)
        width = shape.lanes(kernel)
        pipeline = _Pipeline(
            stored,
            shape,
            *found[1:],
            run,
            block,
            limits[0],
            rows,
            blocks,
            int(columns.text) if columns.text.isdigit() else 0,
            depth,
            width,
            start if has_start else None,
        )
        tile_dot.configure(kernel, shape)
        _write(kernel, pipeline)
        tile_dot.release(kernel)
    return True


def start_of(stored: StoredProduct) -> Value:
    """What the sums start with."""
    start = stored.dot.operands[2]
    if stored.operation is stored.dot:
        return start
    return stored.operation.operands[2 + stored.operation.body.arguments.index(start)]


def _operands(
    kernel: Kernel, stored: StoredProduct, shape: Shape, run: RunBut
) -> tuple[Shape, Matrix, Matrix] | None:
    """Both operands, if they stand in memory as tiles read them, and the shape without the part of
    the depth that their masks leave out."""
    with kernel.probe(), _turns(kernel, stored, run, ()):
        kept = depths.kept(kernel, stored.dot)
        found = shape if kept == shape.depth else tile_dot.cut(shape, kept)
        if found is None:
            return None
        left = tile_dot.left_in_place(kernel, stored.dot.operands[0], found)
        right = tile_dot.right_in_place(kernel, stored.dot.operands[1], found)
    return None if left is None or right is None else (found, left, right)


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
    writer, shape, zero = kernel.writer, pipeline.shape, constant(0, "i32")
    with writer.loop(pipeline.blocks, 1, may_skip=vectors.may_skip(pipeline.blocks)) as loop:
        turn = _turn(kernel, pipeline, loop.counter)
        tile_dot.clear(kernel, shape)
        _multiply_block(kernel, pipeline, turn)
        start = integer(0), integer(0)
        tile_dot.move(kernel, "tilestored64", shape, pipeline.block, start)
    _store_rows(kernel, pipeline, _turn(kernel, pipeline, pipeline.blocks), zero, shape.block_rows)


def _turn(kernel: Kernel, pipeline: _Pipeline, number: Operand) -> _Turn:
    """The turn of a block; the first one has nothing to store."""
    lanes, writer = kernel.lanes, kernel.writer
    one, zero = constant(1, "i32"), constant(0, "i32")
    previous = writer.call("llvm.smax.i32", "i32", [lanes.binary("sub", number, one), zero])
    before = _place(kernel, pipeline, previous)
    rest = lanes.binary("sub", pipeline.limit, lanes.operand(before[0]))
    whole = constant(pipeline.shape.block_rows, "i32")
    asked = writer.call("llvm.smin.i32", "i32", [rest, whole])
    is_first = compare(lanes, "icmp eq", number, zero)
    rows = writer.emit(f"select {is_first}, i32 0, {asked}", "i32", [is_first, asked])
    return _Turn(_place(kernel, pipeline, number), before, rows)


def _place(kernel: Kernel, pipeline: _Pipeline, number: Operand) -> Place:
    """Where a block begins: those below each other follow each other, or those beside each other.
    Where nobody asks for a row there is none, and nothing is divided by zero."""
    lanes, shape, found = kernel.lanes, pipeline.shape, []
    if pipeline.goes_along_rows:
        columns = constant(pipeline.columns, "i32")
        for name, step in (("udiv", shape.block_rows), ("urem", shape.block_columns)):
            which = lanes.binary(name, number, columns)
            start = lanes.binary("mul", which, constant(step, "i32"))
            found.append(lanes.atom(start, "i32", step, natural=True))
        return found[0], found[1]
    rows = pipeline.rows
    if not rows.text.isdigit() or rows.text == "0":
        rows = kernel.writer.call("llvm.smax.i32", "i32", [rows, constant(1, "i32")])
    for name, step in (("urem", shape.block_rows), ("udiv", shape.block_columns)):
        which = lanes.binary(name, number, rows)
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
            loop.next_values = [_step(kernel, pipeline, turn, inner, loop.carried[0])]
        carried[:] = loop.results


def _step(kernel: Kernel, pipeline: _Pipeline, turn: _Turn, inner: Int, first: Operand) -> Operand:
    """One step of the inner dimension, with rows of the block before from `first` on; gives the one
    that follows."""
    shape, place = pipeline.shape, (turn.now[0], inner, turn.now[1])
    shares, next_one = pipeline.shares(), [first]

    def following(total: int) -> None:
        if shares[total]:
            next_one[0] = _store_rows(kernel, pipeline, turn, next_one[0], shares[total])

    tile_dot.multiply(kernel, shape, pipeline.left, pipeline.right, place, following)
    left_bytes = shape.rows * pipeline.depth * shape.item_bytes
    if pipeline.goes_along_rows:
        return next_one[0]
    if shape.rows >= tile_dot.FEWEST_STREAMING_ROWS and 0 < left_bytes < FAR_BYTES:
        tile_dot.ask_for_following(kernel, shape, pipeline.right, place, pipeline.depth)
    return next_one[0]


def _store_rows(
    kernel: Kernel, pipeline: _Pipeline, turn: _Turn, first: Operand, count: int
) -> Operand:
    """So many rows of the block before from `first` on; gives the one that follows."""
    lanes, writer, shape = kernel.lanes, kernel.writer, pipeline.shape
    following = lanes.binary("add", first, constant(count, "i32"))
    last = writer.call("llvm.smin.i32", "i32", [following, turn.rows])
    with writer.loop(last, 1, lower=first) as loop:
        row = lanes.atom(loop.counter, "i32", natural=True)
        for column in range(0, shape.block_columns, pipeline.width):
            tile_dot.store_vector(
                kernel,
                shape,
                pipeline.stored,
                pipeline.block,
                (row, integer(column)),
                turn.before,
                pipeline.start,
            )
    return following
