"""Block sizes: the candidates of each kernel kind, the model's pick first."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from aotc.aot.ir.infer import PACK_N
from aotc.aot.ir.size import Extent, bounds, content, highest, proves_at_most, typical
from aotc.aot.lower.spec import Candidate
from aotc.aot.schedule.traits import TargetTraits

LARGEST_TILE = 1 << 20  # elements that Triton allows in a tensor
LARGEST_ROW = 1 << 16  # reduced elements held in one tile; longer rows are read in chunks
ROW_CHUNK = 1 << 13
WHOLE_ROW = 2048  # reduced elements up to which a row whose length the call decides is one tile
FEW_TYPICAL = 8  # typical rows that may be as long as the longest one, if it is one tile
FEWEST_ROWS = 8  # of a product, from which tiles may be no taller than the fewest rows of a call
ROW_LANES = 256  # kept elements side by side where the reduced ones are not contiguous
LARGEST_BLOCK = 128  # rows of a product's tile
NARROWEST_PANEL = 32  # columns below which the left operand is read too often
# Rows whose multiplications cost what it costs to read a panel once more: as it is packed, or to
# bring it in order first.
PACKED_ROWS, UNPACKED_ROWS = 4, 12


def power_below(value: float) -> int:
    """Largest power of two that is at most `value`, at least 1."""
    return 1 << max(0, int(value).bit_length() - 1)


def power_above(value: int) -> int:
    """Smallest power of two that is at least `value`."""
    return 1 << max(0, value - 1).bit_length()


def blocks(extent: Extent, block: int) -> Extent:
    """Blocks that cover an extent."""
    return -(-extent // block)


def _program_elements(
    total: int, element_bytes: float, largest_bytes: int, traits: TargetTraits
) -> int:
    """Elements of one program: an even share of the machine, but neither tiny nor out of cache."""
    share = total / traits.programs_wanted * element_bytes
    wanted_bytes = max(traits.program_bytes, min(share, largest_bytes))
    return power_below(wanted_bytes / max(1.0, element_bytes))


def pointwise_candidates(
    rows: Extent, lanes: Extent, element_bytes: float, traits: TargetTraits
) -> tuple[Candidate, ...]:
    """Configs XBLOCK, YBLOCK; grid is (row blocks, lane blocks, 1)."""
    pick = _program_elements(typical(rows * lanes), element_bytes, traits.cache_bytes // 4, traits)
    found = []
    for elements in (pick, pick * 2, max(1, pick // 2)):
        lanes_block = min(power_above(typical(lanes)), elements)
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


def panel_columns(
    shape: tuple[Extent, Extent, Extent, Extent], is_packed: bool, traits: TargetTraits
) -> int:
    """BN of a (batch, M, N, K) matmul: that of packed weights, less where tiles would be few.

    A program brings its panel in order for itself, so that narrow panels cost less than low tiles.
    """
    batch, rows, columns, _ = shape
    widest = min(PACK_N, power_above(highest(columns)))
    tiles = typical(blocks(rows, LARGEST_BLOCK) * blocks(columns, widest) * batch)
    is_few = tiles < traits.programs_wanted and typical(rows) >= NARROWEST_PANEL
    return NARROWEST_PANEL if is_few and not is_packed and widest > NARROWEST_PANEL else widest


def matmul_candidates(
    shape: tuple[Extent, Extent, Extent, Extent],
    is_packed: bool,
    traits: TargetTraits,
    inner: int = 0,
) -> tuple[Candidate, ...]:
    """Configs BM, BN, BK for a (batch, M, N, K) matmul; grid is (M tiles, N tiles, batch).

    BK must divide `inner`, a divisor of K, if one is given. Ordered by price, the cheapest first.
    """
    batch, rows, columns, depth = shape
    columns_block = panel_columns(shape, is_packed, traits)
    reread_rows = PACKED_ROWS if is_packed else UNPACKED_ROWS
    inner_block = min(512, inner & -inner) if inner else inner_candidates(depth)
    columns_tiles = blocks(columns, columns_block)
    count = typical(rows)
    columns_count = typical(columns_tiles * batch)

    def price(rows_block: int) -> float:
        tiles = ceil(count / rows_block) * columns_count
        waste = ceil(count / rows_block) * rows_block / count
        idle = ceil(tiles / traits.programs_wanted) * traits.programs_wanted / tiles
        # A panel of B is read again for each row of tiles.
        return waste * idle * (1 + reread_rows / rows_block)

    tallest = min(LARGEST_BLOCK, power_above(count))
    sizes = [1 << bit for bit in range(tallest.bit_length())]
    if not isinstance(rows, int) and bounds(rows)[0] >= FEWEST_ROWS:
        sizes = [size for size in sizes if size <= bounds(rows)[0]]
    found = []
    for rows_block in sorted(sizes, key=price)[:3]:
        config = (("BM", rows_block), ("BN", columns_block), ("BK", inner_block))
        found.append(Candidate(config, (blocks(rows, rows_block), columns_tiles, batch)))
    return tuple(found)


def is_shifted(rows: Extent, candidates: Sequence[Candidate]) -> bool:
    """Whether the last tile of rows moves back to end with them, where the call decides how many.

    It computes some rows again, to the same numbers, and no tile has rows to mask or to clamp.
    """
    least = bounds(rows)[0]
    fits = all(dict(candidate.config)["BM"] <= least for candidate in candidates)
    return fits and not isinstance(rows, int) and least >= FEWEST_ROWS


def inner_candidates(depth: Extent) -> int:
    """BK: the largest power of two up to 512 that divides the depth, else one that overhangs."""
    divisor = min(512, content(depth) & -content(depth))
    if divisor >= 32 or divisor == depth:
        return divisor
    return min(256, power_above(typical(depth)))
