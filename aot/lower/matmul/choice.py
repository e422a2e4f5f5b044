"""A matmul on a GPU and one config of it: its programs, memory and parameters."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from aotc.aot.ir.graph import Node
from aotc.aot.ir.size import Extent, highest, smallest, typical
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower.spec import Candidate, Scratch
from aotc.aot.lower.tiles import blocks
from aotc.aot.traits import TargetTraits


@dataclass(frozen=True, slots=True)
class Style:
    """How a form is written: its template, which operand gives the rows, how tiles are loaded."""

    name: str
    template: str
    is_swapped: bool = False
    has_descriptors: bool = False
    has_maps: bool = False  # descriptors that the launch makes, not the kernel
    multiplies_codes: bool = False  # as they are, and the sums by the factor of their group
    is_whole: bool = False  # a program has the whole depth in one step

    @property
    def is_flat(self) -> bool:
        """Whether products are added up without tensor cores."""
        return self.template in ("gemv", "gemv_walk", "gemv_rows", "decoding")

    @property
    def is_walk(self) -> bool:
        """Whether programs without tensor cores walk over columns."""
        return self.template == "gemv_walk"

    @property
    def is_decoding(self) -> bool:
        """Whether the right operand is loaded as codes, a chunk of them a thread."""
        return self.template == "decoding"

    @property
    def is_fragments(self) -> bool:
        """Whether codes are loaded into the registers of tensor cores, in pieces of the depth."""
        return self.template == "fragments"

    @property
    def has_more_axes(self) -> bool:
        """Whether tiles of the operands have more axes than that of the result."""
        return self.is_flat or self.is_fragments


STYLES: dict[str, Style] = {
    row.name: row
    for row in (
        Style("plain", "plain"),
        Style("tensor", "plain", has_descriptors=True),
        Style("persistent", "persistent", has_descriptors=True),
        Style("mapped", "plain", has_descriptors=True, has_maps=True),
        Style("mapped_persistent", "persistent", has_descriptors=True, has_maps=True),
        Style("split", "split"),
        Style("split_mapped", "split", has_descriptors=True, has_maps=True),
        Style("swapped_mapped", "plain", is_swapped=True, has_descriptors=True, has_maps=True),
        Style("split_tensor", "split", has_descriptors=True),
        Style("swapped", "plain", is_swapped=True),
        Style("swapped_split", "split", is_swapped=True),
        Style("swapped_codes", "plain", is_swapped=True, multiplies_codes=True),
        Style("swapped_codes_split", "split", is_swapped=True, multiplies_codes=True),
        Style("gemv", "gemv"),
        Style("gemv_walk", "gemv_walk"),
        Style("gemv_rows", "gemv_rows"),
        Style("decoding", "decoding"),
        Style("fragments", "fragments", is_swapped=True, multiplies_codes=True),
        Style(
            "fragments_whole", "fragments", is_swapped=True, multiplies_codes=True, is_whole=True
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Tile:
    """BM, BN, BK, warps and stages of a program."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


