"""`tt.dot` of bf16 and of 8-bit integers by the processor's tiles (AMX).

A tile is a register of 16 rows of 64 bytes. One instruction multiplies a tile of the left operand
by one of the right, whose bytes hold pairs of rows (fours of 8-bit ones) side by side: element
(k, n) of B stands in row k / 2, at place 2n + k mod 2. A block of up to 2 × 2 tiles of accumulators
stays in registers over the inner dimension, of 4 × 1 where there are no more columns. Operands that
stand in memory so are read there; all others are copied into that order first, the left one whole,
the right one a strip at a time.

The tiles are configured before a product and released after it, so that nothing of them is left
to whoever runs next on the thread (Intel 64 and IA-32 Architectures Software Developer's Manual,
volume 1, chapter 18). `TDPBF16PS` takes subnormal inputs as zeros and gives no subnormal sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from aotc.aot.targets.cpu import copies, fused_store, memory, operands, root_ops, words
from aotc.aot.targets.cpu import dot as vectors
from aotc.aot.targets.cpu.evaluate import Kernel, StoredProduct
from aotc.aot.targets.cpu.lanes import ITEMSIZE_BYTES, typed
from aotc.aot.targets.cpu.linear import Int, Linear, integer
from aotc.aot.targets.cpu.memory import Buffer
from aotc.aot.targets.cpu.ttir import Operation, Value
from aotc.aot.targets.cpu.words import WORD_BYTES, Copy, Matrix
from aotc.aot.targets.cpu.writer import Operand, constant

TILE_ROWS = 16
ROW_BYTES = 64
LINE_BYTES = 64  # of the cache
ACCUMULATORS = 4  # tiles; the other four hold operands
TILES = 8
FEWEST_STREAMING_ROWS = 128  # below which requests for memory would take longer than products
FEWEST_ROWS = 4  # of a product, from which tiles beat vectors
FEWEST_COLUMNS = 8
PADDING_BYTES = 64  # a row of a copy has: steps of a power of two share few places of the cache


class Kind(NamedTuple):
    """What the tiles multiply: type of the sums, instruction."""

    total: str
    instruction: str


KINDS = {"bf16": Kind("f32", "tdpbf16ps"), "i8": Kind("i32", "tdpbssd")}
"""By the operands' element type."""


