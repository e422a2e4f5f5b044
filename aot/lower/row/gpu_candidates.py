"""Forms and block sizes of row kernels on a GPU, as tables: the cost model's choice first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, inf

from aotc.aot.ir.size import Extent, content, typical
from aotc.aot.lower.spec import Candidate
from aotc.aot.lower.tiles import VECTOR_BYTES, WARP, blocks, power_above, power_below, row_block
from aotc.aot.traits import TargetTraits

LARGEST_HELD = 1 << 15  # elements of a row in the registers of one program
LARGEST_TILE = 1 << 14  # elements of a tile of several rows or columns
FEWEST_STREAMED = 1 << 12  # elements of a row worth reading in chunks
COLUMN_BYTES = 128  # side by side in the tile of a column reduction, four sectors of memory
SMALLEST_PIECE = 1 << 12  # elements of a row that are worth a program of their own
MOST_WARPS = 32  # of a program
RUNNING = 8  # programs of a multiprocessor that run at once, of up to 8 warps
MOST_SHARING = 16  # programs that wait for each other: the smallest slice of a GPU runs as many


@dataclass(frozen=True, slots=True)
class RowShape:
    """What form and tiles of a row kernel depend on.

    `kept` rows or lanes (columns if not `is_lanes`) in each of `outer` blocks; `levels` passes over
    a row; `stores_elements`: something is stored for each element, not only for each row.
    """

    outer: Extent
    kept: Extent
    reduced: Extent
    element_bytes: float
    levels: int
    is_lanes: bool
    stores_elements: bool
    vector: int  # elements of one load of a thread
    can_share: bool  # elements are stored, and all partial values have 32 bits
    item_bytes: int  # of the shortest elements
    beside: int = 1  # columns of a tile for each kept one, where reduced elements lie between these
    operations: float = 0  # of each element
    window_terms: int = 0  # of a sum over a window that each element is, by weights of all rows
    is_scattered: bool = False  # what is stored lies along the kept elements
    steps: Extent = 0  # of tiles along the reduced elements; 0: as many as there are elements

    @property
    def rows(self) -> int:
        """Rows in all, typically."""
        return typical(self.outer * self.kept)

    @property
    def length(self) -> int:
        """Elements of a row, typically."""
        return typical(self.reduced)

    @property
    def width(self) -> int:
        """Kept rows or columns of a block, typically."""
        return typical(self.kept)

    @property
    def has_whole_vectors(self) -> bool:
        """Whether rows begin and end where loads of 16 bytes do."""
        return self.vector * self.item_bytes >= VECTOR_BYTES

    @property
    def row_bytes(self) -> float:
        """What is read of a row: half its traffic where as much is stored."""
        return self.length * self.element_bytes / (2 if self.stores_elements else 1)


@dataclass(frozen=True, slots=True)
class RowTiles:
    """One form of a row kernel with its candidates."""

    form: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """Rows up to `reduced` padded elements: rows a program and warps."""

    reduced: int
    picks: tuple[tuple[int, int], ...]


# Measured on an H200 (benchmarks/gpu/rows.py); a thread holds 8 to 64 elements. Of rows up to 64
# sizes of the second-level cache were.
_HELD = (
    Held(8, ((128, 4), (256, 4), (64, 2))),
    Held(16, ((64, 4), (128, 4), (32, 2))),
    Held(32, ((32, 4), (64, 4), (16, 2))),
    Held(64, ((16, 4), (32, 4), (16, 2), (8, 1))),
    Held(128, ((8, 1), (16, 4), (16, 2))),
    Held(256, ((4, 1), (8, 4), (4, 2))),
    Held(512, ((2, 1), (4, 2), (8, 4))),
    Held(1024, ((1, 1), (2, 2), (1, 2), (4, 4))),
    Held(2048, ((1, 2), (1, 4), (2, 4), (1, 1))),
    Held(4096, ((1, 8), (1, 4), (2, 8))),
    Held(8192, ((1, 8), (1, 4), (1, 16))),
    Held(16384, ((1, 16), (1, 8), (1, 32))),
    Held(32768, ((1, 32), (1, 16))),
)


# Rows up to 64 padded elements that are loaded one by one: a warp has half of one at a time, and
# where there are several warps two have it and meet in shared memory.
_HALVED = ((8, 1), (16, 1), (16, 2))
_HALVED_READ = ((16, 1), (32, 1), (8, 1))
# Operations of an element from which rows wait for arithmetic and addresses, not for memory. Then a
# thread has few elements, so that its registers leave room for many warps.
BUSY = 64
FEWEST_BUSY_WARPS = 16  # of a multiprocessor
FEWEST_WAVES = 2  # programs of a multiprocessor
# Terms of a sum over a window from which on its weights count. Each term's are loaded for one row,
# and Triton gives them to the threads of a tile through shared memory, two barriers a term; not so
# where every thread has one vector of a row, and of tensors smaller than a program's threads. A
# thread of several rows loads and widens them once (H200, 49 terms of bf16: 25,088 rows of 96 in
# 28 µs for 47, 1,568 of 384 in 8.5 for 11.8; of f32 in 7.6 for 12.1).
FEWEST_TERMS = 9
SHARED_ELEMENTS = 16  # of a thread that has several rows' vectors
SHORT_ROWS, SHORT_WARPS = 64, 8  # of a program whose rows are shorter than that
# Bytes that lie together where rows are stored across: a sector of memory (H200, 1,568 rows of 768
# elements of bf16: 5.2 µs for 19).
SECTOR_BYTES = 32
SCATTERED_ELEMENTS = 32  # of a thread then


@dataclass(frozen=True, slots=True)
class Streamed:
    """Rows up to `row_bytes`: bytes of a chunk, warps and stages of its loop."""

    row_bytes: float
    picks: tuple[tuple[int, int, int], ...]


# The second read of a row comes from the first-level cache up to 64 KiB, else from the second.
_STREAMED = (
    Streamed(48 << 10, ((16 << 10, 16, 1), (8 << 10, 16, 1), (16 << 10, 32, 1))),
    Streamed(96 << 10, ((16 << 10, 32, 1), (16 << 10, 16, 1), (32 << 10, 32, 1))),
    Streamed(inf, ((128 << 10, 32, 1), (32 << 10, 32, 1), (16 << 10, 32, 1))),
)
# The same for rows that are only read.
_READ = (
    Streamed(96 << 10, ((4 << 10, 2, 1), (2 << 10, 1, 1), (8 << 10, 4, 1))),
    Streamed(1 << 20, ((8 << 10, 8, 3), (16 << 10, 8, 1), (16 << 10, 16, 1))),
    Streamed(inf, ((64 << 10, 32, 1), (32 << 10, 32, 1), (16 << 10, 16, 1))),
)
# Elements of a chunk, warps and stages where several programs read a row.
_PARTS = ((4096, 8, 3), (16384, 32, 1), (8192, 16, 1))
# Elements and warps of programs that have one chunk each.
_CHUNKS = ((2048, 4), (8192, 8))
# Elements of a chunk, warps and programs of a multiprocessor where loads are of single elements:
# bringing these to shared memory takes longer than waiting for them.
_LOOSE_PARTS = ((4096, 16, 4), (8192, 8, 8), (2048, 4, 8))
# Elements of a piece and warps of a shared row.
_SHARED = ((8192, 8), (8192, 16))


def row_tiles(shape: RowShape, traits: TargetTraits) -> list[RowTiles]:
    """Every form that fits the shape, the cost model's choice first."""
    is_parted, is_shared = _is_parted_best(shape, traits), _is_sharing_best(shape, traits)
    if shape.is_lanes:
        rows = [
            (_is_held_best(shape), "", _held(shape, traits)),
            (is_shared, "shared", _shared(shape)),
            (is_shared, "shared_streamed", _shared_streams(shape)),
            (is_parted, "parts", _parted_rows(shape, traits)),
            (True, "streamed", _streamed(shape)),
        ]
    else:
        rows = [
            (is_parted, "parts", _parted_columns(shape, traits)),
            (True, "", _held_columns(shape)),
            (True, "streamed", _streamed_columns(shape)),
        ]
    found = [
        RowTiles(form, tuple(dict.fromkeys(tiles)))
        for _, form, tiles in sorted(rows, key=lambda row: not row[0])
    ]
    return [tiles for tiles in found if tiles.candidates]


