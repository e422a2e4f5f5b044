"""How the loop of a matmul walks its inner dimension: straight through, or run by run."""

from __future__ import annotations

from dataclasses import dataclass

from aotc.aot.ir.index import Symbol
from aotc.aot.ir.size import Extent
from aotc.aot.lower.body import Body
from aotc.aot.lower.tiles import power_above

SMALLEST_BLOCK = 16  # BK below which the loop costs more than the multiplications


@dataclass(frozen=True, slots=True)
class Walk:
    """How the loop walks k: straight through, or run by run, one a kernel offset of a window.

    Each run takes `block` steps of the loop: its own length, or the next power of two if no power
    of two that is worth a block divides it.
    """

    depth: Extent
    run: Extent
    block: Extent

    @property
    def is_split(self) -> bool:
        """Whether there are several runs."""
        return self.run != self.depth

    @property
    def kernel_size(self) -> Extent:
        """Number of runs."""
        return self.depth // self.run

    @property
    def is_padded(self) -> bool:
        """Whether a run takes more steps than it has elements."""
        return self.block != self.run

    def write_depth(self, body: Body, inner: Symbol, dim: str, has_offset: bool) -> None:
        """Write an operand's own k along its tile, and if it is that of one run, with `has_offset`
        also which run it is."""
        start, inside = "start", frozenset({inner})
        if inner.extent != self.depth:
            start = f"start % {self.block}"
            if has_offset:
                body.write(f"kernel_offset = start // {self.block}", inside)
        body.write(f"{inner.name} = {start} + tl.arange(0, BK){dim}", inside)


def walk_of(depth: Extent, run: Extent) -> Walk:
    """The walk over `depth` elements in contiguous runs; a run of 0 is none worth a split."""
    if run in (0, depth) or not isinstance(run, int):
        return Walk(depth, depth, depth)
    return Walk(depth, run, run if (run & -run) >= SMALLEST_BLOCK else power_above(run))
