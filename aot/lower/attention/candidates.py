"""The configs of attention as data, which of them a problem allows, and the cost model's choice."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from aotc.aot.ir.size import Extent, highest, smallest, typical
from aotc.aot.lower.attention.pieces import pieces_of, width_of
from aotc.aot.lower.spec import Candidate, Scratch
from aotc.aot.lower.tiles import blocks, power_above
from aotc.aot.traits import TargetTraits

SMALLEST_ROWS = 16  # rows of the smallest dot
LARGEST_ACCUMULATOR = 232  # f32 of scores and product that a thread may hold
CANDIDATES = 12
JOINED_TOGETHER = 9  # partial products that the last program asks for at once, if registers allow
JOINED_REGISTERS = 64
WARPS_OF_ONE_BLOCK = 4
RESERVED_BYTES = 2048  # shared memory for barriers and reductions


@dataclass(frozen=True, slots=True)
class Problem:
    """What decides between configs: extents, and what the operands allow.

    `extents` are heads (programs along them), query rows of one and keys, at every call.
    """

    extents: tuple[Extent, Extent, Extent]
    key_block: int  # elements of a key, padded
    value_block: int
    itemsize_bytes: int
    is_causal: bool
    offset: int  # of the causal mask: a row sees so many keys beyond its own place
    window: int  # keys that a causal row sees at most; 0: all up to there
    has_few_rows: bool
    has_descriptors: bool
    may_overlap: bool  # the Gluon form can address operands and result
    is_split: bool = False  # products of f32 are three of TF32
    pieces: tuple[int, int] | None = None  # elements of a key and a value that come in pieces

    @property
    def heads(self) -> int:
        """Typically."""
        return typical(self.extents[0])

    @property
    def rows(self) -> int:
        """Typically."""
        return typical(self.extents[1])

    @property
    def keys(self) -> int:
        """Typically."""
        return typical(self.extents[2])


@dataclass(frozen=True, slots=True)
class Config:
    """One row of the space, with rates as measured on an H200 with many programs.

    `rates` are shares of the tensor units' peak with heads of at most 64 elements and of more;
    `lone` is the part of the rate that one program reaches that has a multiprocessor for itself.
    """

    form: str
    rows: int
    keys: int
    warps: int
    stages: int
    rates: tuple[float, float]
    lone: float
    tile_ns: float  # of each tile, beside its blocks of keys


# Of the Gluon form: the tile of 128 rows is its own, stages are a constexpr.
OVERLAPPED: tuple[Config, ...] = (
    Config("overlapped", 128, 128, 4, 2, (0.45, 0.74), 1.0, 3300.0),
    Config("overlapped", 128, 64, 4, 3, (0.37, 0.59), 1.0, 1800.0),
)
LARGE_ROWS = 512  # rows and keys from which its long compilation is worth it
TILED: tuple[Config, ...] = (
    Config("descriptor", 64, 64, 4, 3, (0.48, 0.55), 0.5, 1800.0),
    Config("descriptor", 128, 64, 8, 4, (0.48, 0.46), 0.7, 3600.0),
    Config("plain", 64, 64, 4, 3, (0.51, 0.56), 0.5, 1800.0),
    Config("plain", 64, 64, 4, 2, (0.47, 0.47), 0.5, 1800.0),
    Config("plain", 128, 64, 8, 3, (0.47, 0.48), 0.7, 3600.0),
    Config("plain", 128, 64, 8, 2, (0.46, 0.44), 0.7, 3600.0),
    Config("plain", 64, 128, 4, 1, (0.43, 0.31), 0.5, 1800.0),
    Config("plain", 64, 32, 4, 3, (0.41, 0.42), 0.5, 1800.0),
    Config("plain", 32, 64, 2, 2, (0.32, 0.26), 0.4, 1800.0),
    Config("plain", 32, 32, 4, 2, (0.22, 0.21), 0.4, 1800.0),
    Config("plain", 16, 64, 4, 2, (0.16, 0.15), 0.4, 1800.0),
    Config("plain", 16, 32, 4, 2, (0.13, 0.13), 0.4, 1800.0),
    Config("plain", 16, 32, 4, 1, (0.11, 0.10), 0.4, 1800.0),
)
# Of f32 as three products of TF32 that read shared memory. Loads are not pipelined: what is split
# passes through registers, and more programs at once hide more than a pipeline does.
SPLIT_TILES: tuple[Config, ...] = (
    Config("tf32x3", 128, 64, 8, 1, (0.065, 0.075), 1.0, 1000.0),
    Config("tf32x3", 128, 128, 8, 1, (0.070, 0.030), 0.8, 1000.0),
    Config("tf32x3", 64, 64, 4, 1, (0.062, 0.072), 0.64, 0.0),
    Config("tf32x3", 64, 32, 4, 1, (0.061, 0.059), 0.61, 0.0),
    Config("plain", 32, 32, 4, 1, (0.030, 0.036), 0.56, 0.0),
    Config("plain", 16, 32, 4, 1, (0.027, 0.026), 0.46, 0.0),
)
MOST_TOGETHER = 4  # programs that the registers of a multiprocessor hold
PEAK_RATE = 7490.0  # operations a nanosecond of one multiprocessor
# Of a launch.
FIXED_NS = {"plain": 500.0, "tf32x3": 500.0, "descriptor": 3000.0, "overlapped": 5000.0}
# Few rows are a matter of bytes in flight: keys a block, warps, stages.
STREAMED: tuple[tuple[int, int, int], ...] = ((128, 4, 3), (64, 2, 3), (32, 1, 4))
LEAN_STREAMS = ((32, 1, 2), (32, 1, 1))  # where none of those fits
STREAM_BYTES = 32 << 10  # of a block of keys and values, more only makes splits uneven
STREAMED_ACCUMULATOR = 64  # registers of a thread for scores and values; more spilled
BLOCKS_WANTED = 4  # of one split, so that its loads overlap


def candidates(problem: Problem, traits: TargetTraits) -> tuple[Candidate, ...]:
    """Legal candidates, the cheapest by the model first."""
    if problem.has_few_rows:
        found = _streamed(problem, traits)
    else:
        tiled = SPLIT_TILES if problem.pieces else TILED
        legal = [row for row in tiled if _is_legal(row, problem, traits)]
        legal += OVERLAPPED if _may_overlap(problem, traits) else ()
        rows = sorted(legal or [TILED[-1]], key=lambda row: _price(row, problem, traits))
        found = [_tiled(row, problem, traits) for row in rows]
    return tuple(dict.fromkeys(found))[:CANDIDATES]


def _is_legal(row: Config, problem: Problem, traits: TargetTraits) -> bool:
    is_descriptor = row.form == "descriptor"
    if is_descriptor and not (problem.has_descriptors and traits.has_tensor_copies):
        return False
    if row.rows > max(SMALLEST_ROWS, power_above(problem.rows)):
        return False
    held = row.rows * (row.keys + _widths(row, problem)[1]) / (32 * row.warps)
    if problem.itemsize_bytes == 4:
        held *= 2  # operands of f32 pass through registers
    return held <= LARGEST_ACCUMULATOR and _shared_bytes(row, problem) <= traits.shared_bytes


def _widths(row: Config, problem: Problem) -> tuple[int, int]:
    """Elements of a key and of a value that are multiplied."""
    if row.form != "tf32x3" or problem.pieces is None:
        return problem.key_block, problem.value_block
    key, value = map(width_of, problem.pieces)
    return key, value


def _shared_bytes(row: Config, problem: Problem) -> int:
    """Shared memory of a program."""
    if row.form != "tf32x3" or problem.pieces is None:
        return _staged_bytes(row.rows, row.keys, row.stages, problem)
    widest = max(piece.width for extent in problem.pieces for piece in pieces_of(extent))
    # Each number is two; a piece of keys or values is there at a time.
    elements = 2 * (row.rows * width_of(problem.pieces[0]) + row.keys * widest)
    return elements * problem.itemsize_bytes + RESERVED_BYTES


def _staged_bytes(rows: int, keys: int, stages: int, problem: Problem) -> int:
    """Shared memory of a program."""
    width = problem.key_block + problem.value_block
    blocks = stages + problem.is_split  # of keys and values, one more for the small parts of f32
    elements = blocks * keys * width + rows * problem.key_block
    return elements * problem.itemsize_bytes + RESERVED_BYTES


def _may_overlap(problem: Problem, traits: TargetTraits) -> bool:
    """Whether the Gluon form serves: on sm_90, for square 16-bit operands in plain memory."""
    is_large = min(problem.rows, problem.keys) >= LARGE_ROWS
    is_square = problem.key_block == problem.value_block and problem.key_block in (64, 128)
    return traits.can_overlap and is_large and is_square and problem.may_overlap


def _price(row: Config, problem: Problem, traits: TargetTraits) -> float:
    """Nanoseconds until the last program ends, as if all tiles had as many keys."""
    widths = _widths(row, problem)
    rate = row.rates[max(widths) > 64] * PEAK_RATE
    work_ns = 2 * row.rows * _seen_keys(row, problem) * sum(widths) / rate + row.tile_ns
    tiles = ceil(problem.rows / row.rows) * problem.heads
    return FIXED_NS[row.form] + work_ns * _turns(row, tiles, problem, traits)


def _seen_keys(row: Config, problem: Problem) -> float:
    """Keys in the blocks that a tile goes through, the mean over all tiles."""
    if not problem.is_causal:
        return ceil(problem.keys / row.keys) * row.keys
    seen = []
    for first in range(0, problem.rows, row.rows):
        end = min(problem.keys, max(1, first + row.rows + problem.offset))
        begin = first + problem.offset - problem.window + 1 if problem.window else 0
        seen.append(ceil(end / row.keys) - min(max(0, begin), end - 1) // row.keys)
    return sum(seen) * row.keys / len(seen)


def _turns(row: Config, tiles: int, problem: Problem, traits: TargetTraits) -> float:
    """Programs one after another, as if each had its multiprocessor's tensor units to itself.

    Those that are on one together share them, and few do not keep them busy; when the last ones
    run, some multiprocessors have none.
    """
    share = tiles / max(1, traits.multiprocessors)
    together = traits.shared_bytes // _shared_bytes(row, problem)
    together = 1 if row.form == "overlapped" else together
    together = max(1, min(MOST_TOGETHER, together))
    whole = share // together * together
    rest = share - whole
    return whole + max(1 / row.lone, ceil(rest)) if rest else whole


def _tiled(row: Config, problem: Problem, traits: TargetTraits) -> Candidate:
    heads, rows, _ = problem.extents
    tiles = heads * blocks(rows, row.rows)
    if row.form == "overlapped":  # its programs go through the tiles
        named = (("BN", row.keys), ("GROUP", 1), ("STAGES", row.stages), ("num_warps", row.warps))
        return Candidate(named, (smallest(traits.multiprocessors, tiles), 1, 1), row.form)
    config = (
        ("BM", row.rows),
        ("BN", row.keys),
        ("GROUP", 1),
        ("num_warps", row.warps),
        ("num_stages", row.stages),
    )
    return Candidate(config, (tiles, 1, 1), row.form)


def _streamed(problem: Problem, traits: TargetTraits) -> list[Candidate]:
    """Splits that fill the machine twice or once, blocks as long as leaves each some; then none."""
    rows = max(SMALLEST_ROWS, power_above(highest(problem.extents[1])))
    fitting = [
        row
        for row in STREAMED + LEAN_STREAMS
        if _staged_bytes(rows, row[0], row[2], problem) <= traits.shared_bytes
    ]
    streams = [row for row in fitting if row in STREAMED] or fitting[:1]
    found = []
    for share in (2, 1, 4):
        wanted = max(1, share * traits.multiprocessors // problem.heads)
        for row in sorted(streams, key=lambda row: _distance(row[0], wanted, problem)):
            blocks = ceil(problem.keys / row[0])
            splits = ceil(blocks / ceil(blocks / wanted))
            if splits > 1:
                found.append(_split(rows, splits, row, problem))
    for keys, warps, stages in streams[:2]:
        config = Config("plain", rows, keys, max(4, warps), stages, (1.0, 1.0), 1.0, 0.0)
        found.append(_tiled(config, problem, traits))
    return found


def _distance(block: int, splits: int, problem: Problem) -> tuple[bool, float]:
    """Whether a block is too long, and how far a split is from the wanted number of blocks."""
    nbytes = block * (problem.key_block + problem.value_block) * problem.itemsize_bytes
    blocks = problem.keys / splits / block / BLOCKS_WANTED
    return nbytes > STREAM_BYTES, max(blocks, 1 / blocks)


def _split(rows: int, splits: int, row: tuple[int, int, int], problem: Problem) -> Candidate:
    keys, warps, stages = row
    held = rows * (keys + problem.value_block) / 32
    warps = max(warps, power_above(ceil(held / STREAMED_ACCUMULATOR)))
    if ceil(ceil(problem.keys / keys) / splits) == 1:  # nothing to overlap: one block
        warps, stages = max(warps, WARPS_OF_ONE_BLOCK), 1
    joined = power_above(highest(problem.extents[1])) * problem.value_block
    together = max(1, min(JOINED_TOGETHER, JOINED_REGISTERS * 32 * warps // joined))
    config = (
        ("BM", rows),
        ("BN", keys),
        ("SPLITS", splits),
        ("BS", together),
        ("num_warps", warps),
        ("num_stages", stages),
    )
    heads, count, _ = problem.extents
    places = heads * splits * count
    scratch = (
        Scratch("partial", "*fp32", places * problem.value_block * 4),
        Scratch("sums", "*fp32", places * 2 * 4),
        Scratch("arrived", "*i32", highest(heads * 4), is_zeroed=True),
    )
    return Candidate(config, (splits, heads, 1), "split", scratch)