def _is_held_best(shape: RowShape) -> bool:
    """Whether registers beat reading a row again: short rows, and where that comes from afar."""
    if not shape.stores_elements:
        return shape.length <= 8192
    is_late = shape.row_bytes > 96 << 10 and shape.length <= LARGEST_HELD
    return shape.row_bytes < 24 << 10 or is_late


def _is_sharing_best(shape: RowShape, traits: TargetTraits) -> bool:
    """Whether one program a row leaves the device idle, or its rows do not fit the cache."""
    is_few = shape.rows < traits.multiprocessors and shape.row_bytes > 48 << 10
    return is_few or shape.row_bytes * traits.multiprocessors > traits.cache_bytes


def _is_parted_best(shape: RowShape, traits: TargetTraits) -> bool:
    if shape.is_lanes:
        return shape.rows < traits.multiprocessors
    return typical(shape.outer) * ceil(shape.width / 64) < traits.multiprocessors * 2


def _candidate(programs: Extent, **config: int) -> Candidate:
    """Parameters that are 0 are none of the form's."""
    found = tuple((name, value) for name, value in config.items() if value)
    return Candidate(found, (programs, 1, 1))


def _with_busy(
    table: tuple[tuple[int, int], ...], shape: RowShape, block: int, traits: TargetTraits
) -> tuple[tuple[int, int], ...]:
    """Rows a program and warps, 8 elements a thread, or 4 where these are too few warps; those of
    sums over windows by what their weights cost."""
    is_busy = shape.operations >= BUSY or shape.window_terms >= FEWEST_TERMS
    if not is_busy or not block:
        return table
    warps = shape.rows * block / (8 * WARP * traits.multiprocessors)
    if shape.window_terms >= FEWEST_TERMS and warps >= FEWEST_BUSY_WARPS:
        return (*_of_windows(shape, block, traits), *table)
    each = 8 if warps >= FEWEST_BUSY_WARPS else 4
    return *(_of_threads(block, elements) for elements in (each, 16, 12 - each)), *table


