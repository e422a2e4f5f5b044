"""`tt.dot` as a register-tiled microkernel.

A tile of accumulators stays in vector registers over the whole inner dimension; the left operand is
read element by element and broadcast, the right one a row of vectors at a time. Operands that are
plain contiguous f32 loads are read where they stand (a packed weight never moves) if their rows
follow each other closely, or are read for few columns. Rows far apart would share the few lines
that the nearest cache has for addresses alike, and take an entry of the table of pages each; they
are copied next to each other first, as is all that is computed, as f32. Where the instruction set
multiplies neighbours along the inner dimension, both operands are read by words of them instead
(`word_sides.py`). Where the masks of both operands say that nothing follows in the inner dimension,
the loop ends there, and so do copies; a mask that says nothing else is left out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeAlias

from aotc.aot.targets.cpu import (
    batched,
    copies,
    fused_store,
    memory,
    operands,
    root_ops,
    tiles,
    word_sides,
)
from aotc.aot.targets.cpu.depths import Depth, depths_of
from aotc.aot.targets.cpu.dot_tiles import Tile, choose_tile, rest_height
from aotc.aot.targets.cpu.evaluate import Kernel, StoredProduct
from aotc.aot.targets.cpu.lanes import ITEMSIZE_BYTES, compare, typed
from aotc.aot.targets.cpu.linear import LLVM_TYPES, Int, Linear, Pointer, integer
from aotc.aot.targets.cpu.memory import Buffer, Index
from aotc.aot.targets.cpu.ttir import Operation, Value, unsupported
from aotc.aot.targets.cpu.word_sides import Instruction, Left, Right
from aotc.aot.targets.cpu.writer import Loop, Operand, constant

ACCUMULATE = {"f32": "fma", "f64": "fma", "i32": "mul"}
"""Accumulator type → how a product is added; operands are widened to it."""
FEWEST_ROWS = 16  # of a product, from which a copy of B costs little beside its multiplications
MANY_COLUMNS = 256  # of a product, from which the same is true of a copy of A
LINE_BYTES = 64  # of the cache
PAGE_BYTES = 4096
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
    is_transposed: bool = False
    """The buffer holds the columns one after the other."""
    start: Int | None = None
    """The buffer's first column, if not the operand's own first."""
    is_computed: bool = False
    """Its elements are computed where they are multiplied, as each is multiplied once."""
    is_paired: bool = False
    """A load of bf16 whose rows lie in pairs: a word has an element of an even row and below it one
    of the next row."""
    cut: tiles.Conjunct | None = None
    """The mask of a load, which holds wherever the microkernel reads."""
    end: tiles.Conjunct | None = None
    """The part of a load's mask beyond which the microkernel reads nothing along the depth."""

    def at(self, kernel: Kernel, index: Index) -> Operand:
        """The element, or the lanes, at an index of the operand."""
        found: list[Operand] = []
        cuts = () if self.cut is None else (self.cut,)
        tiles.with_facts(kernel, cuts, index, lambda at: found.append(self._at(kernel, at)))
        return found[0]

    def _at(self, kernel: Kernel, index: Index) -> Operand:
        if self.is_paired:
            return operands.of_pairs(kernel, self.value, index)
        if self.buffer is None:
            found = kernel.lanes.operand(kernel.at(self.value, index))
            return copies.widen(kernel, found, self.value, self.wide) if self.is_computed else found
        row, column = index
        if self.start is not None:
            column = kernel.lanes.add(column, self.start, -1)
        place = (column, row) if self.is_transposed else (row, column)
        return kernel.lanes.operand(memory.read_buffer(kernel, self.buffer, place))

    def strip(self, kernel: Kernel, column: Int, columns: int) -> Side:
        """The operand with so many columns from `column` on copied, where it must be copied."""
        if self.is_direct or self.is_computed or self.buffer is not None:
            return self
        start = None if column.constant == 0 else column
        buffer = _widened(kernel, self, columns, start)
        return self._replace(buffer=buffer, start=start)