# 16-bit operands on tensor cores; depth and stages of wider ones are scaled by their bytes.
TILES: tuple[Tile, ...] = tuple(
    Tile(*row)
    for row in (
        (128, 256, 64, 8, 3),
        (256, 128, 64, 8, 3),
        (128, 256, 64, 8, 4),
        (128, 128, 64, 8, 4),
        (128, 128, 64, 8, 6),
        (128, 128, 64, 4, 3),
        (128, 128, 64, 4, 5),
        (128, 128, 128, 8, 3),
        (64, 256, 64, 4, 3),
        (64, 256, 64, 4, 5),
        (256, 64, 64, 8, 4),
        (128, 64, 64, 4, 4),
        (128, 64, 64, 4, 6),
        (128, 64, 64, 4, 8),
        (128, 64, 128, 4, 3),
        (64, 128, 64, 4, 4),
        (64, 128, 64, 4, 3),
        (64, 128, 64, 4, 6),
        (64, 128, 64, 4, 8),
        (64, 128, 128, 4, 4),
        (64, 128, 128, 4, 3),
        (64, 64, 64, 4, 4),
        (64, 64, 64, 4, 6),
        (64, 64, 128, 4, 4),
        (64, 64, 256, 4, 3),
        (64, 32, 128, 4, 4),
        (32, 64, 128, 4, 4),
        (32, 32, 128, 4, 4),
        (16, 64, 128, 4, 4),
        (16, 128, 64, 4, 4),
    )
)
# The weights are the rows here, the few rows of A the columns.
SWAPPED_TILES: tuple[Tile, ...] = tuple(
    Tile(rows, 0, depth, warps, stages)
    for rows, depth, warps, stages in (
        (64, 64, 4, 6),
        (64, 128, 4, 4),
        (64, 128, 4, 6),
        (64, 256, 4, 3),
        (64, 256, 4, 4),
        (128, 64, 4, 6),
        (128, 128, 4, 4),
        (32, 256, 4, 4),
        (16, 256, 2, 6),
        (16, 512, 4, 4),
    )
)
# The same of weights that are codes.
CODE_TILES: tuple[Tile, ...] = tuple(
    Tile(rows, 0, depth, warps, stages)
    for rows, depth, warps, stages in (
        (64, 64, 4, 8),
        (32, 64, 4, 6),
        (32, 64, 2, 8),
        (32, 128, 4, 4),
        (32, 128, 4, 6),
        (16, 128, 2, 6),
        (16, 128, 4, 6),
        (128, 64, 8, 6),
    )
)
SPLITS = (2, 3, 4, 6, 8, 16, 32, 64)
# Columns, depth, warps, stages of a program without tensor cores.
GEMV_ALONG_DEPTH: tuple[tuple[int, int, int, int], ...] = (
    (1, 512, 1, 1),
    (1, 1024, 1, 1),
    (1, 1024, 2, 1),
    (1, 2048, 4, 1),
    (2, 512, 1, 1),
    (2, 512, 2, 1),
    (2, 1024, 2, 1),
    (2, 1024, 4, 1),
    (2, 2048, 4, 1),
    (4, 256, 1, 1),
    (4, 512, 2, 1),
    (4, 512, 4, 1),
    (4, 1024, 4, 1),
    (4, 1024, 4, 3),
    (4, 2048, 8, 1),
    (8, 256, 2, 1),
    (8, 256, 4, 1),
    (8, 512, 4, 1),
    (8, 512, 4, 3),
    (8, 1024, 8, 1),
    (16, 256, 4, 1),
    (16, 256, 4, 3),
)
# Elements of a thread on a tile, warps, programs of a multiprocessor that walk over columns.
GEMV_WALKS: tuple[tuple[int, int, int], ...] = (
    (32, 4, 8),
    (32, 4, 6),
    (64, 4, 4),
    (16, 4, 8),
    (16, 8, 4),
    (32, 8, 3),
    (16, 16, 2),
    (64, 8, 2),
)
GEMV_ALONG_COLUMNS: tuple[tuple[int, int, int, int], ...] = (
    (32, 64, 4, 1),
    (64, 32, 4, 1),
    (64, 64, 4, 1),
    (128, 32, 4, 1),
    (128, 16, 4, 1),
    (256, 16, 4, 1),
    (64, 128, 8, 1),
)
# Columns, chunks of codes along the depth, warps, stages of a program that widens codes: a chunk
# or more a thread, so that each has the elements of A that it needs.
DECODING: tuple[tuple[int, int, int, int], ...] = (
    (1, 32, 1, 1),
    (2, 32, 1, 1),
    (4, 32, 1, 1),
    (8, 32, 1, 1),
    (16, 32, 1, 1),
    (2, 64, 1, 1),
    (4, 64, 1, 1),
    (1, 64, 2, 1),
    (2, 64, 2, 1),
    (4, 64, 2, 1),
    (8, 64, 2, 1),
    (2, 128, 2, 1),
    (4, 128, 2, 1),
    (1, 128, 4, 1),
    (2, 128, 4, 1),
    (4, 128, 4, 1),
    (8, 128, 4, 1),
    (2, 256, 4, 1),
    (4, 256, 4, 1),
    (2, 256, 8, 1),
    (4, 256, 8, 1),
    (8, 256, 8, 1),
    (2, 512, 8, 1),
    (4, 512, 8, 1),
    (8, 512, 8, 1),
)

# Rows of weights, and warps, of a program that has codes in the registers of tensor cores.
FRAGMENTS: tuple[tuple[int, int], ...] = ((16, 4), (16, 8), (16, 16), (32, 4), (32, 8))

LEAST_COLUMNS = 8  # that a tensor core multiplies at once
LANES = 32  # threads of a warp
MAP_NAMES = ("a_rows", "b_rows")
SHARED_RESERVE = 1024  # bytes of shared memory for barriers and alignment