def _of_threads(block: int, elements: int) -> tuple[int, int]:
    """Rows and warps, four of these at least, whose threads have so many elements."""
    rows = max(1, elements * WARP * 4 // block)
    return rows, max(4, min(MOST_WARPS, block // (elements * WARP)))


def _of_windows(shape: RowShape, block: int, traits: TargetTraits) -> Iterator[tuple[int, int]]:
    """Rows and warps of sums over windows: threads that have one vector of each of several rows, or
    more threads than a row has elements."""
    warps = min(MOST_WARPS, block * shape.item_bytes // (VECTOR_BYTES * WARP))
    rows = max(1, SHARED_ELEMENTS * WARP * warps // block)
    if not warps:
        rows, warps = SHORT_ROWS, max(SHORT_WARPS, 2 * block // WARP)
        while rows > 1 and shape.rows < FEWEST_WAVES * traits.multiprocessors * rows:
            rows //= 2
    yield rows, warps
    yield max(1, rows // 2), warps
    yield rows * 2, min(MOST_WARPS, warps * 2)


def _scattered(shape: RowShape, block: int) -> Iterator[tuple[int, int]]:
    """Rows and warps of rows that are stored across: as many rows as fill a sector."""
    for nbytes in (SECTOR_BYTES, SECTOR_BYTES // 2):
        rows = min(nbytes // shape.item_bytes, LARGEST_HELD // block)
        elements = min(SCATTERED_ELEMENTS, max(8, rows * block // (4 * WARP)))
        if rows > 1:
            yield rows, max(1, min(MOST_WARPS, rows * block // (elements * WARP)))


def _held(shape: RowShape, traits: TargetTraits) -> Iterator[Candidate]:
    block = row_block(shape.reduced, LARGEST_HELD)
    picks = next((row.picks for row in _HELD if block <= row.reduced), ()) if block else ()
    if block == 2 * WARP and shape.vector == 1:
        picks = _HALVED if shape.stores_elements else _HALVED_READ
        if content(shape.kept) % 16 == 0:  # no mask of rows
            picks = tuple(sorted(picks, key=lambda pick: pick != (16, 1)))
    if not shape.stores_elements and block in (1024, 4096):
        # Nothing waits for stores: programs with more to read of each thread are better.
        picks = picks[1:] + picks[:1]
    if shape.is_scattered and block:
        picks = (*_scattered(shape, block), *picks)
    for rows, warps in _with_busy(picks, shape, block, traits):
        # Few short rows are spread over more programs.
        rows = min(rows, power_above(shape.width))
        programs = blocks(shape.kept, rows)
        yield _candidate(programs, XBLOCK=rows, RBLOCK=block, num_warps=warps)


def _streamed(shape: RowShape) -> Iterator[Candidate]:
    if not row_block(shape.reduced, FEWEST_STREAMED):
        table = _STREAMED if shape.stores_elements else _READ
        picks = next(row.picks for row in table if shape.row_bytes <= row.row_bytes)
        for chunk_bytes, warps, stages in picks:
            stages = stages if shape.has_whole_vectors else 1
            yield _row(shape, _chunk(shape, chunk_bytes, warps), warps, stages=stages)


def _chunk(shape: RowShape, chunk_bytes: int, warps: int) -> int:
    """Elements of a chunk: a vector for each thread at least, as many as registers hold at most."""
    tensors = max(1, round(shape.row_bytes / shape.length / shape.item_bytes))
    most = power_below(LARGEST_HELD / tensors)
    block = max(chunk_bytes // shape.item_bytes, shape.vector * WARP * warps)
    return max(shape.vector, min(block, most, power_above(shape.length)))


def _row(shape: RowShape, block: int, warps: int, parts: int = 0, stages: int = 0) -> Candidate:
    """Config of one row, or of one of the `parts` that share it."""
    return _candidate(
        shape.kept * max(1, parts),
        RBLOCK=block,
        VECTOR=shape.vector,
        PARTS=parts,
        QBLOCK=power_above(parts) if parts else 0,
        STAGES=stages,
        num_warps=warps,
    )


def _shared(shape: RowShape) -> Iterator[Candidate]:
    """Programs of a row wait for each other: all of them must fit on the device at once."""
    # A program for each piece: how many is in the source.
    if isinstance(shape.reduced, int) and shape.can_share and shape.reduced > SMALLEST_PIECE * 2:
        for block, warps in _SHARED:
            parts = ceil(shape.reduced / block)
            if 1 < parts <= MOST_SHARING:
                yield _row(shape, block, warps, parts)


def _shared_streams(shape: RowShape) -> Iterator[Candidate]:
    if shape.can_share and shape.length > SMALLEST_PIECE * 4:
        for block, warps, stages in _PARTS:
            parts = min(MOST_SHARING, power_above(shape.length) // (block * 2))
            if parts > 1:
                stages = stages if shape.has_whole_vectors else 1
                yield _row(shape, block, warps, parts, stages)


def _parted_rows(shape: RowShape, traits: TargetTraits) -> Iterator[Candidate]:
    """Few rows, values of whole rows only: several programs read a row, the last one joins."""
    if shape.stores_elements or shape.levels != 1 or shape.length <= SMALLEST_PIECE:
        return
    for block, warps in _CHUNKS:
        parts = ceil(shape.length / block)
        if 1 < parts <= RUNNING * traits.multiprocessors // shape.width:
            yield _row(shape, block, warps, parts, stages=1)
    if shape.has_whole_vectors:
        for block, warps, stages in _PARTS:
            parts = _parts(shape.width, ceil(shape.length / block), traits)
            if parts > 1:
                yield _row(shape, block, warps, parts, stages)
        return
    for block, warps, running in _LOOSE_PARTS:
        wanted = running * traits.multiprocessors // shape.width
        parts = min(wanted, ceil(shape.length / block))
        if parts > 1:
            yield _row(shape, block, warps, parts, stages=1)


def _parts(blocks: int, chunks: int, traits: TargetTraits) -> int:
    """Programs for each block of rows so that the device is full, a power of two."""
    wanted = power_below(max(1, 4 * traits.multiprocessors // blocks))
    return min(wanted, power_below(chunks))


def _column_block(shape: RowShape) -> int:
    """Columns of a tile."""
    element = 2 if shape.element_bytes < 4 else 4
    wide = max(32, COLUMN_BYTES // element)
    return min(power_above(shape.width), max(1, wide // shape.beside))


def _warps(elements: int, each: int) -> int:
    """Warps so that a thread has about `each` elements."""
    return max(1, min(8, elements // (WARP * each)))


def _columns(shape: RowShape, width: int, block: int, parts: int = 0, stages: int = 0) -> Candidate:
    return _candidate(
        blocks(shape.kept, width) * shape.outer * max(1, parts),
        YBLOCK=width,
        RBLOCK=block,
        PARTS=parts,
        QBLOCK=power_above(parts) if parts else 0,
        STAGES=stages,
        num_warps=_warps(width * shape.beside * block, 16),
    )


def _held_columns(shape: RowShape) -> Iterator[Candidate]:
    block, columns = row_block(shape.reduced, LARGEST_TILE), _column_block(shape)
    for width in (columns, columns // 2, columns * 2):
        width = min(max(1, width), power_above(shape.width))
        if 0 < width * block <= LARGEST_TILE:
            yield _columns(shape, width, block)


def _streamed_columns(shape: RowShape) -> Iterator[Candidate]:
    if not isinstance(shape.reduced, int) or shape.reduced > 128:
        width = _column_block(shape)
        for elements in (4096, 2048, 8192):
            block = max(8, elements // (width * shape.beside))
            yield _columns(shape, width, block, stages=1)


def _parted_columns(shape: RowShape, traits: TargetTraits) -> Iterator[Candidate]:
    if not shape.stores_elements and shape.levels == 1 and shape.length > 128:
        width = _column_block(shape)
        columns = ceil(shape.width / width) * typical(shape.outer)
        steps = typical(shape.steps) or shape.length
        for elements in (8192, 4096, 2048):
            block = max(8, elements // (width * shape.beside))
            # The joining program reads a tile of all partial values.
            most = min(ceil(steps / block), LARGEST_TILE // width)
            parts = _parts(columns, most, traits)
            if parts > 1:
                yield _columns(shape, width, block, parts, stages=1)
