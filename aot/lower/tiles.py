"""Block sizes: the candidates of each kernel kind, the model's pick first."""

from __future__ import annotations

from math import ceil

from aotc.aot.lower.spec import Candidate
from aotc.aot.schedule.traits import TargetTraits

LARGEST_TILE = 1 << 20  # elements that Triton allows in a tensor
LARGEST_ROW = 1 << 16  # reduced elements held in one tile; longer rows are read in chunks
ROW_CHUNK = 1 << 13
ROW_LANES = 256  # kept elements side by side where the reduced ones are not contiguous


def power_below(value: float) -> int:
    """Largest power of two that is at most `value`, at least 1."""
    return 1 << max(0, int(value).bit_length() - 1)


def power_above(value: int) -> int:
    """Smallest power of two that is at least `value`."""
    return 1 << max(0, value - 1).bit_length()


def _program_elements(
    total: int, element_bytes: float, largest_bytes: int, traits: TargetTraits
) -> int:
    """Elements of one program: an even share of the machine, but neither tiny nor out of cache."""
    share = total / traits.programs_wanted * element_bytes
    wanted_bytes = max(traits.program_bytes, min(share, largest_bytes))
    return power_below(wanted_bytes / max(1.0, element_bytes))


def pointwise_candidates(
    rows: int, lanes: int, element_bytes: float, traits: TargetTraits
) -> tuple[Candidate, ...]:
    """Configs XBLOCK, YBLOCK; grid is (row blocks, lane blocks, 1)."""
    pick = _program_elements(rows * lanes, element_bytes, traits.cache_bytes // 4, traits)
    found = []
    for elements in (pick, pick * 2, max(1, pick // 2)):
        lanes_block = min(power_above(lanes), elements)
        rows_block = min(power_above(rows), max(1, elements // lanes_block))
        grid = (ceil(rows / rows_block), ceil(lanes / lanes_block), 1)
        found.append(Candidate((("XBLOCK", rows_block), ("YBLOCK", lanes_block)), grid))
    return tuple(dict.fromkeys(found))


def row_candidates(
    kept: int, reduced: int, element_bytes: float, traits: TargetTraits
) -> tuple[Candidate, ...]:
    """Configs XBLOCK, RBLOCK for rows whose reduced elements lie along the lanes."""
    block = power_above(reduced) if reduced <= LARGEST_ROW else ROW_CHUNK
    # Values between the passes over a row are kept in scratch memory: small tiles stay in cache.
    pick = _program_elements(kept * reduced, element_bytes, traits.cache_bytes // 16, traits)
    largest = min(power_above(kept), LARGEST_TILE // block)
    found = []
    for elements in (pick, pick * 2, pick // 2):
        rows_block = max(1, min(power_below(elements / reduced), largest))
        config = (("XBLOCK", rows_block), ("RBLOCK", block))
        found.append(Candidate(config, (ceil(kept / rows_block), 1, 1)))
    return tuple(dict.fromkeys(found))


def column_candidates(outer: int, reduced: int, lanes: int) -> tuple[Candidate, ...]:
    """Configs YBLOCK, RBLOCK for kept elements along the lanes; grid is (lane blocks, outer, 1)."""
    found = []
    for width in (ROW_LANES, ROW_LANES * 4, ROW_LANES // 4):
        lanes_block = min(power_above(lanes), width)
        longest = min(LARGEST_ROW, LARGEST_TILE // lanes_block)
        block = power_above(reduced) if reduced <= longest else min(ROW_CHUNK, longest)
        config = (("YBLOCK", lanes_block), ("RBLOCK", block))
        found.append(Candidate(config, (ceil(lanes / lanes_block), outer, 1)))
    # The source decides once whether rows are read in chunks, for all candidates alike.
    chunks = {candidate.config[1][1] >= reduced for candidate in found}
    return tuple(dict.fromkeys(found if len(chunks) == 1 else found[:1]))


def matmul_candidates(
    shape: tuple[int, int, int, int], columns_block: int, traits: TargetTraits, inner: int = 0
) -> tuple[Candidate, ...]:
    """Configs BM, BN, BK for a (batch, M, N, K) matmul; grid is (M tiles, N tiles, batch).

    BK must divide `inner`, a divisor of K, if one is given. Ordered by price, the cheapest first.
    """
    batch, rows, columns, depth = shape
    inner_block = min(512, inner & -inner) if inner else inner_candidates(depth)
    columns_tiles = ceil(columns / columns_block)

    def price(rows_block: int) -> float:
        tiles = ceil(rows / rows_block) * columns_tiles * batch
        waste = ceil(rows / rows_block) * rows_block / rows
        idle = ceil(tiles / traits.programs_wanted) * traits.programs_wanted / tiles
        # A panel of B is read again for each row of tiles.
        return waste * idle * (1 + 4 / rows_block)

    sizes = [1 << bit for bit in range(8) if 1 << bit <= max(1, power_above(rows))]
    found = []
    for rows_block in sorted(sizes, key=price)[:3]:
        config = (("BM", rows_block), ("BN", columns_block), ("BK", inner_block))
        found.append(Candidate(config, (ceil(rows / rows_block), columns_tiles, batch)))
    return tuple(found)


def inner_candidates(depth: int) -> int:
    """BK: the largest power of two up to 512 that divides the depth, else one that overhangs."""
    divisor = min(512, depth & -depth)
    if divisor >= 32 or divisor == depth:
        return divisor
    return min(256, power_above(depth))
