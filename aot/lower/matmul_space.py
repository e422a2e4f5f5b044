"""The configs of a matmul on a GPU, as tables, and which of them are legal for a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from aotc.aot.ir.size import Extent, highest, smallest, typical
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower.matmul_tiles import (
    GEMV_ALONG_COLUMNS,
    GEMV_ALONG_DEPTH,
    SPLITS,
    STYLES,
    SWAPPED_TILES,
    TILES,
    Style,
    Tile,
)
from aotc.aot.lower.roofline import Machine, machine_of, nanoseconds
from aotc.aot.lower.spec import Candidate, Scratch
from aotc.aot.lower.tiles import blocks, power_above, power_below
from aotc.aot.schedule.traits import TargetTraits

CANDIDATES = 40  # kept of a problem, the cheapest first
FEW_ROWS = 8  # rows up to which products are added up without tensor cores
ROW_BLOCKS = 4  # of that many rows, which read the other operand again, at most at any call
SMALL_ROWS = 64  # rows up to which the other operand takes the rows of the tensor core
MAP_NAMES = ("a_rows", "b_rows")
PARTIAL_BYTES = 64 << 20  # of split tiles, at most
ACCUMULATOR_REGISTERS = 128  # of a thread that an accumulator may take
SHARED_RESERVE = 1024  # bytes of shared memory for barriers and alignment


@dataclass(frozen=True, slots=True)
class Problem:
    """One matmul: sizes in elements, traffic in bytes.

    `extents` are batch, rows, columns and depth at every call. The ranking sees the typical ones.
    """

    extents: tuple[Extent, Extent, Extent, Extent]
    dtype: str
    run: int = 0  # elements that the loop over k may take at once; 0: all of them
    is_left_along_depth: bool = True
    is_right_along_depth: bool = True
    has_descriptors: bool = False
    is_plain: bool = True  # both operands are memory as it lies, nothing is computed in the loads
    is_paired: bool = False
    precision: str = "ieee"
    operand_bytes: int = 0
    result_bytes: int = 0

    @property
    def batch(self) -> int:
        """Products side by side."""
        return typical(self.extents[0])

    @property
    def rows(self) -> int:
        """Rows of the left operand."""
        return typical(self.extents[1])

    @property
    def columns(self) -> int:
        """Columns of the right operand."""
        return typical(self.extents[2])

    @property
    def depth(self) -> int:
        """Elements of each sum."""
        return typical(self.extents[3])

    @property
    def itemsize_bytes(self) -> int:
        """Bytes of an element of the operands."""
        return DTYPES[self.dtype].itemsize_bytes


@dataclass(frozen=True, slots=True)
class Choice:
    """One legal config of one style for a problem."""

    style: Style
    problem: Problem
    tile: Tile
    group: int = 1
    split: int = 1
    programs: int = 0
    flatten: int = 0

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows and columns of the product, as its style turns it."""
        sizes = (self.problem.rows, self.problem.columns)
        return sizes[::-1] if self.style.is_swapped else sizes

    @property
    def extents(self) -> tuple[Extent, Extent]:
        """The same at every call."""
        sizes = self.problem.extents[1:3]
        return sizes[::-1] if self.style.is_swapped else sizes

    @property
    def tiles(self) -> int:
        """Tiles of the result of one batch element."""
        rows, columns = self.sizes
        return ceil(rows / self.tile.rows) * ceil(columns / self.tile.columns)

    @property
    def tile_count(self) -> Extent:
        """The same at every call."""
        rows, columns = self.extents
        return blocks(rows, self.tile.rows) * blocks(columns, self.tile.columns)

    @property
    def overhangs(self) -> str:
        """Letters of the axes on which tiles reach beyond the operands."""
        rows, columns = self.extents
        rests = (
            ("m", rows % self.tile.rows),
            ("n", columns % self.tile.columns),
            ("k", self.problem.extents[3] % (self.tile.depth * self.split)),
        )
        return "".join(letter for letter, rest in rests if rest != 0)

    @property
    def source_name(self) -> str:
        """Name of the form: the style, and which masks it has."""
        return "_".join(filter(None, (self.style.name, self.overhangs)))

    @property
    def constexpr_names(self) -> tuple[str, ...]:
        """Constexprs of the template, in its order."""
        extra = {
            "plain": ("GROUP",),
            "split": ("GROUP", "SPLIT"),
            "persistent": ("GROUP", "PROGRAMS", "FLATTEN"),
            "gemv": ("STAGES",),
            "gemv_rows": ("STAGES",),
        }
        return ("BM", "BN", "BK", *extra[self.style.template])

    @property
    def scratch_names(self) -> tuple[str, ...]:
        """Parameters after the operands and results: pointers, then descriptors."""
        pointers = ("partials", "counters") if self.style.template == "split" else ()
        return (*pointers, *MAP_NAMES) if self.style.has_maps else pointers

    def candidate(self) -> Candidate:
        """The candidate as the tuner takes it."""
        tile = self.tile
        values = {
            "BM": tile.rows,
            "BN": tile.columns,
            "BK": tile.depth,
            "GROUP": self.group,
            "SPLIT": self.split,
            "PROGRAMS": self.programs,
            "FLATTEN": self.flatten,
            "STAGES": tile.stages,
        }
        config = [(name, values[name]) for name in self.constexpr_names]
        config += [
            ("num_warps", tile.warps),
            ("num_stages", 1 if self.style.is_flat else tile.stages),
        ]
        return Candidate(tuple(config), self.grid, self.source_name, self._scratch())

    @property
    def grid(self) -> tuple[Extent, Extent, Extent]:
        """Programs along the three axes."""
        batch = self.problem.extents[0]
        if self.style.template == "split":
            return (self.tile_count, self.split, batch)
        if self.style.template == "persistent":
            return (smallest(self.programs, self.tile_count), 1, 1)  # idle ones take their time too
        if self.style.template == "gemv_rows":
            rows, columns = self.extents
            return (blocks(columns, self.tile.columns), batch, blocks(rows, self.tile.rows))
        return (self.tile_count, batch, 1)

    @property
    def partial_bytes(self) -> Extent:
        """Bytes of all partial tiles."""
        if self.style.template != "split":
            return 0
        wide = 8 if self.problem.dtype == "f64" else 4
        area = self.tile.rows * self.tile.columns * wide
        return self.problem.extents[0] * self.tile_count * self.split * area

    def _scratch(self) -> tuple[Scratch, ...]:
        if self.style.template != "split":
            return ()
        kind = "*fp64" if self.problem.dtype == "f64" else "*fp32"
        counters = highest(self.problem.extents[0] * self.tile_count * 4)
        return (
            Scratch("partials", kind, self.partial_bytes),
            Scratch("counters", "*i32", counters, is_zeroed=True),
        )

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a program: its stages, or the staged result if that is larger."""
        tile, size = self.tile, self.problem.itemsize_bytes
        if self.style.is_flat:
            return tile.columns * tile.depth * size * (tile.stages if tile.stages > 1 else 0)
        stages = tile.stages * (tile.rows + tile.columns) * tile.depth * size
        return max(stages, tile.rows * tile.columns * size * 2) + SHARED_RESERVE


def choices(
    problem: Problem, traits: TargetTraits, limit: int | None = CANDIDATES
) -> tuple[Choice, ...]:
    """Legal choices, the cheapest first by the roofline model; `limit` of them."""
    machine = machine_of(traits)
    found = list(dict.fromkeys(_all(problem, machine)))
    found.sort(key=lambda choice: nanoseconds(choice, machine))
    return tuple(found[:limit])


def _all(problem: Problem, machine: Machine) -> Iterator[Choice]:
    for make in (_gemv, _swapped, _tiled):
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
    if problem.run:
        return
    most, few = highest(problem.extents[1]), power_above(problem.rows)
    if most <= FEW_ROWS:  # one tile holds all rows
        yield from _flat("gemv", power_above(most), problem)
    if few <= FEW_ROWS and few < most <= ROW_BLOCKS * few:
        yield from _flat("gemv_rows", few, problem)


def _flat(style: str, rows: int, problem: Problem) -> Iterator[Choice]:
    along_depth = problem.is_right_along_depth
    for columns, depth, warps, stages in GEMV_ALONG_DEPTH if along_depth else GEMV_ALONG_COLUMNS:
        columns = max(columns, 2) if problem.is_paired else columns
        depth = min(depth, power_above(problem.depth))
        if rows * columns * depth > ACCUMULATOR_REGISTERS * 32 * warps or columns > power_above(
            problem.columns
        ):
            continue
        yield Choice(STYLES[style], problem, Tile(rows, columns, depth, warps, stages))


def _swapped(problem: Problem, machine: Machine) -> Iterator[Choice]:
    if not 1 < problem.rows <= SMALL_ROWS or problem.run or not machine.has_tensor_copies:
        return
    columns = max(16, power_above(problem.rows))
    for row in SWAPPED_TILES:
        tile = _scaled(Tile(row.rows, columns, row.depth, row.warps, row.stages), problem)
        choice = Choice(STYLES["swapped"], problem, tile)
        yield choice
        if _may_map(problem, machine):
            yield Choice(STYLES["swapped_mapped"], problem, tile)
        for split in _splits(choice, machine):
            yield Choice(STYLES["swapped_split"], problem, tile, split=split)


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
    return machine.has_maps and problem.extents[0] == 1 and _may_describe(problem, machine)


def _scaled(tile: Tile, problem: Problem) -> Tile:
    """The tile with as many bytes of depth for wider elements, no deeper than the problem."""
    depth = max(16, tile.depth * 2 // problem.itemsize_bytes)
    if problem.dtype in ("f32", "f64") and problem.precision == "ieee":
        depth = 16
    depth = min(depth, max(16, power_above(problem.run or problem.depth)))
    if problem.run:
        depth = min(depth, problem.run & -problem.run)
    return Tile(tile.rows, tile.columns, depth, tile.warps, tile.stages)


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
