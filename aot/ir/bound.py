"""Conditions on indices, and which of them the ranges already imply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aotc.aot.ir.index import Index
from aotc.aot.ir.size import Extent, kernel_text, proves_at_most, proves_below


@dataclass(frozen=True, slots=True)
class Bound:
    """The condition low <= index < high; a side that always holds is None."""

    index: Index
    low: Extent | None
    high: Extent | None

    def __str__(self) -> str:
        sides = []
        if self.low is not None:
            sides.append(f"({self.index} >= {kernel_text(self.low)})")
        if self.high is not None:
            sides.append(f"({self.index} < {kernel_text(self.high)})")
        return " & ".join(sides)


def bound(index: Index, low: Extent, high: Extent) -> Bound | None:
    """The condition low <= index < high, or None where the ranges already imply it."""
    smallest, largest = index.bounds()
    needs_low = None if proves_at_most(low, smallest) else low
    needs_high = None if proves_below(largest, high) else high
    if needs_low is None and needs_high is None:
        return None
    return Bound(index, needs_low, needs_high)


def bounds_of(
    index: Sequence[Index], lows: Sequence[Extent], highs: Sequence[Extent]
) -> list[Bound]:
    """The conditions lows[i] <= index[i] < highs[i] that are not already implied."""
    found = (bound(*row) for row in zip(index, lows, highs, strict=True))
    return [condition for condition in found if condition is not None]
