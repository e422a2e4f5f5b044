"""Offsets of buffers in the arena: buffers that live at the same time never overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aotc.aot.ir.size import Extent, fixed, proves_at_most, typical
from aotc.runtime.bundle.plan import ALIGNMENT_BYTES


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer of `nbytes` bytes, needed from launch `first` to launch `last`, both included.

    The size is an int wherever shapes are fixed; only `assign_slots` takes others.
    """

    name: str
    nbytes: Extent
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both are needed in some launch."""
        return self.first <= other.last and other.first <= self.last


def aligned(size_bytes: int, alignment_bytes: int = ALIGNMENT_BYTES) -> int:
    """The next multiple of the alignment; an empty buffer still has an address of its own."""
    return -(-max(1, size_bytes) // alignment_bytes) * alignment_bytes


def assign_offsets(
    lifetimes: Sequence[Lifetime], alignment_bytes: int = ALIGNMENT_BYTES
) -> tuple[list[int], int]:
    """(offset of each buffer in bytes, size of the arena in bytes).

    Largest first, each into the smallest gap that holds it between the buffers it lives with.
    """
    space = Space(lifetimes, alignment_bytes)
    offsets = [0] * len(lifetimes)
    for at in by_size(lifetimes):
        offsets[at] = space.gap_for(at).start
        space.add(at, offsets[at])
    return offsets, space.end


def by_size(lifetimes: Sequence[Lifetime]) -> list[int]:
    """The numbers of buffers, the largest first."""
    return sorted(range(len(lifetimes)), key=lambda at: (-fixed(lifetimes[at].nbytes), at))


@dataclass(frozen=True, slots=True)
class Gap:
    """Where a buffer fits; `nbytes` between its neighbours, None behind the last of them."""

    start: int
    nbytes: int | None = None


class Space:
    """Memory in which buffers get offsets, one after the other."""

    def __init__(
        self, lifetimes: Sequence[Lifetime], alignment_bytes: int = ALIGNMENT_BYTES
    ) -> None:
        self._lifetimes = lifetimes
        self._sizes = [aligned(fixed(row.nbytes), alignment_bytes) for row in lifetimes]
        self._offsets = [0] * len(lifetimes)
        self._assigned = _Assigned(lifetimes)
        self.end = 0  # of the last buffer, in bytes

    def add(self, at: int, offset: int) -> None:
        """Give buffer `at` its offset."""
        self._offsets[at] = offset
        self._assigned.add(at)
        self.end = max(self.end, offset + self._sizes[at])

    def gap_for(self, at: int) -> Gap:
        """The smallest gap that holds buffer `at` between those it lives with, else behind them."""
        *between, behind = self.gaps_for(at)
        return min(between, key=lambda gap: gap.nbytes or 0, default=behind)

    def gaps_for(self, at: int) -> list[Gap]:
        """All gaps that hold buffer `at`, in order; the last one is behind all it lives with."""
        taken = sorted(
            (self._offsets[other], self._offsets[other] + self._sizes[other])
            for other in self._assigned.met(at)
        )
        found, reached = [], 0
        for start, end in taken:
            if start - reached >= self._sizes[at]:
                found.append(Gap(reached, start - reached))
            reached = max(reached, end)
        return [*found, Gap(reached)]


class _Assigned:
    """The buffers that have an offset, found by the launches in which they are needed.

    A tree over launches: a node stands for a range of them. A buffer is held by the few nodes whose
    ranges make up its lifetime, and all nodes above these know that there is something below.
    """

    def __init__(self, lifetimes: Sequence[Lifetime]) -> None:
        self._lifetimes = lifetimes
        last = max((row.last for row in lifetimes), default=0)
        self._width = 1 << (last + 1).bit_length()  # launches, a power of two
        self._whole: dict[int, list[int]] = {}  # node → buffers that are needed in all its range
        self._parts: dict[int, list[int]] = {}  # node → buffers that are needed in a part of it

    def add(self, at: int) -> None:
        for node in self._nodes(at):
            self._whole.setdefault(node, []).append(at)
        for node in self._above(at):
            self._parts.setdefault(node, []).append(at)

    def met(self, at: int) -> set[int]:
        """The buffers that are needed in some launch in which buffer `at` is."""
        found: set[int] = set()
        for node in self._nodes(at):
            found.update(self._whole.get(node, ()), self._parts.get(node, ()))
        for node in self._above(at):
            found.update(self._whole.get(node, ()))
        return found

    def _nodes(self, at: int) -> list[int]:
        """The fewest nodes whose ranges make up the buffer's lifetime."""
        row = self._lifetimes[at]
        low, high = row.first + self._width, row.last + self._width + 1
        found = []
        while low < high:
            if low & 1:
                found.append(low)
                low += 1
            if high & 1:
                high -= 1
                found.append(high)
            low, high = low >> 1, high >> 1
        return found

    def _above(self, at: int) -> set[int]:
        """The nodes above those."""
        found: set[int] = set()
        for node in self._nodes(at):
            node >>= 1
            while node and node not in found:
                found.add(node)
                node >>= 1
        return found


@dataclass(slots=True)
class _Slot:
    """A part of the arena that buffers take in turns; as large as the largest of them."""

    nbytes: Extent
    members: list[Lifetime]


def assign_slots(lifetimes: Sequence[Lifetime], step: int) -> tuple[list[Extent], Extent]:
    """(offset of each buffer in bytes, size of the arena in bytes), for sizes of a call.

    Buffers share a slot where they are never needed together and one of them is the larger at
    every call: without numbers, gaps cannot be compared.
    """
    order = sorted(range(len(lifetimes)), key=lambda at: (-typical(lifetimes[at].nbytes), at))
    slots: list[_Slot] = []
    slot_of: dict[int, _Slot] = {}
    for at in order:
        row = lifetimes[at]
        nbytes = -(-row.nbytes // step) * step
        slot = next((each for each in slots if _fits(row, nbytes, each)), None)
        if slot is None:
            slot = _Slot(nbytes, [])
            slots.append(slot)
        slot.members.append(row)
        slot_of[at] = slot
        if proves_at_most(slot.nbytes, nbytes):
            slot.nbytes = nbytes
    starts: dict[int, Extent] = {}
    end: Extent = 0
    for slot in slots:
        starts[id(slot)] = end
        end = end + slot.nbytes
    return [starts[id(slot_of[at])] for at in range(len(lifetimes))], end


def _fits(row: Lifetime, nbytes: Extent, slot: _Slot) -> bool:
    if any(row.meets(other) for other in slot.members):
        return False
    return proves_at_most(nbytes, slot.nbytes) or proves_at_most(slot.nbytes, nbytes)
