"""Conditions under which a value is used, and which further conditions they imply or exclude.

A concat of concats, or a pad of one, tests one index several times. By the ranges, tests that
cannot hold, and tests that already hold, are known and not written.
"""

from __future__ import annotations

from typing import TypeAlias

from aotc.aot.ir.index import Bound
from aotc.aot.ir.size import Extent, proves_at_most

Guard: TypeAlias = tuple[Bound, ...]


def is_possible(conditions: Guard, guard: Guard = ()) -> bool:
    """Whether some element that meets the guard meets the conditions too, as far as the ranges
    prove."""
    for condition in conditions:
        low, high = condition.index.bounds()
        if _is_empty(condition, low, high + 1):
            return False
        for known in guard:
            apart = condition.index - known.index
            if apart.is_constant and _is_empty(condition, *_moved(known, apart.constant)):
                return False
    return True


def remaining(conditions: Guard, guard: Guard) -> Guard:
    """The conditions that the guard does not already imply."""
    return tuple(each for each in conditions if not any(_implies(known, each) for known in guard))


def _moved(known: Bound, apart: Extent) -> tuple[Extent | None, Extent | None]:
    """The sides of a condition for an index that is so much larger."""
    low, high = known.low, known.high
    return None if low is None else low + apart, None if high is None else high + apart


def _is_empty(condition: Bound, low: Extent | None, high: Extent | None) -> bool:
    """Whether no index from `low` on and below `high` meets the condition."""
    if condition.low is not None and high is not None and proves_at_most(high, condition.low):
        return True
    return (
        condition.high is not None and low is not None and proves_at_most(condition.high, low)
    ) or (low is not None and high is not None and proves_at_most(high, low))


def _implies(known: Bound, condition: Bound) -> bool:
    """Whether a condition holds wherever a known one does."""
    apart = condition.index - known.index
    if not apart.is_constant:
        return False
    low, high = _moved(known, apart.constant)
    is_above = condition.low is None or (low is not None and proves_at_most(condition.low, low))
    is_below = condition.high is None or (high is not None and proves_at_most(high, condition.high))
    return is_above and is_below
