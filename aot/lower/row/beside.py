"""Column reductions whose reduced elements are adjacent in memory within a column.

Where channels are the last axis, the few channels of a group are neighbours, and so are the groups:
a norm of groups reduces a short run of what is contiguous, and all planes. A column reduction has
groups side by side, and would read one channel of each at a time, so every line of memory as often
as a group has channels. Instead its tiles are as wide as the runs of all their groups, and what is
known of each column is joined by groups when all has been read.

Up to 16 groups side by side the schedule has the reduced elements along the lanes, and none of
this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.size import Extent, divides, kernel_text, typical
from aotc.aot.lower.tiles import power_above
from aotc.aot.schedule.domain import breaks, kept_index
from aotc.aot.schedule.group import Domain, Group
from aotc.aot.schedule.trace import Tracer, reduced_extents, reduction_index

LONGEST_RUN = 64  # elements; longer ones are whole lines of memory anyway


@dataclass(frozen=True, slots=True)
class Beside:
    """`run` reduced elements beside each kept one, and `steps` of them in all.

    is_outer: the run is what changes slowest along the reduced elements, else what changes fastest.
    """

    run: int
    steps: Extent
    is_outer: bool

    @property
    def padded(self) -> int:
        """Columns of a tile for each kept element."""
        return power_above(self.run)

    @property
    def reduced(self) -> Symbol:
        """The symbol of the steps."""
        return Symbol("r", self.steps)

    def element(self, place: Index) -> Index:
        """The linear position among the reduced elements, at a place of the run."""
        step = ix.of(self.reduced)
        return place * self.steps + step if self.is_outer else step * self.run + place

    def columns(self, kept: Symbol) -> tuple[Symbol, Symbol | None]:
        """Symbols of a tile's columns: one, or of the kept element and the place of its run."""
        if self.padded == self.run:
            return Symbol("w", kept.extent * self.run), None
        return Symbol("w", kept.extent), Symbol("c", self.run)

    def position(self, domain: Domain) -> tuple[Index, Index]:
        """Linear positions among the kept and the reduced elements, at those symbols."""
        column, place = self.columns(domain.lanes)
        if place is None:
            kept, inner = ix.of(column) // self.run, ix.of(column) % self.run
        else:
            kept, inner = ix.of(column), ix.of(place)
        return ix.of(domain.outer) * domain.lanes.extent + kept, self.element(inner)

    def lines(self, kept: Symbol, program: str, block: str) -> Iterator[tuple[str, str]]:
        """Names and texts of the columns, of a program's block."""
        column, place = self.columns(kept)
        wide = f"tl.arange(0, {block} * {self.padded})[None, :]"
        if place is None:
            yield column.name, f"{program} * ({block} * {self.run}) + {wide}"
        else:
            yield column.name, f"{program} * {block} + {wide} // {self.padded}"
            yield place.name, f"{wide} % {self.padded}"

    def by_kept(self, text: str, identity: str, block: str) -> str:
        """A value of each column as a row for each kept element."""
        rows = f"tl.reshape({text}, ({block}, {self.padded}))"
        if self.padded == self.run:
            return rows
        inside = f"tl.arange(0, {self.padded})[None, :] < {kernel_text(self.run)}"
        return f"tl.where({inside}, {rows}, {identity})"


def beside(group: Group, reductions: Sequence[Node]) -> Beside | None:
    """What of the reduced elements lies between the columns of a group.

    All that the group reads of full size lies so; else None.
    """
    domain = group.domain
    assert domain.reduced is not None
    offsets = _offsets(group, reductions, ix.of(domain.reduced))
    runs = set().union(*(breaks(offset, domain.reduced) for offset in offsets))
    return next(
        (
            option
            for option in _options(domain.reduced.extent, runs, reduced_extents(reductions[0]))
            if _lies_so(group, domain, reductions, option)
        ),
        None,
    )


def _options(whole: Extent, runs: Iterable[Extent], axes: Sequence[Extent]) -> list[Beside]:
    """Runs that change slowest and such that change fastest, long ones first.

    They end where an axis of the reduction does, or where what is read has one.
    """
    splits = [(prod(axes[:at]), prod(axes[at:])) for at in range(1, len(axes))]
    splits += [(whole // run, run) for run in runs if run and divides(run, whole)]
    found = [Beside(outer, inner, True) for outer, inner in splits if isinstance(outer, int)]
    found += [Beside(inner, outer, False) for outer, inner in splits if isinstance(inner, int)]
    near = {each for each in found if 1 < each.run <= LONGEST_RUN}
    return sorted(near, key=lambda each: (-each.run, each.is_outer))


def _lies_so(group: Group, domain: Domain, reductions: Sequence[Node], option: Beside) -> bool:
    place = Symbol("c", option.run)
    offsets = _offsets(group, reductions, option.element(ix.of(place)))
    return bool(offsets) and all(
        offset.stride(place) == 1 and offset.stride(domain.lanes) == option.run
        for offset in offsets
    )


def _offsets(group: Group, reductions: Sequence[Node], reduced: Index) -> list[Index]:
    """Where the group reads tensors of full size for its reductions."""
    tracer = Tracer(frozenset(group.reads).__contains__)
    for node in reductions:
        index = reduction_index(node, kept_index(group.domain), reduced)
        tracer.visit(node.inputs[0], index)
    large = max((typical(need.node.type.numel) for need in tracer.accesses), default=0)
    return [
        ix.linear(need.index, need.node.shape)
        for need in tracer.accesses
        if typical(need.node.type.numel) * 2 > large
    ]
