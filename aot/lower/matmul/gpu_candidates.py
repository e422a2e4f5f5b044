"""The configs of a matmul on a GPU, as tables, and which of them are legal for a problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil

from aotc.aot.ir.size import bounds, highest
from aotc.aot.lower.matmul.choice import (
    CODE_TILES,
    DECODING,
    FRAGMENTS,
    GEMV_ALONG_COLUMNS,
    GEMV_ALONG_DEPTH,
    GEMV_WALKS,
    LANES,
    LEAST_COLUMNS,
    SPLITS,
    STYLES,
    SWAPPED_TILES,
    TILES,
    Choice,
    Problem,
    Tile,
)
from aotc.aot.lower.matmul.gpu_cost import (
    REGISTERS,
    Machine,
    machine_of,
    nanoseconds,
    walks_at_once,
)
from aotc.aot.lower.tiles import power_above, power_below
from aotc.aot.traits import TargetTraits

CANDIDATES = 40  # kept of a problem, the cheapest first
FEW_ROWS = 8  # rows up to which products are added up without tensor cores
MOST_HELD = 128  # elements of a chunk of all rows, which a thread multiplies piece by piece
DECODED_COLUMNS = 8  # of such a program, and twice as many where all are loaded ahead
MOST_DECODED = 16  # elements of the result of a program that decodes for several rows
PIECE = 8  # of them that a thread has in registers beside codes, of each row
ROW_BLOCKS = 4  # of that many rows, which read the other operand again, at most at any call
MOST_FRAGMENT_ROWS = 16  # rows that are multiplied with codes in the registers of tensor cores
SMALL_ROWS = 64  # rows up to which the other operand takes the rows of the tensor core
PARTIAL_BYTES = 64 << 20  # of split tiles, at most
MOST_REGISTERS = 255  # of a thread
ACCUMULATOR_REGISTERS = 128  # of a thread that an accumulator may take
MOST_WALKED = 144  # elements that a thread of a walk over columns has
MOST_WORK = 512  # of a thread on a step's tiles: a compiler takes a minute for ten times that
LEAST_DEPTH = 16  # of a tile
SUREST = Tile(32, 32, 32, 4, 1)  # nothing is staged: it fits whatever its loads compute


def choices(
    problem: Problem, traits: TargetTraits, limit: int | None = CANDIDATES
) -> tuple[Choice, ...]:
    """Legal choices, the cheapest first by the roofline model; `limit` of them."""
    machine = machine_of(traits)
    found = list(dict.fromkeys(_all(problem, machine)))
    least = min((choice.loading_work for choice in found), default=0)
    if least > MOST_WORK:
        shallow = dict.fromkeys(map(_shallow, found))
        found = [each for each in shallow if _is_legal(each, machine)]
        least = min((choice.loading_work for choice in found), default=0)
    found = [each for each in found if each.loading_work <= max(least, _most_work(each))]
    return tuple(_cheapest_first(found, problem, machine)[:limit])


def _most_work(choice: Choice) -> int:
    """A thread of a decoding form has whole chunks: its tile can be no shallower."""
    return 2 * MOST_WORK if choice.style.is_decoding else MOST_WORK


def _cheapest_first(found: Sequence[Choice], problem: Problem, machine: Machine) -> list[Choice]:
    """The choices by their time; of calls with other numbers of rows, each beside the least there.

    One tile more than fits at once doubles the time, so that what suits one size alone may be far
    from the best of another one nearby.
    """
    costs = [0.0] * len(found)
    for call in _calls(problem):
        times = [nanoseconds(replace(choice, problem=call), machine) for choice in found]
        least = min(times, default=1.0)
        costs = [cost + time / least for cost, time in zip(costs, times, strict=True)]
    return [found[place] for place in sorted(range(len(found)), key=costs.__getitem__)]


def _calls(problem: Problem) -> Iterator[Problem]:
    """The problem at its typical rows and at a quarter, half, twice and four times of these, as far
    as they are in range."""
    rows, (low, high) = problem.rows, bounds(problem.extents[1])
    row_bytes = (problem.depth + problem.columns) * problem.itemsize_bytes * problem.batch
    sizes = (rows, rows // 2, 2 * rows, rows // 4, 4 * rows)
    for near in dict.fromkeys(max(low, min(size, high)) for size in sizes):
        extents = (problem.extents[0], near, *problem.extents[2:])
        more = (near - rows) * row_bytes
        yield replace(problem, extents=extents, bytes=max(0, problem.bytes + more))


def surest(problem: Problem) -> Choice:
    """The choice that fits every device, whatever is fused into the loads of the operands;
    candidates end with it."""
    return _shallow(Choice(STYLES["plain"], problem, _scaled(SUREST, problem)))


def _all(problem: Problem, machine: Machine) -> Iterator[Choice]:
    for make in (_decoding, _fragments, _gemv, _swapped, _tiled):
        for choice in make(problem, machine):
            if _is_legal(choice, machine):
                yield choice


def _is_legal(choice: Choice, machine: Machine) -> bool:
    tile, problem = choice.tile, choice.problem
    if choice.shared_bytes > machine.shared_bytes or highest(choice.partial_bytes) > PARTIAL_BYTES:
        return False
    if tile.rows * tile.columns > ACCUMULATOR_REGISTERS * 32 * tile.warps:
        return False
    return not problem.run or problem.run % tile.depth == 0


def _gemv(problem: Problem, machine: Machine) -> Iterator[Choice]:
    if problem.run or _takes_fragments(problem):
        return
    most, few = highest(problem.extents[1]), power_above(problem.rows)
    if most <= FEW_ROWS:  # one tile holds all rows
        yield from _flat("gemv", power_above(most), problem)
        yield from _column_walks(power_above(most), problem, machine)
    if few <= FEW_ROWS and few < most <= ROW_BLOCKS * few:
        yield from _flat("gemv_rows", few, problem)


def _column_walks(rows: int, problem: Problem, machine: Machine) -> Iterator[Choice]:
    """Programs that have the whole depth of their rows, of constant columns that lie along it."""
    is_one = problem.extents[0] == 1 and problem.is_right_along_depth and not problem.chunk
    if not is_one or not problem.is_right_constant:
        return
    depth = power_above(highest(problem.extents[3]))  # a tile has all of it, at every call
    for elements, warps, each in GEMV_WALKS:
        threads, programs = LANES * warps, each * machine.multiprocessors
        columns = elements * threads // (rows * depth)
        tile = Tile(rows, max(1, columns), depth, warps, 1)
        choice = Choice(STYLES["gemv_walk"], problem, tile, programs=programs)
        # The row, the columns that come, and the products.
        held = (rows + columns + rows * columns) * depth // threads
        fits = held <= MOST_WALKED and choice.loading_work <= MOST_WORK
        fits = fits and walks_at_once(choice) >= each
        if columns >= problem.column_group and fits and choice.tiles >= 2 * programs:
            yield choice


def _decoding(problem: Problem, machine: Machine) -> Iterator[Choice]:
    rows = power_above(problem.rows)
    if not problem.chunk or rows * problem.chunk > MOST_HELD:
        return
    if highest(problem.extents[1]) > ROW_BLOCKS * rows:
        return
    for columns, chunks, warps, stages in DECODING:
        columns = max(columns, problem.column_group)
        if rows > 1 and rows * columns > MOST_DECODED:
            continue
        chunks = min(chunks, max(LANES, power_above(ceil(problem.depth / problem.chunk))))
        if chunks < LANES * warps:  # threads would exchange what they have of A
            continue
        # What a thread has of both operands as f32 and words, and its sums.
        held = rows * PIECE + columns * 4 + rows * columns
        held *= chunks // (LANES * warps)
        if held > ACCUMULATOR_REGISTERS or columns > power_above(problem.columns):
            continue
        tile = Tile(rows, columns, chunks * problem.chunk, warps, stages)
        choice = Choice(STYLES["decoding"], problem, tile)
        if columns <= DECODED_COLUMNS or _is_loaded_ahead(choice, machine):
            yield choice


def _is_loaded_ahead(choice: Choice, machine: Machine) -> bool:
    """Whether all programs fit at once with all registers, and half of all codes into these: as
    much is loaded while the kernels before still run."""
    programs, steps = choice.tiles * choice.problem.batch, choice.problem.depth / choice.tile.depth
    held = MOST_REGISTERS * LANES * choice.tile.warps
    return steps <= 2 and programs * held <= machine.multiprocessors * REGISTERS


def _takes_fragments(problem: Problem) -> bool:
    return bool(problem.piece) and 1 < problem.rows <= MOST_FRAGMENT_ROWS


def _fragments(problem: Problem, machine: Machine) -> Iterator[Choice]:
    """Codes of few rows straight to the tensor cores: of the whole depth, and of equal steps."""
    if not _takes_fragments(problem):
        return
    columns = max(LEAST_COLUMNS, power_above(problem.rows))
    for rows, warps in FRAGMENTS:
        each = warps * problem.piece
        whole = power_above(ceil(problem.depth / each))  # pieces of a warp
        for pieces in dict.fromkeys(min(whole, count) for count in (whole, 8, 4, 2)):
            tile = Tile(rows, columns, pieces * each, warps, 1)
            codes = rows * pieces * problem.piece * problem.code_bits // 8
            held = codes // (4 * LANES) + rows * columns * pieces // LANES
            if held <= ACCUMULATOR_REGISTERS and rows >= problem.column_group:
                name = "fragments_whole" if pieces == whole else "fragments"
                yield Choice(STYLES[name], problem, tile)


def _flat(style: str, rows: int, problem: Problem) -> Iterator[Choice]:
    along_depth = problem.is_right_along_depth
    for columns, depth, warps, stages in GEMV_ALONG_DEPTH if along_depth else GEMV_ALONG_COLUMNS:
        columns = max(columns, problem.column_group)
        depth = min(depth, power_above(problem.depth))
        tile = Tile(rows, columns, depth, warps, stages)
        work = Choice(STYLES[style], problem, tile).loading_work
        while work > MOST_WORK and depth > LANES:
            work, depth = work // 2, depth // 2
        if rows * columns * depth > ACCUMULATOR_REGISTERS * 32 * warps or columns > power_above(
            problem.columns
        ):
            continue
        yield Choice(STYLES[style], problem, Tile(rows, columns, depth, warps, stages))


def _swapped(problem: Problem, machine: Machine) -> Iterator[Choice]:
    if problem.rows > SMALL_ROWS or problem.run or not machine.has_tensor_copies:
        return
    if _takes_fragments(problem) or (problem.rows == 1 and not problem.chunk):
        return
    columns = max(16, power_above(problem.rows))
    for row in (*SWAPPED_TILES, *(CODE_TILES if problem.chunk else ())):
        tile = _scaled(Tile(row.rows, columns, row.depth, row.warps, row.stages), problem)
        is_step = bool(problem.step) and tile.depth <= problem.step
        name = "swapped_codes" if is_step else "swapped"
        choice = Choice(STYLES[name], problem, tile)
        yield choice
        if _may_map(problem, machine):
            yield Choice(STYLES["swapped_mapped"], problem, tile)
        for split in _splits(choice, machine):
            yield Choice(STYLES[f"{name}_split"], problem, tile, split=split)


def _tiled(problem: Problem, machine: Machine) -> Iterator[Choice]:
    for row in TILES:
        tile = _scaled(row, problem)
        if not _fits(tile, problem):
            continue
        plain = Choice(STYLES["plain"], problem, tile)
        group = _group(plain, machine)
        for name in _loadings(problem, machine):
            yield Choice(STYLES[name], problem, tile, group)
            for split in _splits(plain, machine):
                style = STYLES["split" if name == "plain" else f"split_{name}"]
                yield Choice(style, problem, tile, group, split)
        programs = min(machine.multiprocessors, highest(plain.tile_count))
        for name in _walks(problem, machine):
            for flatten in (0, 1):
                yield Choice(STYLES[name], problem, tile, group, 1, programs, flatten)


# Element types of the descriptors that a plan holds.
MAPPED_DTYPES = frozenset({"f16", "bf16", "f32"})


def _loadings(problem: Problem, machine: Machine) -> tuple[str, ...]:
    """Styles of one tile a program."""
    if not _may_describe(problem, machine):
        return ("plain",)
    return ("plain", "mapped") if _may_map(problem, machine) else ("plain", "tensor")


def _walks(problem: Problem, machine: Machine) -> tuple[str, ...]:
    """Styles of programs that walk over tiles."""
    if not _may_describe(problem, machine) or problem.extents[0] != 1:
        return ()
    return ("mapped_persistent",) if _may_map(problem, machine) else ("persistent",)


def _may_describe(problem: Problem, machine: Machine) -> bool:
    return problem.has_descriptors and problem.is_plain and machine.has_tensor_copies


def _may_map(problem: Problem, machine: Machine) -> bool:
    """Whether a launch can describe the operands: one matrix each, not one a batch element."""
    is_known = problem.dtype in MAPPED_DTYPES and problem.extents[0] == 1
    return machine.has_maps and is_known and _may_describe(problem, machine)


def _scaled(tile: Tile, problem: Problem) -> Tile:
    """The tile with as many bytes of depth for wider elements, no deeper than the problem."""
    depth = max(LEAST_DEPTH, tile.depth * 2 // problem.itemsize_bytes)
    if problem.dtype in ("f32", "f64") and problem.precision == "ieee":
        depth = LEAST_DEPTH
    depth = min(depth, max(LEAST_DEPTH, power_above(problem.run or problem.depth)))
    if problem.run:
        depth = min(depth, problem.run & -problem.run)
    return replace(tile, depth=depth)


def _shallow(choice: Choice) -> Choice:
    """The choice no deeper than a thread may compute elements of the operands for.

    The depth of flat tiles is bounded already, that of codes is of whole chunks for all lanes.
    """
    if choice.style.is_flat or choice.problem.chunk:
        return choice
    while choice.loading_work > MOST_WORK and choice.tile.depth > LEAST_DEPTH:
        choice = replace(choice, tile=replace(choice.tile, depth=choice.tile.depth // 2))
    return choice


def _fits(tile: Tile, problem: Problem) -> bool:
    """Whether the tile is not much larger than the problem."""
    rows, columns = max(16, power_above(problem.rows)), max(16, power_above(problem.columns))
    if tile.rows > rows * 2 or tile.columns > columns * 2:
        return False
    is_small = tile.rows < 64 or tile.columns < 64
    return not is_small or tile.rows >= rows or tile.columns >= columns


def _splits(choice: Choice, machine: Machine) -> list[int]:
    """Parts of the depth worth trying: enough steps each, not many more programs than fit."""
    tiles = choice.tiles * choice.problem.batch
    steps = ceil(choice.problem.depth / choice.tile.depth)
    most = min(steps // 3, 2 * machine.multiprocessors // max(1, tiles))
    return [split for split in SPLITS if split <= most]


def _group(choice: Choice, machine: Machine) -> int:
    """Rows of tiles walked together, so that a wave of programs reads the fewest bytes."""
    rows, _ = choice.sizes
    wave = machine.multiprocessors
    wanted = (wave * choice.tile.columns / choice.tile.rows) ** 0.5
    return max(1, min(power_below(wanted), power_above(ceil(rows / choice.tile.rows))))
