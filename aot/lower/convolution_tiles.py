"""Block sizes of convolution kernels on GPUs: the candidates, the model's pick first."""

from __future__ import annotations

from math import ceil

from aotc.aot.lower.spec import Candidate, Scratch
from aotc.aot.schedule.traits import TargetTraits

PARTIALS = ("partials", "counters")  # pointer parameters of the split form
# (BM, BN, warps): tiles that a warp group of wgmma fills.
_TILES = (
    (64, 64, 4),
    (128, 64, 4),
    (64, 128, 4),
    (128, 128, 8),
    (128, 128, 4),
    (64, 256, 4),
    (128, 256, 8),
    (256, 64, 8),
    (256, 128, 8),
)
_SPLITS = (1, 2, 3, 4)
LARGEST_STEP, SMALLEST_STEP = 64, 16


def inner_block(run: int) -> int:
    """BK: divides the run if a power of two worth a step does, else covers it with little waste."""
    divisor = min(LARGEST_STEP, run & -run)
    if divisor >= LARGEST_STEP // 2:
        return divisor
    options = [LARGEST_STEP, LARGEST_STEP // 2, SMALLEST_STEP]
    return min(options, key=lambda block: ceil(run / block) * (block + 8))


def _fitting(rows: int, columns: int) -> list[tuple[int, int, int]]:
    """Tiles of which the result fills at least a half each way; the smallest one always."""
    return [
        tile
        for tile in _TILES
        if (tile[0] < 2 * rows and tile[1] < 2 * columns) or tile == _TILES[0]
    ]


def convolution_candidates(
    sizes: tuple[int, int, int], taps: int, run: int, nbytes: int, traits: TargetTraits
) -> tuple[Candidate, ...]:
    """Configs for a (batch, M, N) result; grid is (M tiles, N tiles, batch · SPLIT)."""
    batch, rows, columns = sizes
    found = []
    for rows_block, columns_block, warps in _fitting(rows, columns):
        tiles = ceil(rows / rows_block) * ceil(columns / columns_block) * batch
        for block, stages in _steps(run):
            steps = taps * ceil(run / block)
            shared = stages * block * (rows_block + columns_block) * 2
            if shared > traits.shared_bytes or stages > max(3, steps):
                continue
            for split in _SPLITS:
                if split > 1 and (steps // split < 4 or tiles * split > 2 * traits.multiprocessors):
                    continue
                blocks = (rows_block, columns_block, block)
                found.append(_candidate(sizes, blocks, split, warps, stages))
    return tuple(found)


def _steps(run: int) -> list[tuple[int, int]]:
    """BK and the stages of the pipeline."""
    block = inner_block(run)
    if block < LARGEST_STEP:
        return [(block, 3), (block, 5)]
    return [(block, 3), (block, 4), (block, 6), (block, 8)] + (
        [(2 * block, 3), (2 * block, 4)] if run % (2 * block) == 0 else []
    )


def _candidate(
    sizes: tuple[int, int, int], blocks: tuple[int, int, int], split: int, warps: int, stages: int
) -> Candidate:
    batch, rows, columns = sizes
    rows_block, columns_block, _ = blocks
    grid = (ceil(rows / rows_block), ceil(columns / columns_block), batch * split)
    config = [*zip(("BM", "BN", "BK"), blocks, strict=True)]
    options = (("num_warps", warps), ("num_stages", stages))
    if split == 1:
        return Candidate((*config, *options), grid)
    tiles = grid[0] * grid[1] * batch
    scratch = (
        Scratch(PARTIALS[0], "*fp32", tiles * split * rows_block * columns_block * 4),
        Scratch(PARTIALS[1], "*i32", tiles * 4, is_zeroed=True),
    )
    return Candidate((*config, ("SPLIT", split), *options), grid, "split_k", scratch)