def side(
    kernel: Kernel,
    dot: Operation,
    rows: int,
    *,
    is_left: bool,
    depth: Depth | None = None,
) -> Side:
    """An operand of a product of so many rows; the left one is copied at once, if at all."""
    value, wide = dot.operands[0 if is_left else 1], dot.results[0].type.element
    cut = depth.end if depth is not None and depth.is_whole else None
    found = Side(value, wide, cut=cut, end=None if depth is None else depth.end)
    found = _known(kernel, found)
    if found.buffer is not None:
        return found
    transposed = _transposed(kernel, value) if is_left else None
    if transposed is not None:
        source = _known(kernel, Side(transposed, found.wide))
        columns = (transposed.type.shape or ())[1]
        return source.strip(kernel, integer(0), columns)._replace(is_transposed=True)
    if not is_left and operands.is_paired(kernel, value, found.wide):
        return found._replace(is_direct=True, is_paired=True)
    stands_well = value.type.element == found.wide and is_direct(
        kernel, value, rows, is_left, is_cut=cut is not None
    )
    if stands_well and not (is_left and _is_spread(kernel, dot, rows)):
        return found._replace(is_direct=True)
    shape = value.type.shape or ()
    if not is_left and _is_read_once(kernel, value, rows, shape, found.wide):
        return found._replace(is_computed=True)
    if not is_left:
        return found
    is_transposed = rows >= FEWEST_ROWS and tiles.lane_dimension(kernel, value) == 0
    return found._replace(is_transposed=is_transposed).strip(kernel, integer(0), shape[1])


def _is_read_once(
    kernel: Kernel, value: Value, rows: int, shape: tuple[int, ...], wide: str
) -> bool:
    """Whether B is computed, lanes along its rows, and one block of rows takes all of it."""
    made = value.owner
    if made is None or made.name == "tt.load" or value in kernel.pending:
        return False
    if tiles.lane_dimension(kernel, value) != 1:
        return False
    return rows <= choose_tile(kernel, rows, shape[1], shape[0], wide).rows


def _known(kernel: Kernel, operand: Side) -> Side:
    """The operand with the buffer that it stands in already, if that serves."""
    known = kernel.buffers.get(operand.value)
    if known is None or known.element != operand.wide or known.bounds:
        return operand
    return operand._replace(buffer=known)


def _transposed(kernel: Kernel, value: Value) -> Value | None:
    """x where the left operand is the transposed x and x is computed: it is read by elements, so
    that any order serves."""
    made = value.owner
    if made is None or made.name != "tt.trans" or value in kernel.buffers:
        return None
    source = made.operands[0]
    behind = source.owner
    is_load = behind is not None and behind.name == "tt.load"
    return None if is_load and source not in kernel.buffers else source


def is_direct(
    kernel: Kernel, value: Value, rows: int, is_left: bool, *, is_cut: bool = False
) -> bool:
    """Whether the operand is best read where it stands.

    It is a load without a mask, or one that is cut where its mask ends, or B of few rows, whose
    copy would take as long as the product; its address is linear in the inner dimension, and B's
    rows are contiguous.
    """
    load = value.owner
    if load is None or load.name != "tt.load" or value in kernel.pending:
        return False
    if len(load.operands) > 1 and not is_cut and (is_left or rows >= FEWEST_ROWS):
        return False
    stride = operands.step(kernel, load.operands[0], 1 if is_left else 0, may_be_kept=is_left)
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
    with kernel.width(width), kernel.probe() as depth:
        mark = kernel.lanes.atom(Operand("%column", "i32", depth), "i32", width, natural=True)
        column = Int("i32", mark.base, Linear((), 1) if width > 1 else Linear())
        pointer = kernel.at(load.operands[0], (integer(0), column))
        return width == 1 or memory.is_contiguous(pointer)


def _is_spread(kernel: Kernel, dot: Operation, rows: int) -> bool:
    """Whether each row of the left operand has pages of its own and many columns read it: rows that
    far apart share a few places of the nearest cache, once for each strip of columns."""
    value, columns = dot.operands[0], (dot.results[0].type.shape or ())[1]
    if rows < FEWEST_ROWS or columns < MANY_COLUMNS or value.owner is None:
        return False
    row_step = operands.step(kernel, value.owner.operands[0], 0)
    item_bytes = ITEMSIZE_BYTES[value.type.element]
    return row_step is not None and abs(row_step) * item_bytes >= PAGE_BYTES


