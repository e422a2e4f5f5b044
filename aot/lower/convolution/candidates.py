"""Configs of convolution kernels on GPUs: the candidates, the cheapest by the roofline first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log2

from aotc.aot.ir.size import Extent, highest, typical
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower.matmul.choice import STYLES, Choice, Problem, Tile
from aotc.aot.lower.matmul.gpu_cost import Machine, machine_of, nanoseconds
from aotc.aot.lower.spec import Candidate, Scratch
from aotc.aot.lower.tiles import blocks, power_above
from aotc.aot.traits import TargetTraits

CANDIDATES = 40  # kept of a convolution
STEP_BYTES = 128  # of a row of A in one step: a line of the cache
SMALLEST_STEP = 16  # channels: what the tensor cores take at once
# (BM, BN, warps): tiles that a warp group of wgmma fills. Of few columns narrow ones are multiplied
# no faster, but read less of the weights for each row of A.
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
    (64, 32, 4),
    (128, 32, 4),
    (256, 32, 8),
    (64, 16, 4),
    (128, 16, 4),
    (256, 16, 8),
)
LEAST_ROWS, LEAST_COLUMNS = 64, 16
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
FEWEST_STEPS = 4  # of a part of a split tile
# Corrections to the roofline, fitted to the sweep of 2026-11-21 (benchmarks/gpu/convolution.py):
# addresses and borders cost by the row, and a short pipeline shows the latency of its loads.
ROWS_PENALTY, SHORT_PENALTY, LONG_STEP_GAIN = 0.16, 0.03, 0.03


@dataclass(frozen=True, slots=True)
class Shape:
    """A convolution as the ranking sees it: `run` channels a kernel offset, bytes of its tensors.

    `run` elements of A lie together in memory. `pack`: the columns that a kernel offset has in a
    step which holds several of them, 0 where a step holds one or a part of one.
    """

    batch: Extent
    rows: Extent
    columns: Extent
    kernel_size: int
    run: int
    dtype: str
    bytes: int
    pack: int = 0
    precision: str = "ieee"  # of the products, as Triton calls it
    function_work: float = 0.0  # operations of functions for each element of the result

    def steps(self, block: int) -> int:
        """Steps of the loop."""
        if self.pack:
            return ceil(self.kernel_size * self.pack / block)
        return self.kernel_size * ceil(self.run / block)


def pack_of(kernel_size: int, run: int, dtype: str, precision: str) -> int:
    """Columns of a kernel offset in a step that holds several of them; 0 where one fills a step."""
    columns = max(SMALLEST_STEP // 2, power_above(run))
    is_plain = dtype in ("f32", "f64") and precision == "ieee"
    is_long = 2 * columns * DTYPES[dtype].itemsize_bytes > STEP_BYTES
    return 0 if is_plain or is_long or kernel_size == 1 else columns


def convolution_candidates(shape: Shape, traits: TargetTraits) -> tuple[Candidate, ...]:
    """Configs for a [batch, rows, columns] result; grid is (M tiles, N tiles, batch · SPLIT)."""
    machine = machine_of(traits)
    choices = sorted(_choices(shape, machine), key=lambda choice: _price(choice, machine))
    return tuple(_candidate(shape, choice) for choice in choices[:CANDIDATES])


def inner_block(run: int, largest: int) -> int:
    """BK: divides the run if a power of two worth a step does, else covers it with little waste."""
    divisor = min(largest, run & -run)
    if divisor >= max(SMALLEST_STEP, largest // 2):
        return divisor
    options = sorted({largest, max(SMALLEST_STEP, largest // 2), SMALLEST_STEP}, reverse=True)
    return min(options, key=lambda block: ceil(run / block) * (block + 8))


def _choices(shape: Shape, machine: Machine) -> Iterator[Choice]:
    for rows, columns, warps in _TILES:
        is_high = rows > LEAST_ROWS and rows >= 2 * typical(shape.rows)
        is_wide = columns > LEAST_COLUMNS and columns >= 2 * typical(shape.columns)
        if is_high or is_wide or (columns < _TILES[0][1] <= typical(shape.columns)):
            continue
        for depth, stages in _steps(shape):
            steps = shape.steps(depth)
            problem = Problem(
                (shape.batch, shape.rows, shape.columns, steps * depth),
                shape.dtype,
                precision=shape.precision,
                bytes=shape.bytes,
                function_work=shape.function_work,
            )
            tile = Tile(rows, columns, depth, warps, stages)
            for split in _SPLITS:
                style = STYLES["split" if split > 1 else "plain"]
                choice = Choice(style, problem, tile, split=split)
                is_whole = split == 1 or not shape.pack
                if is_whole and stages <= max(3, steps) and _is_legal(choice, machine, steps):
                    yield choice


def _is_legal(choice: Choice, machine: Machine, steps: int) -> bool:
    if choice.shared_bytes > machine.shared_bytes:
        return False
    programs = choice.tiles * choice.problem.batch * choice.split
    is_few = programs <= 2 * machine.multiprocessors and steps >= FEWEST_STEPS * choice.split
    return choice.split == 1 or is_few


def _steps(shape: Shape) -> list[tuple[int, int]]:
    """BK and the stages of the pipeline."""
    is_wide = shape.dtype in ("f32", "f64")
    if is_wide and shape.precision == "ieee":
        return [(SMALLEST_STEP, 3)]
    largest = STEP_BYTES // DTYPES[shape.dtype].itemsize_bytes
    if shape.pack:
        return [(largest, 2), (largest, 3), (largest, 4), (2 * largest, 2), (2 * largest, 3)]
    block = inner_block(shape.run, largest)
    if block < largest:
        return [(block, 3), (block, 5)]
    found = [(block, 3), (block, 4), (block, 6), (block, 8)]
    return [*found, (2 * block, 3), (2 * block, 4)] if shape.run % (2 * block) == 0 else found


def _price(choice: Choice, machine: Machine) -> float:
    """Expected time of one launch, in ns."""
    tile = choice.tile
    penalty = 1 + ROWS_PENALTY * log2(tile.rows / _TILES[0][0])
    if tile.stages == 3:
        penalty *= 1 + SHORT_PENALTY
    if tile.depth * choice.problem.itemsize_bytes > STEP_BYTES:
        penalty *= 1 - LONG_STEP_GAIN
    return nanoseconds(choice, machine) * penalty


def _candidate(shape: Shape, choice: Choice) -> Candidate:
    tile, split = choice.tile, choice.split
    rows, columns = blocks(shape.rows, tile.rows), blocks(shape.columns, tile.columns)
    grid = (rows, columns, shape.batch * split)
    config = (("BM", tile.rows), ("BN", tile.columns), ("BK", tile.depth))
    options = (("num_warps", tile.warps), ("num_stages", tile.stages))
    if split == 1:
        form = "windows_packed" if shape.pack else "windows"
        return Candidate((*config, *options), grid, form)
    tiles = rows * columns * shape.batch
    wide, kind = (8, "*fp64") if shape.dtype == "f64" else (4, "*fp32")
    scratch = (
        Scratch("partials", kind, tiles * split * tile.rows * tile.columns * wide),
        Scratch("counters", "*i32", highest(tiles * 4), is_zeroed=True),
    )
    return Candidate((*config, ("SPLIT", split), *options), grid, "windows_split", scratch)
