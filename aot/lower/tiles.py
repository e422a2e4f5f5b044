"""Block sizes: the candidates of each kernel kind, with the cost model's choice first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from aotc.aot.ir import index as ix
from aotc.aot.ir.index import Index, Remainder, Symbol
from aotc.aot.ir.infer import PACK_N, packed_columns
from aotc.aot.ir.size import Extent, bounds, content, fixed, highest, proves_at_most, typical
from aotc.aot.lower.spec import Candidate
from aotc.aot.traits import TargetTraits

WARP = 32  # threads of a GPU that run together
VECTOR_BYTES = 16  # one load or store of a thread
LARGEST_TILE = 1 << 20  # elements that Triton allows in a tensor
LARGEST_ROW = 1 << 16  # reduced elements held in one tile; longer rows are read in chunks
ROW_CHUNK = 1 << 13
WHOLE_ROW = 2048  # reduced elements up to which a row of dynamic length is one tile
FEW_TYPICAL = 8  # typical rows that may be as long as the longest one, if it is one tile
FEWEST_ROWS = 8  # of a product, from which tiles may be no taller than the fewest rows of a call
ROW_LANES = 256  # kept elements side by side where the reduced ones are not contiguous
WIDEST_ROW = 4096  # of these in a program that has all rows, or many
FEWEST_SHARED = 64  # rows of a program that shares columns with others
LARGEST_BLOCK = 128  # rows of a product's tile
LARGEST_FAR_BLOCK = 256  # where the right operand comes from beyond a core's cache for each tile
NARROWEST_PANEL = 32  # columns below which the left operand is read too often
PANELS = (NARROWEST_PANEL, 64, 128, 256)  # columns of a tile whose operands are not packed
COPIED_DEPTH = 64  # BK of which a strip of columns stays in the nearest cache beside the rest
LEAST_INNER = 32  # BK that divides the depth
# The same of products element by element, to which a tail is only a shorter loop: the sums of a
# tile go to memory and back once for each block.
LEAST_INNER_OF_ELEMENTS = 128
FEW_ROWS = 128  # of a product, below which a strip is used too seldom for that to count
FEW_ROWS_DEPTH = 128  # BK then


def power_below(value: float) -> int:
    """Largest power of two that is at most `value`, at least 1."""
    return 1 << max(0, int(value).bit_length() - 1)


def power_above(value: int) -> int:
    """Smallest power of two that is at least `value`."""
    return 1 << max(0, value - 1).bit_length()


def blocks(extent: Extent, block: int) -> Extent:
    """Blocks that cover an extent."""
    return -(-extent // block)


def is_mostly_along(offset: Index, symbol: Symbol) -> bool:
    """Whether neighbours along the symbol are mostly neighbours in memory."""
    for atom, count in offset.terms:
        is_run = isinstance(atom, Remainder) and atom.dividend == ix.of(symbol)
        if count == 1 and (atom == symbol or is_run):
            return True
    return False


def _program_elements(
    total: int, element_bytes: float, largest_bytes: int, traits: TargetTraits
) -> int:
    """Elements of one program: an even share of the machine, but neither tiny nor out of cache."""
    share = total / traits.programs_wanted * element_bytes
    wanted_bytes = max(traits.program_bytes, min(share, largest_bytes))
    return power_below(wanted_bytes / max(1.0, element_bytes))


def pointwise_candidates(
    rows: Extent,
    lanes: Extent,
    element_bytes: float,
    traits: TargetTraits,
    most_lanes: int | None = None,
) -> tuple[Candidate, ...]:
    """Configs XBLOCK, YBLOCK; grid is (row blocks, lane blocks, 1)."""
    pick = _program_elements(typical(rows * lanes), element_bytes, traits.cache_bytes // 4, traits)
    found = []
    for elements in (pick, pick * 2, max(1, pick // 2)):
        lanes_block = min(power_above(typical(lanes)), elements, most_lanes or elements)
        rows_block = min(power_above(typical(rows)), max(1, elements // lanes_block))
        grid = (blocks(rows, rows_block), blocks(lanes, lanes_block), 1)
        found.append(Candidate((("XBLOCK", rows_block), ("YBLOCK", lanes_block)), grid))
    return tuple(dict.fromkeys(found))


def row_candidates(
    kept: Extent, reduced: Extent, element_bytes: float, traits: TargetTraits
) -> tuple[Candidate, ...]:
    """Configs XBLOCK, RBLOCK for rows whose reduced elements lie along the lanes."""
    block = row_block(reduced, LARGEST_ROW) or ROW_CHUNK
    # Values between the passes over a row are kept in scratch memory: small tiles stay in cache.
    total = typical(kept * reduced)
    pick = _program_elements(total, element_bytes, traits.cache_bytes // 16, traits)
    largest = min(power_above(typical(kept)), LARGEST_TILE // block)
    found = []
    for elements in (pick, pick * 2, pick // 2):
        rows_block = max(1, min(power_below(elements / typical(reduced)), largest))
        config = (("XBLOCK", rows_block), ("RBLOCK", block))
        found.append(Candidate(config, (blocks(kept, rows_block), 1, 1)))
    return tuple(dict.fromkeys(found))


def row_block(reduced: Extent, longest: int) -> int:
    """RBLOCK of a whole row; 0 for one that is longer, or may be much longer than typical."""
    most = highest(reduced)
    limit = longest if isinstance(reduced, int) else max(WHOLE_ROW, FEW_TYPICAL * typical(reduced))
    return power_above(most) if most <= min(longest, limit) else 0


def column_candidates(outer: Extent, reduced: Extent, lanes: Extent) -> tuple[Candidate, ...]:
    """Configs YBLOCK, RBLOCK for kept elements along the lanes; grid is (lane blocks, outer, 1)."""
    found = []
    for width in (ROW_LANES, ROW_LANES * 4, ROW_LANES // 4):
        lanes_block = min(power_above(typical(lanes)), width)
        longest = min(LARGEST_ROW, LARGEST_TILE // lanes_block)
        block = row_block(reduced, longest) or min(ROW_CHUNK, longest)
        config = (("YBLOCK", lanes_block), ("RBLOCK", block))
        found.append(Candidate(config, (blocks(lanes, lanes_block), outer, 1)))
    # The source decides once whether rows are read in chunks, for all candidates alike.
    chunks = {proves_at_most(reduced, candidate.config[1][1]) for candidate in found}
    return tuple(dict.fromkeys(found if len(chunks) == 1 else found[:1]))


def columns_once(
    extents: tuple[Extent, Extent, Extent], nbytes: float, traits: TargetTraits
) -> tuple[tuple[Candidate, ...], bool]:
    """Configs of a kernel that reads columns once and stores what it learns of each: extents are
    those outside, along the columns and across them. Whether programs share columns: each has a
    part of their rows, and the last to arrive joins what all have found.

    Memory is fastest in its order: a program has rows that follow each other, as wide as they are,
    and parts of them only where that would leave it few rows.
    """
    outer, reduced, lanes = extents
    wanted = max(1, min(traits.programs_wanted, int(nbytes) // traits.program_bytes))
    width = min(power_above(typical(lanes)), WIDEST_ROW)
    programs = typical(outer * blocks(lanes, width))
    rows = typical(reduced) // -(-wanted // programs)
    if programs < wanted and rows >= FEWEST_SHARED and all(isinstance(x, int) for x in extents):
        block = min(power_below(rows), LARGEST_TILE // width)
        parts = fixed(blocks(reduced, block))
        shared = (
            ("YBLOCK", width), ("RBLOCK", block), ("PARTS", parts), ("QBLOCK", power_above(parts)),
        )  # fmt: skip
        return (Candidate(shared, (outer * blocks(lanes, width) * parts, 1, 1)),), True
    while width > ROW_LANES and typical(outer * blocks(lanes, width)) < wanted:
        width //= 2
    longest = min(LARGEST_ROW, LARGEST_TILE // width)
    config = (("YBLOCK", width), ("RBLOCK", row_block(reduced, longest) or min(ROW_CHUNK, longest)))
    return (Candidate(config, (blocks(lanes, width), outer, 1)),), False


@dataclass(frozen=True, slots=True)
class Reading:
    """How a matmul reads its operands: what it costs to read one for one more tile, in rows or
    columns whose multiplications cost the same."""

    left_columns: int
    right_rows: int


TILED = Reading(0, 0)  # both where they stand, by the processor's tiles
TILED_COPY = Reading(1, 0)  # the left one copied in their order
WINDOWS = Reading(0, 1)  # TILED, the left one windows of an image that all columns read
PACKED = Reading(0, 4)  # the left operand where it stands, the right one as it is packed
IN_PLACE = Reading(4, 12)  # the right one is brought in order first
COPIED = Reading(16, 12)  # both are
SPREAD = Reading(16, 24)  # the left one in blocks, the right one from rows far apart


def panel_columns(
    shape: tuple[Extent, Extent, Extent, Extent], reading: Reading, traits: TargetTraits
) -> int:
    """BN of a (batch, M, N, K) matmul: that of packed weights, else what costs the least."""
    rows, columns = shape[1:3]
    widest = power_above(highest(columns))
    if reading is PACKED or widest <= NARROWEST_PANEL or typical(rows) < NARROWEST_PANEL:
        return min(PACK_N, widest)
    widths = [width for width in PANELS if width <= widest]
    return min(widths, key=lambda width: min(_prices(shape, width, reading, traits).values()))


def _prices(
    shape: tuple[Extent, Extent, Extent, Extent],
    width: int,
    reading: Reading,
    traits: TargetTraits,
) -> dict[int, float]:
    """BM → cost of a matmul in panels of so many columns, a multiple of its multiplications."""
    batch, rows, columns, depth = shape
    count, tiles_across = typical(rows), typical(blocks(columns, width))
    is_near = reading is PACKED or 4 * typical(columns * depth) <= traits.cache_bytes
    largest = LARGEST_BLOCK if is_near else LARGEST_FAR_BLOCK
    sizes = [1 << bit for bit in range(min(largest, power_above(count)).bit_length())]
    if not isinstance(rows, int) and bounds(rows)[0] >= FEWEST_ROWS:
        sizes = [size for size in sizes if size <= bounds(rows)[0]]

    def price(height: int) -> float:
        tiles = ceil(count / height) * tiles_across * typical(batch)
        waste = ceil(count / height) * height / count
        if reading is not PACKED:
            waste *= tiles_across * width / typical(columns)
        idle = _turns(tiles, traits) / tiles
        # Each operand is read again for each tile across it.
        reads = reading.right_rows / height + reading.left_columns / width
        return waste * idle * (1 + reads)

    return {size: price(size) for size in sizes}


def _turns(programs: int, traits: TargetTraits) -> float:
    """Turns of all cores for so many programs, those of idle cores in the last one too: the mean
    over the numbers of cores that a machine may have."""
    counts = traits.shared_by
    return sum(ceil(programs / count) * count for count in counts) / len(counts)


def matmul_candidates(
    shape: tuple[Extent, Extent, Extent, Extent],
    reading: Reading,
    traits: TargetTraits,
    inner: int = 0,
    least_inner: int = LEAST_INNER,
) -> tuple[Candidate, ...]:
    """Configs BM, BN, BK for a (batch, M, N, K) matmul; grid is (M tiles, N tiles, batch).

    BK must divide `inner`, a divisor of K, if one is given. It is no divisor of K that is less than
    `least_inner`. Ordered by cost, the cheapest first.
    """
    batch, rows, columns, depth = shape
    if reading in (TILED, TILED_COPY, WINDOWS):
        return _tiled_candidates(shape, reading, traits, inner)
    columns_block = panel_columns(shape, reading, traits)
    inner_block = min(512, inner & -inner) if inner else inner_candidates(depth, least_inner)
    if reading is not PACKED and typical(rows) >= NARROWEST_PANEL:
        few = typical(rows) < FEW_ROWS
        inner_block = min(FEW_ROWS_DEPTH if few else COPIED_DEPTH, inner_block)
    prices = _prices(shape, columns_block, reading, traits)
    found = []
    for rows_block in sorted(prices, key=lambda size: prices[size])[:3]:
        config = (("BM", rows_block), ("BN", columns_block), ("BK", inner_block))
        grid = (blocks(rows, rows_block), blocks(columns, columns_block), batch)
        found.append(Candidate(config, grid))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _TiledCosts:
    """About what a core with AMX does in a nanosecond (benchmarks/narrow_products.py)."""

    operations: float = 1500.0  # of tiles whose operands are in the second cache
    low_share: float = 0.7  # of it where a block has one tile of rows, to which columns are read
    near_bytes: float = 170.0  # to or from that
    far_bytes: float = 28.0  # from beyond it
    copied_bytes: float = 12.0  # of a left operand that is copied
    program_ns: float = 300.0
    end_ns: float = 500.0  # of a program that ends its last block without products beside
    nearest_cache_bytes: int = 32 << 10
    half_cache_bytes: int = 1 << 20  # of the second cache; the rest is the right operand's


TILED_COSTS = _TiledCosts()
TILED_ROWS = (16, 32, 64, 128, 256, 512)
TILED_COLUMNS = (PACK_N, 2 * PACK_N, 4 * PACK_N, 8 * PACK_N)
TILED_DEPTH = 256
BLOCK_ROWS = 32  # of two tiles of sums below each other, to which columns are read once
FEW_TILED_ROWS = 32  # of a tile where there may be fewer than 16: all of them are copied


def _tiled_candidates(
    shape: tuple[Extent, Extent, Extent, Extent],
    reading: Reading,
    traits: TargetTraits,
    inner: int,
) -> tuple[Candidate, ...]:
    """Those of a product by tiles with packed weights, whose blocks of columns are all whole."""
    batch, rows, columns, depth = shape
    panels = ceil(highest(columns) / PACK_N)
    widths = [width for width in TILED_COLUMNS if panels % (width // PACK_N) == 0]
    if typical(batch) > 1:  # products beside each other in panels
        widths = [min(width, packed_columns(highest(columns))) for width in widths]
    least = bounds(rows)[0]
    heights = [size for size in TILED_ROWS if size <= least]
    heights = heights or [min(FEW_TILED_ROWS, power_above(typical(rows)))]
    if reading is WINDOWS:  # deep: columns pass by each block of rows, and stay near meanwhile
        heights = [size for size in heights if size >= BLOCK_ROWS] or heights
        near = (each for each in widths if _is_near(each, typical(depth)))
        widths = list(near) or widths[:1]
    whole = inner & -inner if inner else content(depth) & -content(depth)
    inner_block = min(TILED_DEPTH, whole)
    prices = {
        (height, width): _tiled_price(shape, (height, width, inner_block), reading, traits)
        for height in heights
        for width in widths
    }
    best = min(prices, key=lambda size: prices[size])
    heights.sort(key=lambda height: prices[height, best[1]])
    depths = [inner_block, inner_block // 2] if inner_block == TILED_DEPTH else [inner_block]
    found = []
    for height, block in [(height, inner_block) for height in heights[:3]] + [
        (heights[0], each) for each in depths[1:]
    ]:
        config = (("BM", height), ("BN", best[1]), ("BK", block))
        tiles = blocks(rows, height), blocks(columns, best[1])
        grid = (*(tiles[::-1] if is_by_columns(shape, reading) else tiles), batch)
        found.append(Candidate(config, grid))
    return tuple(found)


def is_by_columns(shape: tuple[Extent, Extent, Extent, Extent], reading: Reading) -> bool:
    """Whether neighbouring programs of a product by tiles have the same rows, and not the same
    columns: where all of the left operand has no room in a core's cache, a tile's rows have."""
    left_bytes = 2 * typical(shape[1]) * typical(shape[3])
    return reading is TILED and left_bytes > TILED_COSTS.half_cache_bytes


def _tiled_price(
    shape: tuple[Extent, Extent, Extent, Extent],
    block: tuple[int, int, int],
    reading: Reading,
    traits: TargetTraits,
) -> float:
    """About how long a product takes, in nanoseconds."""
    costs, (batch, rows, columns, depth) = TILED_COSTS, map(typical, shape)
    height, width, inner = block
    down, across = ceil(rows / height), ceil(columns / width)
    programs = down * across * batch
    turns = _turns(programs, traits)
    operations = costs.operations * (1.0 if height >= BLOCK_ROWS else costs.low_share)
    own = 2 * height * width * depth / operations + costs.program_ns
    if reading is TILED:
        left, right = 2.0 * height * depth, 2.0 * width * depth
        if not is_by_columns(shape, reading):
            left, right = left / across, right / down  # both are read once
        elif left <= costs.half_cache_bytes:
            left /= across
        return turns * (own + costs.end_ns + (left + right) / costs.far_bytes)
    if reading is WINDOWS:
        again = 1 if _is_near(width, depth) else down
        far = 2.0 * width * depth * again / down
        return turns * (own + costs.end_ns + far / costs.far_bytes)
    moved = 2 * height * depth / costs.copied_bytes
    moved += 2 * width * depth / (down * costs.far_bytes)  # tiles down follow each other
    if 2 * width * inner > costs.nearest_cache_bytes:  # again for each block of tiles
        moved += height / 32 * 2 * width * depth / costs.near_bytes
    moved += 8 * height * width * (depth // inner) / costs.near_bytes  # sums
    return turns * (own + moved)


def _is_near(width: int, depth: int) -> bool:
    """Whether so many columns stay in a core's cache from one tile of rows to the next."""
    return 2 * width * depth <= TILED_COSTS.half_cache_bytes


def is_shifted(rows: Extent, candidates: Sequence[Candidate], *, reads_rows: bool = False) -> bool:
    """Whether the last tile of rows moves back to end with them: where their number is dynamic, and
    where rows are read side by side (`reads_rows`), by the processor's tiles as they stand or as
    vectors along them.

    It computes some rows again, to the same numbers, and no tile has rows to mask or to clamp.
    """
    least = bounds(rows)[0]
    heights = [dict(candidate.config)["BM"] for candidate in candidates]
    if isinstance(rows, int) and not (reads_rows and any(rows % height for height in heights)):
        return False
    return all(height <= least for height in heights) and least >= FEWEST_ROWS


def inner_candidates(depth: Extent, least: int = LEAST_INNER) -> int:
    """BK: the largest power of two up to 512 that divides the depth, if it is at least `least`,
    else one that does not."""
    divisor = min(512, content(depth) & -content(depth))
    if divisor >= least or divisor == depth:
        return divisor
    return min(256, power_above(typical(depth)))
