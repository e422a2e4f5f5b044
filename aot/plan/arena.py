"""Offsets of buffers in the arena: buffers that live at the same time never overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aotc.aot.ir.size import Extent, fixed
from aotc.runtime.bundle.plan import ALIGNMENT_BYTES


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer of `nbytes` bytes, needed from launch `first` to launch `last`, both included.

    The size is an int wherever shapes are fixed; only `place_slots` takes others.
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


def place(
    lifetimes: Sequence[Lifetime], alignment_bytes: int = ALIGNMENT_BYTES
) -> tuple[list[int], int]:
    """(offset of each buffer in bytes, size of the arena in bytes).

    Largest first, each into the smallest gap that holds it between the buffers it lives with.
    """
    order = sorted(range(len(lifetimes)), key=lambda at: (-fixed(lifetimes[at].nbytes), at))
    sizes = [aligned(fixed(row.nbytes), alignment_bytes) for row in lifetimes]
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    for at in order:
        taken = sorted(
            (offsets[other], offsets[other] + sizes[other])
            for other in placed
            if lifetimes[at].meets(lifetimes[other])
        )
        offsets[at] = _best_gap(taken, sizes[at])
        placed.append(at)
    ends = [offset + size for offset, size in zip(offsets, sizes, strict=True)]
    return offsets, max(ends, default=0)


def _best_gap(taken: Sequence[tuple[int, int]], size_bytes: int) -> int:
    """Start of the smallest gap between the taken ranges that fits, else the end of the last."""
    best, best_size, reached = -1, 0, 0
    for start, end in taken:
        gap = start - reached
        if gap >= size_bytes and (best < 0 or gap < best_size):
            best, best_size = reached, gap
        reached = max(reached, end)
    return best if best >= 0 else reached