def _widened(kernel: Kernel, operand: Side, columns: int, start: Int | None) -> Buffer:
    """Computes some columns of an operand into scratch, in the accumulator's input type."""
    value = operand.value
    shape = ((value.type.shape or ())[0], columns)
    item_bytes = ITEMSIZE_BYTES[operand.wide]
    # A line more than a column has: steps of a power of two would share a few places of the cache.
    place = (columns, shape[0] + LINE_BYTES // item_bytes) if operand.is_transposed else shape
    memory_bytes = item_bytes * place[0] * place[1]
    buffer = Buffer(kernel.allocate(memory_bytes), place, operand.wide, kernel.writer.depth)
    lane = tiles.lane_dimension(kernel, value)
    block = min(kernel.isa.lanes, *shape)
    is_whole = block == kernel.isa.lanes and value not in kernel.pending
    if lane == 0 and not operand.is_transposed and is_whole:
        copies.write_transposed(kernel, value, buffer, shape, block, start or integer(0))
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
        found = copies.widen(kernel, found, operand.value, buffer.element)
        place = (column, row) if operand.is_transposed else (row, column)
        pointer = memory.buffer_pointer(kernel, buffer, place)
        memory.write(kernel, pointer, found, buffer.element, None)

    ends = () if operand.end is None else (operand.end,)
    tiles.run(kernel, shape, body, lane_dim=lane, cuts=ends)
    if filling is not None:
        filling.finish([each.bound for each in ends])


class Turn(NamedTuple):
    """One turn of a loop around a product, with the operands as they are then."""

    loop: Loop
    a: Side | Left
    b: Side | Right
    limit: Operand | None = None
    """Elements of the depth that are not zeros in this turn; None: as many as in each."""

    def of(self, product: Product) -> Product:
        """A product as it is in this turn."""
        limit = product.limit if self.limit is None else self.limit
        return product._replace(a=self.a, b=self.b, limit=limit)


Turns: TypeAlias = Callable[[Sequence[Operand]], AbstractContextManager[Turn]]
"""Sums to start with → the turns, which carry the sums."""


class Product(NamedTuple):
    """accumulator[rows, columns] += a[rows, depth] · b[depth, columns], by tiles."""

    a: Side | Left
    b: Side | Right
    instruction: Instruction | None
    """What multiplies both by words; None: one element by one."""
    shape: tuple[int, int]
    """Rows and columns."""
    accumulator: Buffer | None
    """None where the elements are stored at once and start from nothing."""
    depth: int
    limit: Operand
    """Elements of the depth that are not all zeros in both operands, or more."""
    kind: str
    tile: Tile
    is_new: bool
    """The accumulator holds nothing yet."""
    is_apart: bool
    """Products are added up by themselves before they go to the accumulator."""
    limits: tuple[Operand, Operand]
    """Rows and columns that anybody asks for."""
    stored: StoredProduct | None
    """The stores that take the elements."""
    is_last: Operand | None
    """Whether they take them now: in the last turn of the loop around; None: they do."""
    turns: Turns | None = None
    """The loop around, which runs for each block; None: it runs outside of all blocks."""
    whole_depth: int = 0
    """Of all turns of that loop; 0 where it is not known."""

    @property
    def strip_columns(self) -> int:
        return self.tile.vectors * self.tile.width

    @property
    def pack(self) -> int:
        """Elements of the inner dimension that one instruction adds up."""
        return 1 if self.instruction is None else self.instruction.pack

    @property
    def narrow(self) -> int:
        """Rows of the right operand, where it is read as it stands, in the bytes of a vector's."""
        return (2 if self.b.is_paired else 1) if isinstance(self.b, Side) else self.pack

    @property
    def turn(self) -> int:
        """Those of a turn of the loop."""
        return self.tile.unroll * self.pack


def dot(kernel: Kernel, operation: Operation) -> None:
    """`tt.dot(a, b, c)`: a[M, K] · b[K, N] + c[M, N] into a buffer."""
    result = operation.results[0]
    shape = result.type.shape or ()
    kind = result.type.element
    if len(shape) not in (2, 3) or kind not in ACCUMULATE:
        raise unsupported(f"a dot with a result of rank {len(shape)} and type `{kind}`")
    if len(shape) == 3:
        batched.dot(kernel, operation)
        return
    product = _product(kernel, operation, (shape[0], shape[1]))
    multiply(kernel, product)
    if product.accumulator is not None:
        kernel.buffers[result] = product.accumulator._replace(min_depth=kernel.writer.depth)


def multiply(kernel: Kernel, product: Product) -> None:
    """All of a product, as narrow strips only where few columns may be asked for."""
    whole = _with_all_columns(kernel, product)
    if whole is None:
        strips(kernel, product)
        return
    limit, columns = product.limits[1], product.shape[1]
    is_whole = compare(kernel.lanes, "icmp eq", limit, constant(columns, "i32"))
    each = [functools.partial(strips, kernel, one) for one in (whole, product)]
    kernel.writer.branch(is_whole, each)


def _with_all_columns(kernel: Kernel, product: Product) -> Product | None:
    """The product where all columns are asked for, as they are of all tiles but the last: what is
    not known may be few, and takes narrow strips. None where it is known, or no other."""
    if product.limits[1].text.isdigit() or product.instruction is not None:
        return None
    unit = 1 if product.b.is_direct else kernel.isa.lanes
    tile = choose_tile(kernel, *product.shape, product.depth, product.kind, unit=unit)
    tile = tile._replace(unroll=product.tile.unroll)
    limits = (product.limits[0], constant(product.shape[1], "i32"))
    return None if tile == product.tile else product._replace(tile=tile, limits=limits)


def strips(kernel: Kernel, product: Product) -> list[Operand]:
    """All strips of the columns that are asked for."""
    if product.shape[1] == product.strip_columns:
        _strip(kernel, product, integer(0))
        return []
    limit = product.limits[1]
    with kernel.writer.loop(limit, product.strip_columns, may_skip=may_skip(limit)) as loop:
        column = kernel.lanes.atom(loop.counter, "i32", product.strip_columns, natural=True)
        _strip(kernel, product, column)
    return []


def _product(kernel: Kernel, operation: Operation, shape: tuple[int, int]) -> Product:
    left, _, start = operation.operands
    depth = (left.type.shape or ())[1]
    found = kernel.fused_store
    stored = found if found is not None and found.dot is operation else None
    is_new = operands.is_zero(kernel, start)
    is_at_once = is_new and stored is not None and stored.operation is operation
    whole = constant(shape[0], "i32"), constant(shape[1], "i32")
    asked = kernel.asked_for
    is_cut = asked is not None and asked.dot is operation
    limits = fused_store.limits(asked, kernel) if asked is not None and is_cut else whole
    kind = operation.results[0].type.element
    instruction = word_sides.instruction_of(kernel, operation)
    limit = constant(depth, "i32")
    a: Side | Left
    b: Side | Right
    if instruction is not None:
        tile = choose_tile(kernel, *shape, depth // instruction.pack, kind, limits[1])
        a = word_sides.left_of(kernel, operation.operands[0], instruction)
        columns = tile.vectors * tile.width
        b = word_sides.right_of(kernel, operation.operands[1], columns, instruction)
    else:
        depths = depths_of(kernel, operation)
        a = side(kernel, operation, shape[0], is_left=True, depth=depths[0])
        b = side(kernel, operation, shape[0], is_left=False, depth=depths[1])
        unit = 1 if b.is_direct else kernel.isa.lanes  # copies are loops over whole vectors
        tile = choose_tile(kernel, *shape, depth, kind, limits[1], unit)
        if depths[0] is not None:
            ends = (depths[0].end,)
            limit = tiles.limit(kernel, ends, depth)[0]
            if not tiles.end_at_multiples(ends, tile.unroll):
                tile = tile._replace(unroll=1)
    return Product(
        a,
        b,
        instruction,
        shape,
        None if is_at_once else accumulator_of(kernel, operation, start),
        depth,
        limit,
        kind,
        tile,
        is_new,
        operands.is_apart(operation),
        limits,
        stored,
        None if stored is None else fused_store.is_last_turn(stored, kernel),
    )


def may_skip(limit: Operand) -> bool:
    """Whether a loop from 0 on to `limit` may make no turn."""
    return not limit.text.isdigit() or int(limit.text) == 0


def _strip(kernel: Kernel, product: Product, column: Int) -> None:
    """All rows of one strip of columns: whole tiles, then what is left."""
    right = product.b.strip(kernel, column, product.strip_columns)
    product = product._replace(b=right)
    rows, tall, limit = product.shape[0], product.tile.rows, product.limits[0]
    height = rest_height(rows, tall, product.tile.vectors)
    whole = rows // tall * tall
    if height not in (0, rows - whole):
        whole -= tall
    if whole == tall:
        _block(kernel, product, tall, integer(0), column)
    elif whole:
        upper = _smaller(kernel, limit, whole)
        with kernel.writer.loop(upper, tall, may_skip=may_skip(upper)) as loop:
            row = kernel.lanes.atom(loop.counter, "i32", tall, natural=True)
            _block(kernel, product, tall, row, column)
    if rows > whole:
        with kernel.writer.loop(limit, height, lower=constant(whole, "i32")) as loop:
            row = integer(whole)
            if rows - whole > height:
                unit = math.gcd(whole, height)
                row = kernel.lanes.atom(loop.counter, "i32", unit, natural=True)
            _block(kernel, product, height, row, column)


def _smaller(kernel: Kernel, limit: Operand, size: int) -> Operand:
    if limit.text.isdigit():
        return constant(min(int(limit.text), size), "i32")
    return kernel.writer.call("llvm.smin.i32", "i32", [limit, constant(size, "i32")])


def _block(kernel: Kernel, product: Product, rows: int, row: Int, column: Int) -> None:
    """accumulator[row : +rows, column : +strip] += a[row : +rows, :] · b[:, column : +strip]

    Those that are apart are added to it as a sum of their own: the terms of deep products are so
    added in parts, whose roundings do not grow with the depth as those of one long sum do.
    """
    tile, accumulator = product.tile, product.accumulator
    places = [
        (kernel.lanes.add(row, integer(i)), _vector_index(kernel, tile, column, j))
        for i in range(rows)
        for j in range(tile.vectors)
    ]
    with kernel.width(tile.width):
        zero = constant("zeroinitializer", kernel.lanes.vector_type(LLVM_TYPES[product.kind]))
        before = None
        if accumulator is not None and not product.is_new:
            before = functools.partial(_before, kernel, accumulator, places)
        start = [zero] * len(places) if before is None or product.is_apart else before()
        if product.turns is None:
            totals = _sums(kernel, product, rows, (row, column), start)
        elif product.is_apart:
            totals = _in_parts(kernel, product, rows, (row, column), start)
        else:
            with kernel.width(1), product.turns(start) as turn:
                own, carried = turn.of(product), list(turn.loop.carried)
                with kernel.width(tile.width):
                    found = _sums(kernel, own, rows, (row, column), carried)
                turn.loop.next_values = found
            totals = turn.loop.results
        if before is not None and product.is_apart:
            pairs = zip(before(), totals, strict=True)
            totals = [kernel.lanes.binary("fadd", one, more) for one, more in pairs]
        _leave(kernel, product, places, totals)


def _sums(
    kernel: Kernel, product: Product, rows: int, place: tuple[Int, Int], start: list[Operand]
) -> list[Operand]:
    """A block of sums at (row, column) over the depth, from `start` on."""
    (row, column), limit = place, product.limit
    start = _started(kernel, product, rows, row, start)
    with kernel.writer.loop(limit, product.turn, start, may_skip=may_skip(limit)) as loop:
        totals = list(loop.carried)
        inner = kernel.lanes.atom(loop.counter, "i32", product.turn, natural=True)
        for step in range(0, product.turn, product.pack):
            at = kernel.lanes.add(inner, integer(step))
            totals = _outer_product(kernel, product, rows, (row, at, column), totals)
        _prefetch(kernel, product, (row, inner, column))
        loop.next_values = totals
    return list(loop.results)


def _in_parts(
    kernel: Kernel, product: Product, rows: int, place: tuple[Int, Int], zeros: list[Operand]
) -> list[Operand]:
    """A block of sums over all turns of the loop around. Each turn's are added up by themselves,
    and then to what stands in memory, near as it is little."""
    assert product.turns is not None
    tile = product.tile
    shape = (rows, product.strip_columns)
    memory_bytes = ITEMSIZE_BYTES[product.kind] * shape[0] * shape[1]
    sums = Buffer(kernel.allocate(memory_bytes), shape, product.kind, kernel.writer.depth)
    places = [
        (integer(i), _vector_index(kernel, tile, integer(0), j))
        for i in range(rows)
        for j in range(tile.vectors)
    ]

    def leave(values: Sequence[Operand]) -> None:
        for index, value in zip(places, values, strict=True):
            pointer = memory.buffer_pointer(kernel, sums, index)
            memory.write(kernel, pointer, value, product.kind, None)

    leave(zeros)
    with kernel.width(1), product.turns([]) as turn:
        with kernel.width(tile.width):
            found = _sums(kernel, turn.of(product), rows, place, zeros)
            now = sums._replace(min_depth=kernel.writer.depth)
            pairs = zip(_before(kernel, now, places), found, strict=True)
            leave([kernel.lanes.binary("fadd", one, more) for one, more in pairs])
        turn.loop.next_values = []
    return _before(kernel, sums._replace(min_depth=kernel.writer.depth), places)


def _before(kernel: Kernel, accumulator: Buffer, places: Sequence[Index]) -> list[Operand]:
    """What the accumulator holds at the places, a vector each."""
    return [
        kernel.lanes.operand(memory.read_buffer(kernel, accumulator, place)) for place in places
    ]


def _started(
    kernel: Kernel, product: Product, rows: int, row: Int, start: list[Operand]
) -> list[Operand]:
    """Sums before the first product, a row of vectors after the other."""
    if not isinstance(product.a, Left):
        return start
    lanes, made = kernel.lanes, []
    for i in range(rows):
        more = product.a.before(kernel, lanes.add(row, integer(i)))
        own = start[i * product.tile.vectors : (i + 1) * product.tile.vectors]
        made += own if more is None else [lanes.binary("add", x, lanes.splat(more)) for x in own]
    return made


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
            made.append(_added(kernel, product, left, right[j], totals[i * tile.vectors + j]))
    return made


def _added(
    kernel: Kernel, product: Product, left: Operand, right: Operand, total: Operand
) -> Operand:
    """total + left · right, in all lanes."""
    lanes, width = kernel.lanes, product.tile.width
    if product.instruction is not None:
        return product.instruction.added(kernel, left, lanes.splat(right), total)
    if ACCUMULATE[product.kind] != "fma":
        return lanes.binary("add", lanes.binary("mul", left, right), total)
    suffix = f"v{width}{product.kind}" if width > 1 else product.kind
    return kernel.writer.call(f"llvm.fma.{suffix}", total.type, [left, lanes.splat(right), total])


def _prefetch(kernel: Kernel, product: Product, place: tuple[Int, Int, Int]) -> None:
    """Asks for some of the cache lines that follow this block of B: the next one of a weight.

    The requests of all tiles together run once through as many bytes as the block has, at the pace
    at which the processor works, so that memory is asked evenly. Past the end of B they are hints
    about memory that nobody reads.
    """
    load = product.b.value.owner if product.b.is_direct else None
    tile, (rows, columns) = product.tile, product.shape
    if load is None or columns % product.strip_columns:
        return
    lanes = kernel.lanes
    row, inner, column = place
    down = -(-rows // tile.rows)
    narrow = product.narrow  # rows whose elements have the bytes of one f32
    requests = -(-tile.vectors * product.turn // (narrow * down))  # a turn of the loop
    with kernel.width(1):
        depth = product.whole_depth or product.depth
        following = kernel.at(load.operands[0], (integer(depth), integer(0)))
        if not isinstance(following, Pointer):
            return
        strip = lanes.divide(column, integer(product.strip_columns), remainder=False)
        which = lanes.multiply(strip, integer(down))
        which = lanes.add(which, lanes.divide(row, integer(tile.rows), remainder=False))
        turn = lanes.divide(inner, integer(product.turn), remainder=False)
        first = lanes.add(lanes.multiply(which, integer(product.depth // product.turn)), turn)
        for request in range(requests):
            line = lanes.add(lanes.multiply(first, integer(requests)), integer(request))
            offset = lanes.extend(lanes.multiply(line, integer(narrow * tile.width)), "i64")
            moved = following.at(lanes.add(following.offset, offset))
            address = kernel.lanes.operand(moved)
            kernel.writer.effect(f"call void @llvm.prefetch.p0({address}, i32 0, i32 2, i32 1)")


def accumulator_of(kernel: Kernel, operation: Operation, start: Value) -> Buffer:
    """The buffer to add to, holding `c`: the loop's own where the loop carries this dot."""
    target = kernel.in_place.get(operation.results[0])
    if start in kernel.buffers and target is not None and kernel.buffers[start].base == target.base:
        return target._replace(min_depth=kernel.writer.depth)
    if start in kernel.pending:
        root_ops.force(kernel, start)
    into = target or root_ops.new_buffer(kernel, operation.results[0])
    if operands.is_zero(kernel, start):
        return into._replace(min_depth=kernel.writer.depth)
    return root_ops.materialize(kernel, start, into)
