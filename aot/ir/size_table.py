"""Sizes as the runtime computes them: rows of integer instructions, each distinct one once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from aotc.aot.ir.size import (
    Atom,
    Choice,
    Dim,
    Extent,
    Guard,
    Quotient,
    Size,
    largest,
    size_of,
    smallest,
)
from aotc.runtime.bundle import extent as runtime
from aotc.runtime.bundle import signature

OPERATIONS: Mapping[str, Callable[[Any, Any], Extent]] = {
    **runtime.OPERATIONS,
    "max": largest,
    "min": smallest,
}


def extents_of(dims: Sequence[Dim], rows: Sequence[Sequence[Any]]) -> list[Extent]:
    """The values that a table numbers: the dims, then one for each row."""
    found: list[Extent] = list(map(size_of, dims))
    for operation, left, right in rows:
        is_number = operation == runtime.NUMBER
        found.append(left if is_number else OPERATIONS[operation](found[left], found[right]))
    return found


class SizeTable:
    """The values that a plan or a manifest numbers: its dims first, then one for each row."""

    def __init__(self, dims: Sequence[Dim]) -> None:
        self.names = [dim.name for dim in dims]
        self.rows: list[runtime.Row] = []
        self._known: dict[object, int] = {name: at for at, name in enumerate(self.names)}

    def numbered(self, extent: Extent) -> Any:
        """How a plan names an extent: the number itself, or the number of its value."""
        return extent if isinstance(extent, int) else runtime.Extent(self.index(extent))

    def named(self, extent: Extent) -> int | runtime.Extent:
        """How a signature names it: with its formula."""
        if isinstance(extent, int):
            return extent
        return runtime.Extent(self.index(extent), str(extent))

    def condition(self, guard: Guard) -> signature.Guard:
        """A guard as the runtime checks it."""
        low = -runtime.VALUE_LIMIT if guard.low is None else guard.low
        high = runtime.VALUE_LIMIT if guard.high is None else guard.high
        return signature.Guard(self.index(guard.size), low, high, guard.text)

    def index(self, extent: Extent) -> int:
        """The number of the value, whose rows are added where they are new."""
        if isinstance(extent, int):
            return self._row(runtime.NUMBER, extent, 0)
        found = self._known.get(extent)
        if found is None:
            found = self._known[extent] = self._written(extent)
        return found

    def _written(self, size: Size) -> int:
        parts = [self._product(monomial, count) for monomial, count in size.terms]
        return reduce(lambda left, right: self._row("add", left, right), parts)

    def _product(self, monomial: tuple[Atom, ...], count: int) -> int:
        factors = [self._atom(atom) for atom in monomial]
        if count != 1 or not factors:
            factors.append(self.index(count))
        return reduce(lambda left, right: self._row("mul", left, right), factors)

    def _atom(self, atom: Atom) -> int:
        if isinstance(atom, Dim):
            return self._known[atom.name]
        if isinstance(atom, Quotient):
            return self._row("floordiv", self.index(atom.dividend), self.index(atom.divisor))
        assert isinstance(atom, Choice)
        return self._row(atom.name, self.index(atom.left), self.index(atom.right))

    def _row(self, operation: str, left: int, right: int) -> int:
        row = (operation, left, right)
        if row not in self._known:
            self._known[row] = len(self.names) + len(self.rows)
            self.rows.append(row)
        return self._known[row]
