"""Numbers the rows of a product over windows by positions in the input's memory, padding
included.

    rows of the result, 4 × 4     counted along an input of rows of 6
    0  1  2  3                     0  1  2  3  .  .
    4  5  6  7                     6  7  8  9  .  .

Tiles of the processor read rows at a steady distance. Windows of stride 1 begin one pixel after the
other, but for the margin at the end of each row of an image. Positions in the margin are computed
with the others and not stored: then all rows of an image are at a steady distance, whatever the
filter, and each tile is read where the input stands, with no copy of a window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.infer import WORDS_RANK
from aotc.aot.ir.size import Extent, typical
from aotc.aot.lower.matmul.operands import Walk, behind_zeros, product_of
from aotc.aot.lower.spec import Candidate
from aotc.aot.lower.tiles import PACKED, TILED_COSTS, WINDOWS, blocks, matmul_candidates
from aotc.aot.schedule.contiguous_copies import is_narrow
from aotc.aot.schedule.domain import batch_index, operand_accesses
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.trace import Access, accesses
from aotc.aot.traits import TargetTraits

TILE_ROWS = 16  # of the processor's tiles
MOST_COMPUTED = 1.5  # positions for each that is stored: a copy of windows costs about as much


MOST_COMPUTED_NARROW = 1.2  # the same where vectors multiply, which take longer for them


@dataclass(frozen=True, slots=True)
class WideRows:
    """Rows of `images` × `high` × `across` positions, those of an image `pitch` positions apart."""

    images: Extent
    high: Symbol
    across: Symbol
    pitch: int
    left: Access
    """What the left operand reads at `row` of an image and the depth's own symbol."""
    data_bytes: float

    @property
    def image(self) -> Symbol:
        return Symbol("image", self.images)

    @property
    def row(self) -> Symbol:
        """A position of an image, one in the margin too."""
        return Symbol("x", positions(self.high, self.across, self.pitch))

    @property
    def index(self) -> Index:
        """The row of the result."""
        return _row(self.image, self.high, self.across)

    def lines(self, axis: int, height: str) -> list[str]:
        """Text of a program's rows: the last tile of an image moves back to end with it."""
        count, high, across = self.row.extent, self.high.name, self.across.name
        mask = [f"x_mask = {across} < {self.across.extent}"] if self.has_margins else []
        return [
            f"tile = tl.program_id({axis})",
            f"image = tile // tl.cdiv({count}, {height})",
            f"first = tl.minimum(tile % tl.cdiv({count}, {height}) * {height}, {count} - {height})",
            f"x = first + tl.arange(0, {height})[:, None]",
            f"{high} = x // {self.pitch}",
            f"{across} = x % {self.pitch}",
            *mask,
        ]

    @property
    def has_margins(self) -> bool:
        """Whether some positions are not stored."""
        return self.pitch != self.across.extent

    @property
    def masks(self) -> dict[Symbol, str]:
        """Names of the masks of its symbols."""
        return {self.across: "x_mask"} if self.has_margins else {}

    @property
    def is_by_columns(self) -> bool:
        """Whether neighbouring programs have the same rows: where the input does not fit a core's
        cache, and what a tile reads does."""
        return self.data_bytes > TILED_COSTS.half_cache_bytes

    def candidates(
        self,
        shape: tuple[Extent, Extent, Extent, Extent],
        traits: TargetTraits,
        inner: int,
    ) -> tuple[Candidate, ...]:
        """Configs BM, BN, BK of products (batch, rows, columns, depth); the grid is (tiles of all
        images, panels, batch), or panels first."""
        batch, _, columns, depth = shape
        of_images = self.images * batch, self.row.extent, columns, depth
        found = []
        reading = WINDOWS if traits.has_tiles else PACKED
        for candidate in matmul_candidates(of_images, reading, traits, inner):
            sizes = dict(candidate.config)
            tiles = blocks(self.row.extent, sizes["BM"]) * self.images
            grid = tiles, blocks(columns, sizes["BN"])
            grid = grid[::-1] if self.is_by_columns else grid
            found.append(replace(candidate, grid=(*grid, batch)))
        return tuple(found)


