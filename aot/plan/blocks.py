"""Places buffers in blocks of the caller's memory that hold some inputs and outputs of a call.

The memory of an output is free until it is written; that of an input is free after its last read,
if the caller no longer needs it ("donated buffers" in torch's and XLA's terms). Buffers that live
in such a gap need no arena; large ones that find none are placed in one more block, which is memory
of the call alone. In the plan they are additional outputs of the program, whose content is
undefined after a call.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from aotc.aot.ir.size import fixed
from aotc.aot.plan.arena import Lifetime, Space, aligned, assign_offsets, by_size
from aotc.aot.plan.buffer_assignment import BufferAssignment, LaunchBuffers, Operand
from aotc.runtime.bundle.manifest import TensorSpec

LEAST_BYTES = 1 << 16  # of a buffer in a block: each place is one more address of a call
LARGE_SHARE = 16  # of the largest buffer, from which a buffer is among those placed first
PREFIX = "scratch of block"


@dataclass(frozen=True, slots=True)
class Member:
    """Input or output `number` of a program, `nbytes` from `start` on in its block.

    An input's memory is free after its last read, an output's before it is first written.
    """

    space: str  # "input" or "output"
    number: int
    start: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Block:
    """A block of memory, its size and places in bytes.

    held: (start, end) of what others keep there while the program runs and afterwards.
    """

    nbytes: int
    members: tuple[Member, ...]
    held: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Scratch:
    """An output of a program that is a part of a block, and nothing after a call.

    alone: where it begins in memory that has the block's scratch and nothing else, for a call that
    may not write into the block.
    """

    block: int
    start: int
    alone: int
    nbytes: int

    @property
    def spec(self) -> TensorSpec:
        """Its row among the outputs of a bundle."""
        name = f"{PREFIX} {self.block} at {self.start} or {self.alone}"
        return TensorSpec(name, "u8", (self.nbytes,))

    @classmethod
    def of(cls, spec: TensorSpec) -> Scratch:
        """That of such a row."""
        block, _, start, _, alone = spec.name.removeprefix(PREFIX).split()
        return cls(int(block), int(start), int(alone), spec.shape[0])


@dataclass(frozen=True, slots=True)
class _Place:
    block: int
    start: int


def in_blocks(
    assignment: BufferAssignment, blocks: Sequence[Block], outputs: int, step: int
) -> tuple[BufferAssignment, tuple[Scratch, ...]]:
    """The assignment with large buffers in the blocks where they fit, else in one more that follows
    these, and what became outputs of it.

    outputs: how many the program has; step: alignment of buffers in bytes. Shapes are fixed, and
    the blocks begin at a multiple of `step`. Left as it is where it has calls of torch.
    """
    if assignment.calls:
        return assignment, ()
    places = _places(assignment, blocks, step)
    numbers: dict[tuple[_Place, int], int] = {}  # by what a buffer takes and where in it
    sizes: dict[tuple[_Place, int], int] = {}
    kept = [at for at in range(len(assignment.buffers)) if at not in places]
    renumbered = {at: number for number, at in enumerate(kept)}

    def moved(operand: Operand) -> Operand:
        if operand.space != "buffer":
            return operand
        place = places.get(int(operand.value))
        if place is None:
            return replace(operand, value=renumbered[int(operand.value)])
        nbytes = fixed(operand.nbytes) - operand.start_bytes
        own = place, operand.start_bytes
        sizes[own] = max(sizes.get(own, 0), nbytes)
        return Operand("output", numbers.setdefault(own, outputs + len(numbers)), nbytes)

    launches = tuple(
        LaunchBuffers(tuple(map(moved, row.operands)), row.stored) for row in assignment.launches
    )
    buffers = tuple(assignment.buffers[at] for at in kept)
    alone = _alone(assignment.buffers, places, len(blocks), step)
    scratch = tuple(
        Scratch(place.block, place.start + first, alone[place] + first, sizes[place, first])
        for place, first in numbers
    )
    return replace(assignment, buffers=buffers, launches=launches), scratch


def _alone(
    buffers: Sequence[Lifetime], places: Mapping[int, _Place], blocks: int, step: int
) -> dict[_Place, int]:
    """Where each place of a block begins in memory for that block's scratch alone.

    A place is needed from the first of its buffers to the last. What follows the blocks is such
    memory already.
    """
    spans: dict[_Place, Lifetime] = {}
    for at, place in places.items():
        row, known = buffers[at], spans.get(places[at], buffers[at])
        nbytes = max(fixed(row.nbytes), fixed(known.nbytes))
        ends = min(row.first, known.first), max(row.last, known.last)
        spans[place] = Lifetime("place", nbytes, *ends)
    found = {place: place.start for place in spans if place.block == blocks}
    for block in range(blocks):
        own = [place for place in spans if place.block == block]
        offsets, _ = assign_offsets([spans[place] for place in own], step)
        found |= dict(zip(own, offsets, strict=True))
    return found


def _places(assignment: BufferAssignment, blocks: Sequence[Block], step: int) -> dict[int, _Place]:
    """Where large buffers lie, by number: in blocks or in the one that follows them.

    They are given their places in the order of their sizes, or the largest in that of their first
    launches before the others, from the beginnings of gaps or from their ends: as leaves the least
    to that one; the first of equals.
    """
    buffers = assignment.buffers
    large = [at for at in by_size(buffers) if fixed(buffers[at].nbytes) >= LEAST_BYTES]
    best: tuple[int, dict[int, _Place]] | None = None
    least = fixed(buffers[large[0]].nbytes) // LARGE_SHARE if large else 0
    first = sorted(large, key=lambda at: buffers[at].first)
    orders = large, sorted(first, key=lambda at: max(0, least - fixed(buffers[at].nbytes)))
    for order, is_at_end in itertools.product(orders, (False, True)):
        places = _in_gaps(assignment, blocks, step, order, is_at_end=is_at_end)
        left = [at for at in large if at not in places]
        offsets, nbytes = assign_offsets([buffers[at] for at in left], step)
        places |= {at: _Place(len(blocks), start) for at, start in zip(left, offsets, strict=True)}
        if best is None or nbytes < best[0]:
            best = nbytes, places
    assert best is not None
    return best[1]


def _in_gaps(
    assignment: BufferAssignment, blocks: Sequence[Block], step: int, order: Sequence[int],
    *, is_at_end: bool,
) -> dict[int, _Place]:  # fmt: skip
    """Where buffers lie in blocks, by number: in this order, each in the smallest gap, of equal
    ones in the first, or in the last and at its end."""
    buffers, uses = assignment.buffers, _uses(assignment)
    spaces = [_space(block, buffers, uses, len(assignment.launches), step) for block in blocks]
    places: dict[int, _Place] = {}
    for at in order:
        nbytes = aligned(fixed(buffers[at].nbytes), step)
        found = []
        for number, (block, space) in enumerate(zip(blocks, spaces, strict=True)):
            for gap in space.gaps_for(at):
                gap_bytes = block.nbytes - gap.start if gap.nbytes is None else gap.nbytes
                first = (gap.start + gap_bytes - nbytes) // step * step if is_at_end else gap.start
                if gap_bytes >= nbytes:
                    found.append((gap_bytes, number, -first if is_at_end else first))
        if found:
            _, number, start = min(found)
            spaces[number].add(at, abs(start))
            places[at] = _Place(number, abs(start))
    return places


def _space(
    block: Block,
    buffers: Sequence[Lifetime],
    uses: Mapping[tuple[str, int], tuple[int, int]],
    launches: int,
    step: int,
) -> Space:
    """The block as its members and what is held leave it; buffers have their own numbers there."""
    rows, starts = list(buffers), []
    for start, end in block.held:
        rows.append(Lifetime("held", end - start, 0, launches))
        starts.append(start)
    for member in block.members:
        found = uses.get((member.space, member.number))
        if found is None:
            continue  # an input that is not read
        first, last = (0, found[1]) if member.space == "input" else (found[0], launches)
        rows.append(Lifetime(member.space, member.nbytes, first, last))
        starts.append(member.start)
    space = Space(rows, step)
    for number, start in enumerate(starts):
        space.add(len(buffers) + number, start)
    return space


def _uses(assignment: BufferAssignment) -> dict[tuple[str, int], tuple[int, int]]:
    """(first, last) launch that has an input or output, by space and number."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for number, launch in enumerate(assignment.launches):
        for operand in _of_the_caller(launch.operands):
            key = operand.space, int(operand.value)
            found[key] = found.get(key, (number,))[0], number
    return found


def _of_the_caller(operands: Iterable[Operand]) -> Iterable[Operand]:
    return (each for each in operands if each.space in ("input", "output"))