def precision_of(root_op: Node, columns: Extent, depth: Extent, traits: TargetTraits) -> str:
    """The precision of a product as Triton calls it."""
    if root_op.op == "matmul_tf32":
        return "tf32"
    return traits.precision_of_product(root_op.dtype, typical(columns), typical(depth))


@dataclass(frozen=True, slots=True)
class Problem:
    """One matmul: sizes in elements, traffic in bytes.

    `extents` are batch, rows, columns and depth at every call. The ranking sees the typical ones.
    """

    extents: tuple[Extent, Extent, Extent, Extent]
    dtype: str
    run: int = 0  # elements that the loop over k may take at once; 0: all of them
    is_right_along_depth: bool = True
    is_right_constant: bool = False  # no kernel of the call writes it
    has_descriptors: bool = False
    is_plain: bool = True  # both operands are memory as it lies, nothing is computed in the loads
    work: tuple[int, int] = (0, 0)  # operations that load an element of either operand
    column_group: int = 1  # columns that meet in one element of the result
    is_normed: bool = False  # each program norms the row of A by itself
    code_bits: int = 0  # of an element of the right operand, where that is of codes
    chunk: int = 0  # codes that a thread loads at once
    step: int = 0  # codes along k that are multiplied by one factor
    piece: int = 0  # the same of fragments; 0 where they are not loaded so
    precision: str = "ieee"
    bytes: int = 0  # that the kernel moves, of a table the rows that it reads
    function_work: float = 0.0  # operations of functions for each element of the result

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
    def loading_work(self) -> int:
        """Operations of a thread that load one step's tiles of both operands, all written out."""
        left, right = self.problem.work[::-1] if self.style.is_swapped else self.problem.work
        tile = self.tile
        return (tile.rows * left + tile.columns * right) * tile.depth // (LANES * tile.warps)

    @property
    def has_codes(self) -> bool:
        """Whether the right operand is loaded by whole chunks of codes."""
        style, chunk = self.style, self.problem.chunk
        is_flat = style.is_flat and not style.is_decoding
        return bool(chunk) and not is_flat and self.tile.depth % chunk == 0

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
    def tails(self) -> str:
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
        return "_".join(filter(None, (self.style.name, self.tails)))

    @property
    def constexpr_names(self) -> tuple[str, ...]:
        """Constexprs of the template, in its order."""
        extra = {
            "plain": ("GROUP",),
            "split": ("GROUP", "SPLIT"),
            "persistent": ("GROUP", "PROGRAMS", "FLATTEN"),
            "gemv": ("STAGES",),
            "gemv_walk": ("PROGRAMS",),
            "gemv_rows": ("STAGES",),
            "decoding": ("STAGES",),
            "fragments": ("WARPS",),
        }
        return ("BM", "BN", "BK", *extra[self.style.template])

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
            "WARPS": tile.warps,
        }
        config = [(name, values[name]) for name in self.constexpr_names]
        config += [
            ("num_warps", tile.warps),
            ("num_stages", 1 if self.style.has_more_axes else tile.stages),
        ]
        return Candidate(tuple(config), self.grid, self.source_name, self._scratch())

    @property
    def grid(self) -> tuple[Extent, Extent, Extent]:
        """Programs along the three axes."""
        batch = self.problem.extents[0]
        if self.style.template == "split":
            return (self.tile_count, self.split, batch)
        if self.style.template in ("persistent", "gemv_walk"):
            return (smallest(self.programs, self.tile_count), 1, 1)  # idle ones take their time too
        if self.style.is_fragments:
            rows, columns = self.extents
            return (blocks(rows, self.tile.rows), batch, blocks(columns, self.tile.columns))
        if self.style.template in ("gemv_rows", "decoding"):
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
        return self.shared_bytes_of((1, 1))

    def shared_bytes_of(self, loads: tuple[int, int]) -> int:
        """The same where tiles of the rows' and the columns' operand are computed of so many
        loads: Triton stages each of them by itself, and none where there is one stage."""
        tile, size = self.tile, self.problem.itemsize_bytes
        of_rows, of_columns = loads if tile.stages > 1 else (1, 1)
        if self.style.is_fragments:  # the sums of all warps
            return tile.rows * tile.columns * tile.warps * 4
        if self.style.is_flat:
            if self.style.is_decoding:
                size = 1
            width = tile.columns * of_columns * tile.depth * size
            return width * (tile.stages if tile.stages > 1 else 0)
        elements = tile.rows * of_rows + tile.columns * of_columns
        stages = tile.stages * elements * tile.depth * size
        return max(stages, tile.rows * tile.columns * size * 2) + SHARED_RESERVE
