"""Which columns of a product the elements of another tensor need: one each, or two at a fixed
distance.

A rotary embedding reads column i and, from the other half of its head, i + d/2; in its interleaved
form 2i and 2i + 1. As index expressions both select among several columns under conditions that
repeat from head to head, so the elements of one period are evaluated one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import lcm

from aotc.aot.ir import index as ix
from aotc.aot.ir.index import Bound, Index, Symbol, bound
from aotc.aot.ir.size import Extent, proves_at_most, proves_below

LONGEST_PERIOD = 1024  # elements that are looked at one by one

# A column that an element needs, and when.
Need = tuple[Index, tuple[Bound, ...]]


@dataclass(frozen=True, slots=True)
class Columns:
    """Each element's own column: element // run · step + element % run + first.

    distance: how far away the other one lies that it needs, before it or behind it, 0 where there
    is none. Columns meet in blocks of twice that: each of a block's first half with one of its
    second half.
    """

    first: int
    run: int
    step: int
    count: int  # of runs
    distance: int = 0

    @property
    def is_one_run(self) -> bool:
        """Whether the columns follow each other."""
        return self.count == 1 or self.step == self.run

    def is_inside(self, width: int) -> bool:
        """Whether elements have columns of their own, among so many."""
        last = self.first + (self.count - 1) * self.step + self.run
        is_apart = self.is_one_run or self.first + self.run <= self.step
        return self.first >= 0 and last <= width and is_apart

    def column_of(self, element: Symbol) -> Index:
        """The column of an element."""
        at = ix.of(element)
        if self.is_one_run:
            return at + self.first
        return at // self.run * self.step + at % self.run + self.first

    def element_of(self, columns: Symbol) -> tuple[Index, tuple[Bound, ...]]:
        """The element of a column, and when it has one."""
        at, end = ix.of(columns), self.first + self.run
        if self.is_one_run:
            rows = [bound(at, self.first, self.first + self.run * self.count)]
            found = at - self.first
        else:
            beside = at % self.step
            rows = [bound(at // self.step, 0, self.count), bound(beside, self.first, end)]
            found = at // self.step * self.run + beside - self.first
        return found, tuple(each for each in rows if each is not None)


@lru_cache(maxsize=256)  # layers repeat
def columns_of(needs: tuple[Need, ...], element: Symbol, width: int) -> Columns | None:
    """What the columns that elements need come to, of so many; None where it is nothing simple."""
    count = element.length
    if len(needs) == 1 and not needs[0][1]:
        rest = needs[0][0] - ix.of(element)
        found = Columns(rest.constant, count, 0, 1) if isinstance(rest.constant, int) else None
        if rest.is_constant and found is not None:
            return found if found.is_inside(width) else None
    divisors = [each for column, bounds in needs for each in _divisors((column, *bounds))]
    for run in dict.fromkeys((lcm(*divisors), count)):  # conditions on the row repeat nowhere
        if 1 < run <= LONGEST_PERIOD and count % run == 0:
            found = _in_runs(needs, element, run, width)
            if found is not None:
                return found
    return None


def _in_runs(needs: Sequence[Need], element: Symbol, run: int, width: int) -> Columns | None:
    """The same where each run of elements needs what the first one does, some columns further."""
    number = Symbol("run", element.length // run)
    steps: set[int] = set()
    places: list[set[int]] = []
    for place in range(run):
        active = _active(needs, {element: ix.of(number) * run + place})
        if active is None:
            return None
        places.append(set())
        for column in active:
            step, first = column.stride(number), column.constant
            is_plain = column.symbols() <= {number}
            if not (is_plain and isinstance(step, int) and isinstance(first, int)):
                return None
            steps.add(step)
            places[-1].add(first)
    if len(steps) != 1:
        return None
    (step,) = steps
    for first in sorted(places[0]):
        distance = _distance(places, first, step, width)
        if distance is not None:
            found = Columns(first, run, step, element.length // run, distance)
            if found.is_inside(width):
                return found
    return None


def _distance(places: Sequence[set[int]], first: int, step: int, width: int) -> int | None:
    """How far from its own column, first + i, element i needs another one; None where that differs,
    or where blocks of such pairs do not fit."""
    apart = {abs(each - first - at) for at, row in enumerate(places) for each in row} - {0}
    if not apart:
        return 0
    distance, *others = apart
    pair = 2 * distance
    if others or step % pair or width % pair:
        return None
    for own, row in enumerate(places, first):
        meets = own + distance if own % pair < distance else own - distance
        if not row <= {own, meets}:
            return None
    return distance


def _active(needs: Sequence[Need], values: Mapping[Symbol, Index]) -> list[Index] | None:
    """The columns that are needed there; None where that is not decided."""
    found: list[Index] = []
    for column, conditions in needs:
        holds = [_holds(each, values) for each in conditions]
        if False in holds:
            continue
        if None in holds:
            return None
        found.append(column.substitute(values))
    return found


def _holds(condition: Bound, values: Mapping[Symbol, Index]) -> bool | None:
    """Whether a condition holds there everywhere, or nowhere; None where neither is proved."""
    low, high = condition.index.substitute(values).bounds()
    least: Extent = low if condition.low is None else condition.low
    end: Extent = high + 1 if condition.high is None else condition.high
    if proves_at_most(least, low) and proves_below(high, end):
        return True
    if proves_below(high, least) or proves_at_most(end, low):
        return False
    return None


def _divisors(parts: Iterable[Index | Bound]) -> Iterator[int]:
    """All divisors in the indices that are numbers."""
    for part in parts:
        index = part.index if isinstance(part, Bound) else part
        for atom, _ in index.terms:
            if not isinstance(atom, Symbol):
                if isinstance(atom.divisor, int):
                    yield atom.divisor
                yield from _divisors((atom.dividend,))