class Shape(NamedTuple):
    """Sizes of a product and of the block of tiles that goes over it, in elements."""

    rows: int
    columns: int
    depth: int
    element: str
    height: int
    """Rows of a tile of accumulators."""
    width: int
    """Columns of one."""
    inner: int
    """Elements of the inner dimension that one instruction adds up."""
    down: int
    """Tiles of accumulators in a column of the block."""
    across: int

    @property
    def item_bytes(self) -> int:
        return self.order.item_bytes

    @property
    def pack(self) -> int:
        """Elements of a word of the right operand."""
        return self.order.pack

    @property
    def order(self) -> words.Order:
        """In which the right operand is read."""
        return words.Order(self.element, self.depth, self.block_columns)

    @property
    def lefts(self) -> int:
        """Tiles that hold the left operand, in turns where the block has more below each other."""
        return min(self.down, TILES - ACCUMULATORS - 1)

    @property
    def block_rows(self) -> int:
        return self.down * self.height

    @property
    def block_columns(self) -> int:
        return self.across * self.width

    def lanes(self, kernel: Kernel) -> int:
        """Elements of a vector that leaves the block."""
        return min(kernel.isa.lanes, self.block_columns)

    def configuration(self) -> str:
        """LLVM text of the 64 bytes that `LDTILECFG` reads: palette 1, bytes a row, rows."""
        wide, left = self.width * WORD_BYTES, self.inner * self.item_bytes
        sums = [(wide, self.height)] * ACCUMULATORS
        of_left = [(left, self.height)] * self.lefts
        of_right = [(wide, self.inner // self.pack)] * (TILES - ACCUMULATORS - self.lefts)
        found = [*sums, *of_left, *of_right]
        data = bytearray(ROW_BYTES)
        data[0] = 1
        for tile, (row_bytes, rows) in enumerate(found):
            data[16 + 2 * tile : 18 + 2 * tile] = row_bytes.to_bytes(2, "little")
            data[48 + tile] = rows
        items = ", ".join(f"i8 {byte}" for byte in data)
        return f"[{ROW_BYTES} x i8] [{items}], align 64"


class Product(NamedTuple):
    """accumulator[rows, columns] += a[rows, depth] · b[depth, columns], by blocks of tiles."""

    operation: Operation
    shape: Shape
    left: Matrix
    accumulator: Buffer | None
    """None where the elements are stored at once and start from nothing."""
    block: Buffer | None
    """Where a block of accumulators that is stored at once leaves the tiles."""
    is_new: bool
    limits: tuple[Operand, Operand]
    stored: StoredProduct | None
    is_last: Operand | None
    """Whether the stores take the elements now: in the last turn of the loop; None: they do."""


def dot(kernel: Kernel, operation: Operation) -> None:
    """`tt.dot(a, b, c)` by tiles where the instruction set has them for it, else by vectors."""
    shape = shape_of(kernel, operation)
    if shape is None:
        vectors.dot(kernel, operation)
        return
    product = _product(kernel, operation, shape)
    right = _right(kernel, product)
    configure(kernel, shape)
    if isinstance(right, Matrix):
        _over_rows(kernel, product, lambda row: _over_columns(
            kernel, product, lambda column: _block(kernel, product, right, row, column)
        ))  # fmt: skip
    else:
        _over_columns(kernel, product, lambda column: _strip(kernel, product, right, column))
    release(kernel)
    if product.accumulator is not None:
        depth = kernel.writer.depth
        kernel.buffers[operation.results[0]] = product.accumulator._replace(min_depth=depth)


def configure(kernel: Kernel, shape: Shape) -> None:
    """Gives the tiles their sizes."""
    configuration = kernel.constants.setdefault(
        shape.configuration(), f"@tiles{len(kernel.constants)}"
    )
    kernel.writer.effect(f"call void @llvm.x86.ldtilecfg(ptr {configuration})")


def release(kernel: Kernel) -> None:
    """Leaves nothing in the tiles."""
    kernel.writer.effect("call void @llvm.x86.tilerelease()")


def shape_of(kernel: Kernel, operation: Operation) -> Shape | None:
    """How tiles go over the product; None where the instruction set has none that multiply it, or
    it is too small for them."""
    left, right = operation.operands[:2]
    kind, result = KINDS.get(left.type.element), operation.results[0].type
    dims = result.shape or ()
    if not kernel.isa.has_tiles or kind is None or len(dims) != 2:
        return None
    if right.type.element != left.type.element or result.element != kind.total:
        return None
    (rows, columns), depth = dims, (left.type.shape or ())[1]
    item_bytes = ITEMSIZE_BYTES[left.type.element]
    if rows < FEWEST_ROWS or columns < FEWEST_COLUMNS or depth * item_bytes < 2 * WORD_BYTES:
        return None
    height, width = min(TILE_ROWS, rows), min(ROW_BYTES // WORD_BYTES, columns)
    is_narrow = columns < 2 * width and rows % (ACCUMULATORS * height) == 0
    down = ACCUMULATORS if is_narrow else min(2, rows // height)
    across = min(ACCUMULATORS // down, columns // width)
    inner = min(ROW_BYTES // item_bytes, depth)
    element = left.type.element
    return Shape(rows, columns, depth, element, height, width, inner, down, across)


def cut(shape: Shape, depth: int) -> Shape | None:
    """The same with fewer elements of the inner dimension; None where they fill no equal tiles."""
    most = ROW_BYTES // shape.item_bytes
    for steps in range(-(-depth // most), depth // shape.pack + 1):
        if depth % (steps * shape.pack) == 0:
            return shape._replace(depth=depth, inner=depth // steps)
    return None


def _product(kernel: Kernel, operation: Operation, shape: Shape) -> Product:
    start = operation.operands[2]
    found = kernel.fused_store
    stored = found if found is not None and found.dot is operation else None
    is_new = operands.is_zero(kernel, start)
    is_at_once = is_new and stored is not None and stored.operation is operation
    whole = constant(shape.rows, "i32"), constant(shape.columns, "i32")
    return Product(
        operation,
        shape,
        _left(kernel, operation.operands[0], shape),
        None if is_at_once else vectors.accumulator_of(kernel, operation, start),
        None if stored is None else block_buffer(kernel, shape),
        is_new,
        whole if stored is None else fused_store.limits(stored, kernel),
        stored,
        None if stored is None else fused_store.is_last_turn(stored, kernel),
    )


def block_buffer(kernel: Kernel, shape: Shape) -> Buffer:
    size = (shape.block_rows, shape.block_columns)
    base = kernel.allocate(WORD_BYTES * size[0] * size[1])
    return Buffer(base, size, KINDS[shape.element].total, kernel.writer.depth)


# -------------------------------------------------------------------- operands


def _left(kernel: Kernel, value: Value, shape: Shape) -> Matrix:
    """The left operand where it stands, or a copy of it."""
    if value in kernel.pending:
        root_ops.force(kernel, value)
    found = left_in_place(kernel, value, shape)
    if found is not None:
        return found
    known = kernel.buffers.get(value)
    if known is None or known.bounds or known.element != shape.element:
        padding = 0 if shape.depth == shape.inner else PADDING_BYTES // shape.item_bytes
        known = copies.copied(kernel, value, (shape.rows, shape.depth + padding))
    return words.of_buffer(kernel, known)


def left_in_place(kernel: Kernel, value: Value, shape: Shape) -> Matrix | None:
    """The left operand if it stands in memory in rows at a steady distance, for the depth of the
    shape: where that is less than all, its mask holds."""
    is_cut = shape.depth < (value.type.shape or (0, 0))[1]
    load = operands.plain_load(kernel, value, is_cut=is_cut)
    if load is None:
        return None
    step = operands.row_step(kernel, load.operands[0], shape.height, shape.inner)
    return None if step is None else words.of_load(kernel, load, step)


def _right(kernel: Kernel, product: Product) -> Copy | Matrix:
    """The right operand where it stands in the order of tiles, or what a strip is copied into."""
    value, shape = product.operation.operands[1], product.shape
    if value in kernel.pending:
        root_ops.force(kernel, value)
    found = right_in_place(kernel, value, shape)
    return words.copy_of(kernel, value, shape.order) if found is None else found


def right_in_place(kernel: Kernel, value: Value, shape: Shape) -> Matrix | None:
    """The right operand if it stands in memory in the order of tiles."""
    return words.right_in_place(kernel, value, shape.order, (shape.inner, shape.width))


# --------------------------------------------------------------- multiplication


def _over_rows(kernel: Kernel, product: Product, body: Callable[[Int], None]) -> None:
    """All blocks of rows that anybody asks for."""
    shape, limit = product.shape, product.limits[0]
    _over(kernel, shape.rows, shape.block_rows, limit, body)


def _over_columns(kernel: Kernel, product: Product, body: Callable[[Int], None]) -> None:
    shape, limit = product.shape, product.limits[1]
    _over(kernel, shape.columns, shape.block_columns, limit, body)


def _over(
    kernel: Kernel, size: int, step: int, limit: Operand, body: Callable[[Int], None]
) -> None:
    if size == step:
        body(integer(0))
        return
    with kernel.writer.loop(limit, step, may_skip=vectors.may_skip(limit)) as loop:
        body(kernel.lanes.atom(loop.counter, "i32", step, natural=True))


def _strip(kernel: Kernel, product: Product, right: Copy, column: Int) -> None:
    """All rows of one strip of columns, which is copied first."""
    copy = words.copied_strip(kernel, product.shape.order, right, column)
    _over_rows(kernel, product, lambda row: _block(kernel, product, copy, row, column))


def _block(kernel: Kernel, product: Product, right: Matrix, row: Int, column: Int) -> None:
    """accumulator[row : +block, column : +block] += a[row : +block, :] · b[:, strip]"""
    shape = product.shape
    with kernel.width(1):
        _announce_stores(kernel, product, row, column)
        if product.is_new or product.accumulator is None:
            clear(kernel, shape)
        else:
            move(kernel, "tileloadd64", shape, product.accumulator, (row, column))
        if shape.depth == shape.inner:
            _step(kernel, product, right, (row, integer(0), column))
        else:
            limit = constant(shape.depth, "i32")
            with kernel.writer.loop(limit, shape.inner, may_skip=False) as loop:
                inner = kernel.lanes.atom(loop.counter, "i32", shape.inner, natural=True)
                _step(kernel, product, right, (row, inner, column))
    _leave(kernel, product, row, column)


def _announce_stores(kernel: Kernel, product: Product, row: Int, column: Int) -> None:
    """Asks for the lines of memory that the block will be stored to, so that they are there when
    its multiplications end: rows of a result lie far apart, and each would be waited for."""
    shape, lanes = product.shape, kernel.lanes
    if product.stored is None:
        return
    rows = constant(shape.block_rows, "i32")
    if product.is_last is not None:  # none before the last turn of the loop around
        rows = kernel.writer.emit(
            f"select {product.is_last}, {rows}, i32 0", "i32", [product.is_last]
        )
    with kernel.writer.loop(rows, 1, may_skip=vectors.may_skip(rows)) as loop:
        own = lanes.add(row, lanes.atom(loop.counter, "i32", natural=True))
        for store in product.stored.stores:
            pointer = store.operands[0]
            items = LINE_BYTES // ITEMSIZE_BYTES[memory.stored_element(pointer.type.pointee)]
            for start in range(0, shape.block_columns, items):
                found = kernel.at(pointer, (own, lanes.add(column, integer(start))))
                address = lanes.operand(found)
                text = f"call void @llvm.prefetch.p0({address}, i32 1, i32 3, i32 1)"
                kernel.writer.effect(text)


def _step(kernel: Kernel, product: Product, right: Matrix, place_of: tuple[Int, Int, Int]) -> None:
    shape = product.shape
    multiply(kernel, shape, product.left, right, place_of)
    if right.is_streamed and shape.rows >= FEWEST_STREAMING_ROWS:
        ask_for_following(kernel, shape, right, place_of, shape.depth)


def multiply(
    kernel: Kernel,
    shape: Shape,
    left: Matrix,
    right: Matrix,
    place_of: tuple[Int, Int, Int],
    following: Callable[[int], None] = lambda total: None,
) -> None:
    """One step of the inner dimension at (row, inner, column): each operand is loaded just before
    it is multiplied. `following` writes what comes behind each product, by its accumulator."""
    lanes, (row, inner, column) = kernel.lanes, place_of
    instruction = KINDS[shape.element].instruction
    first_right = ACCUMULATORS + shape.lefts
    for i in range(shape.down):
        own = ACCUMULATORS + i % shape.lefts
        for j in range(shape.across):
            tile = first_right + j % (TILES - first_right)
            if i == 0:
                place = right.address(inner, lanes.add(column, integer(j * shape.width)))
                _load(kernel, tile, place, right.stride_bytes)
            if j == 0:
                place = left.address(lanes.add(row, integer(i * shape.height)), inner)
                _load(kernel, own, place, left.stride_bytes)
            total = i * shape.across + j
            registers = f"i8 {total}, i8 {own}, i8 {tile}"
            kernel.writer.effect(f"call void @llvm.x86.{instruction}({registers})")
            following(total)


def ask_for_following(
    kernel: Kernel, shape: Shape, right: Matrix, place_of: tuple[Int, Int, Int], depth: int
) -> None:
    """Asks for lines of the right operand that follow `depth` rows further on: weights come from
    memory. The blocks of rows share them, so that memory is asked evenly; past the operand's end
    they are hints about memory that nobody reads."""
    lanes, (row, inner, column) = kernel.lanes, place_of
    words = shape.inner // shape.pack
    blocks = -(-shape.rows // shape.block_rows)
    own = -(-words // blocks)
    first = lanes.divide(row, integer(shape.block_rows), remainder=False)
    start = lanes.add(inner, integer(depth))
    for word in range(own):
        which = lanes.add(lanes.multiply(first, integer(own)), integer(word))
        following = lanes.add(start, lanes.multiply(which, integer(shape.pack)))
        for line in range(shape.across):
            place = lanes.add(column, integer(line * shape.width))
            address = right.address(following, place)
            kernel.writer.effect(f"call void @llvm.prefetch.p0({address}, i32 0, i32 2, i32 1)")


def _load(kernel: Kernel, tile: int, address: Operand, stride_bytes: int) -> None:
    text = f"call void @llvm.x86.tileloadd64(i8 {tile}, {address}, i64 {stride_bytes})"
    kernel.writer.effect(text)


def clear(kernel: Kernel, shape: Shape) -> None:
    """Sets the accumulators of a block to zeros."""
    for tile in range(shape.down * shape.across):
        kernel.writer.effect(f"call void @llvm.x86.tilezero(i8 {tile})")


def move(
    kernel: Kernel, instruction: str, shape: Shape, buffer: Buffer, start: tuple[Int, Int]
) -> None:
    """Tiles of accumulators from or to a buffer."""
    stride_bytes = buffer.shape[1] * WORD_BYTES
    for i in range(shape.down):
        for j in range(shape.across):
            steps = integer(i * shape.height), integer(j * shape.width)
            place = tuple(kernel.lanes.add(a, b) for a, b in zip(start, steps, strict=True))
            address = kernel.lanes.operand(memory.buffer_pointer(kernel, buffer, place))
            tile = i * shape.across + j
            kernel.writer.effect(
                f"call void @llvm.x86.{instruction}(i8 {tile}, {address}, i64 {stride_bytes})"
            )


def _leave(kernel: Kernel, product: Product, row: Int, column: Int) -> None:
    """Takes a block of accumulators out of the tiles: to memory, or through the stores."""

    def keep() -> list[Operand]:
        assert product.accumulator is not None
        with kernel.width(1):
            move(kernel, "tilestored64", product.shape, product.accumulator, (row, column))
        return []

    def close() -> list[Operand]:
        assert product.stored is not None
        assert product.block is not None
        with kernel.width(1):
            start = integer(0), integer(0)
            move(kernel, "tilestored64", product.shape, product.block, start)
        _store_block(kernel, product, product.stored, product.block, row, column)
        return []

    if product.stored is None:
        keep()
    elif product.is_last is None:
        close()
    else:
        kernel.writer.branch(product.is_last, [close, keep])


def _store_block(
    kernel: Kernel, product: Product, stored: StoredProduct, block: Buffer, row: Int, column: Int
) -> None:
    """Through the stores, from where the tiles were left: those rows that anybody asks for."""
    shape, writer, lanes = product.shape, kernel.writer, kernel.lanes
    rows = constant(shape.block_rows, "i32")
    if not product.limits[0].text.isdigit():
        with kernel.width(1):
            rest = lanes.binary("sub", product.limits[0], lanes.operand(row))
            rows = writer.call("llvm.smin.i32", "i32", [rest, rows])
    with writer.loop(rows, 1, may_skip=vectors.may_skip(rows)) as loop:
        own = lanes.atom(loop.counter, "i32", natural=True)
        for place in range(0, shape.block_columns, shape.lanes(kernel)):
            store_vector(kernel, shape, stored, block, (own, integer(place)), (row, column))


def store_vector(
    kernel: Kernel,
    shape: Shape,
    stored: StoredProduct,
    block: Buffer,
    place: tuple[Int, Int],
    first: tuple[Int, Int],
    start: Value | None = None,
) -> None:
    """One vector of a block of accumulators, which begins at (row, column), through the stores;
    `start`: what is added to it first."""
    width = shape.lanes(kernel)
    with kernel.width(width):
        lanes, writer = kernel.lanes, kernel.writer
        here = block._replace(min_depth=writer.depth)
        lane = Linear((), 1) if width > 1 else Linear()
        read = Int("i32", place[1].base, lane)
        total = lanes.operand(memory.read_buffer(kernel, here, (place[0], read)))
        moved = Int("i32", lanes.add(first[1], place[1]).base, lane)
        index = lanes.add(first[0], place[0]), moved
        if start is not None:
            more = lanes.splat(lanes.operand(kernel.at(start, index)))
            total = lanes.binary("fadd", lanes.splat(total), more)
        known = writer.scope.memory
        known[stored.value, index, width] = typed(lanes, total, block.element)
        root_ops.write(kernel, stored.stores, stored.mask, index)
