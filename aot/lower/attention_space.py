"""The configs of attention as data, which of them a problem allows, and the model's pick."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from aotc.aot.lower.spec import Candidate, Scratch
from aotc.aot.lower.tiles import power_above, power_below
from aotc.aot.schedule.traits import TargetTraits

SMALLEST_ROWS = 16  # rows of the smallest dot
LARGEST_ACCUMULATOR = 232  # f32 of scores and product that a thread may hold
CANDIDATES = 12
JOIN_ELEMENTS = 8192  # elements of partial products that the last program holds at once
RESERVED_BYTES = 2048  # shared memory for barriers and reductions


@dataclass(frozen=True, slots=True)
class Problem:
    """What decides between configs: extents, and what the operands allow."""

    heads: int  # programs along the heads
    rows: int  # query rows of one of them
    keys: int
    key_block: int  # elements of a key, padded
    value_block: int
    itemsize_bytes: int
    is_causal: bool
    has_few_rows: bool
    has_descriptors: bool


@dataclass(frozen=True, slots=True)
class Config:
    """One row of the space. `rate` is its share of the tensor units' peak on large problems."""

    form: str
    rows: int
    keys: int
    warps: int
    stages: int
    rate: float


TILED: tuple[Config, ...] = (
    Config("descriptor", 128, 128, 8, 2, 0.62),
    Config("descriptor", 128, 64, 8, 3, 0.58),
    Config("specialized", 128, 128, 4, 2, 0.60),
    Config("plain", 128, 128, 8, 2, 0.57),
    Config("plain", 128, 64, 8, 3, 0.55),
    Config("plain", 128, 64, 4, 3, 0.50),
    Config("plain", 64, 128, 4, 2, 0.47),
    Config("descriptor", 64, 64, 4, 3, 0.46),
    Config("plain", 64, 64, 4, 3, 0.45),
    Config("plain", 64, 64, 4, 2, 0.44),
    Config("plain", 64, 32, 4, 3, 0.38),
    Config("plain", 32, 64, 4, 2, 0.30),
    Config("plain", 32, 32, 4, 2, 0.25),
    Config("plain", 16, 64, 4, 2, 0.16),
    Config("plain", 16, 32, 4, 2, 0.14),
)
# Few rows are a matter of bytes in flight: keys a block, warps, stages.
STREAMED: tuple[tuple[int, int, int], ...] = ((64, 4, 3), (64, 2, 3), (128, 4, 3), (32, 2, 4))
LEAST_KEYS = 128  # of one split


def candidates(problem: Problem, traits: TargetTraits) -> tuple[Candidate, ...]:
    """Legal candidates, the cheapest by the model first."""
    if problem.has_few_rows:
        found = _streamed(problem, traits)
    else:
        legal = [row for row in TILED if _is_legal(row, problem, traits)]
        rows = sorted(legal or [TILED[-1]], key=lambda row: _price(row, problem, traits))
        found = [_tiled(row, problem) for row in rows]
    return tuple(dict.fromkeys(found))[:CANDIDATES]


def _is_legal(row: Config, problem: Problem, traits: TargetTraits) -> bool:
    if row.form != "plain" and not (problem.has_descriptors and _has_tensor_copies(traits)):
        return False
    if row.form == "specialized" and traits.name != "cuda-sm_90":
        return False
    if row.rows > max(SMALLEST_ROWS, power_above(problem.rows)):
        return False
    width = problem.key_block + problem.value_block
    staged = row.stages * row.keys * width + row.rows * problem.key_block
    held = row.rows * (row.keys + problem.value_block) / (32 * row.warps)
    if problem.itemsize_bytes == 4:
        held *= 2  # operands of f32 pass through registers
    is_held = row.form == "specialized" or held <= LARGEST_ACCUMULATOR
    return is_held and staged * problem.itemsize_bytes + RESERVED_BYTES <= traits.shared_bytes


def _has_tensor_copies(traits: TargetTraits) -> bool:
    """Whether the target copies tiles by descriptors: those with the large shared memory do."""
    return traits.shared_bytes >= 227 << 10


def _price(row: Config, problem: Problem, traits: TargetTraits) -> float:
    """Time of the last program to end, in units of one block of keys at full rate."""
    tiles = ceil(problem.rows / row.rows)
    keys = ceil(problem.keys / row.keys) * row.keys
    work = row.rows * keys / row.rate
    # Programs of a multiprocessor share its tensor units.
    waves = tiles * problem.heads / max(1, traits.multiprocessors)
    share = max(waves, 1.0) if waves > 4 else ceil(waves)
    return work * share


def _tiled(row: Config, problem: Problem) -> Candidate:
    config = (
        ("BM", row.rows),
        ("BN", row.keys),
        ("GROUP", 1),
        ("num_warps", row.warps),
        ("num_stages", row.stages),
    )
    grid = (problem.heads * ceil(problem.rows / row.rows), 1, 1)
    return Candidate(config, grid, row.form)


def _streamed(problem: Problem, traits: TargetTraits) -> list[Candidate]:
    """Splits that fill the machine once or twice, then none."""
    rows = max(SMALLEST_ROWS, power_above(problem.rows))
    found = []
    most = max(1, problem.keys // LEAST_KEYS)
    for share in (1, 2):
        wanted = max(1, share * traits.multiprocessors // problem.heads)
        splits = min(most, power_below(wanted))
        if splits > 1:
            found += [_split(rows, splits, row, problem) for row in STREAMED]
    for keys, warps, stages in STREAMED[:2]:
        config = Config("plain", rows, keys, warps, stages, 1.0)
        found.append(_tiled(config, problem))
    return found


def _split(rows: int, splits: int, row: tuple[int, int, int], problem: Problem) -> Candidate:
    keys, warps, stages = row
    joined = power_above(problem.rows) * problem.value_block
    together = max(1, min(power_above(splits), power_below(JOIN_ELEMENTS / joined)))
    config = (
        ("BM", rows),
        ("BN", keys),
        ("SPLITS", splits),
        ("BS", together),
        ("num_warps", warps),
        ("num_stages", stages),
    )
    places = problem.heads * splits * problem.rows
    scratch = (
        Scratch("partial", "*fp32", places * problem.value_block * 4),
        Scratch("sums", "*fp32", places * 2 * 4),
        Scratch("arrived", "*i32", problem.heads * 4, is_zeroed=True),
    )
    return Candidate(config, (splits, problem.heads, 1), "split", scratch)
