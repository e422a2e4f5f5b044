"""Axes: where values lie on a picture, and at which of them a line is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Axis:
    """From values `low` … `high` to places `start` … `end` of a picture; logarithmic where
    `is_log`."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def place(self, value: float) -> float:
        """Where a value lies; values beyond the ends lie there."""
        low, high, at = (self._scaled(each) for each in (self.low, self.high, value))
        share = (at - low) / (high - low) if high > low else 0.0
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self, count: int = 6) -> list[float]:
        """Round values inside, about as many."""
        if self.is_log:
            return self._powers(count)
        if self.high <= self.low:
            return [self.low]
        step = round_up((self.high - self.low) / count)
        first = ceil(self.low / step - 1e-9)
        last = floor(self.high / step + 1e-9)
        return [at * step for at in range(first, last + 1)]

    def _powers(self, count: int) -> list[float]:
        first, last = ceil(log10(self.low) - 1e-9), floor(log10(self.high) + 1e-9)
        powers = range(first, last + 1)
        if len(powers) <= 3:
            found = [step * 10.0**power for power in (first - 1, *powers) for step in STEPS]
            ends = self.low * (1 - 1e-9), self.high * (1 + 1e-9)
            return [value for value in found if ends[0] <= value <= ends[1]]
        return [10.0**power for power in powers[:: max(1, ceil(len(powers) / count))]]

    def _scaled(self, value: float) -> float:
        return log10(max(value, self.low)) if self.is_log else value


def round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20 … (and their tenths)."""
    if not isfinite(value) or value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next((step * power for step in STEPS if step * power >= value * 0.999), 10 * power)


def span(values: Sequence[float], is_log: bool = False) -> tuple[float, float]:
    """Ends that hold all values with some room; logarithmic ones by whole powers of ten."""
    found = [value for value in values if isfinite(value) and (value > 0 or not is_log)]
    if not found:
        return (1.0, 10.0) if is_log else (0.0, 1.0)
    if is_log:
        low, high = 10.0 ** floor(log10(min(found))), 10.0 ** ceil(log10(max(found)))
        return low, high if high > low else 10 * low
    high = max(found)
    return min(0.0, *found), high if high > 0 else 1.0