def positions(high: Symbol, across: Symbol, pitch: int) -> int:
    """From the first to the last one of an image."""
    rows, columns = high.extent, across.extent
    assert isinstance(rows, int)
    assert isinstance(columns, int)
    return (rows - 1) * pitch + columns


def _row(image: Symbol, high: Symbol, across: Symbol) -> Index:
    row = ix.of(image) * high.extent + ix.of(high)
    return row * across.extent + ix.of(across)


def wide_rows_of(group: Group, walk: Walk, inner: Symbol, traits: TargetTraits) -> WideRows | None:
    """How the group's rows are counted so; None where they are no positions of windows that stand
    in memory, or too many of them would lie in margins."""
    root_op, domain = group.root_op, group.domain
    if root_op is None or domain.reduced is None:
        return None
    is_packed = root_op.kind == "matmul_packed" and root_op.inputs[1].type.rank == WORDS_RANK
    most = MOST_COMPUTED
    if not traits.has_tiles:
        is_packed, most = is_narrow(root_op, traits), MOST_COMPUTED_NARROW
    dims = _row_dims(root_op.inputs[0])
    if not is_packed or len(dims) < 2 or not all(isinstance(each, int) for each in dims[-2:]):
        return None
    if product_of(group).left.strides is not None:
        return None  # all rows are at a steady distance
    images = math.prod(dims[:-2])
    image, high, across = (
        Symbol("image", images),
        Symbol("high", dims[-2]),
        Symbol("across", dims[-1]),
    )
    need, _ = operand_accesses(root_op, domain, batch_index(root_op, domain))
    values = {domain.rows: _row(image, high, across), domain.reduced: walk.position(inner)}
    reads = frozenset(group.reads)
    need = _at(need, values)
    found = _in_memory(behind_zeros(need, reads) if walk.is_padded else need, reads)
    pitch = None if found is None else _pitch(found, high, across)
    if found is None or pitch is None or 1 in (high.extent, across.extent):
        return None
    count = positions(high, across, pitch)
    wide = Symbol("x", count)
    moved = {high: ix.of(wide) // pitch, across: ix.of(wide) % pitch}
    left = _at(found, moved)
    offset = ix.linear(left.index, left.node.shape)
    is_steady = isinstance(offset.stride(wide), int) and offset.stride(inner) == 1
    computed, stored = -(-count // TILE_ROWS) * TILE_ROWS, high.extent * across.extent
    if not is_steady or count < TILE_ROWS or computed > most * typical(stored):
        return None
    return WideRows(images, high, across, pitch, left, typical(left.node.type.nbytes))


def _row_dims(operand: Node) -> tuple[Extent, ...]:
    """The dims of what an operand views that its rows are made of; empty where it is no such. Of
    several products the first dim counts them."""
    if operand.op != "reshape":
        return ()
    shape, (*batch, rows, _) = operand.inputs[0].shape, operand.shape
    if list(shape[: len(batch)]) != batch:
        return ()
    shape = shape[len(batch) :]
    counts = (count for count in range(2, len(shape)) if math.prod(shape[:count]) == rows)
    return shape[: next(counts, 0)]


def _at(need: Access, values: Mapping[Symbol, Index]) -> Access:
    return Access(need.node, tuple(part.substitute(values) for part in need.index))


def _in_memory(need: Access, reads: frozenset[Node]) -> Access | None:
    """What is read behind views and windows; None where it is computed, or a margin."""
    while need.node not in reads:
        if need.node.kind not in ("view", "window"):
            return None
        (need,) = accesses(need.node, need.index)
        if need.conditions:
            return None
    return need


def _pitch(need: Access, high: Symbol, across: Symbol) -> int | None:
    """Positions of one row of an image to the next, margins included."""
    offset = ix.linear(need.index, need.node.shape)
    rows, columns = offset.stride(high), offset.stride(across)
    if not isinstance(rows, int) or not isinstance(columns, int) or columns < 1:
        return None
    return None if rows % columns or rows < columns else rows // columns
