"""Questions about sizes, and sizes for given values of their dims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from aotc.aot.ir.size.polynomial import (
    Atom,
    Choice,
    Dim,
    Extent,
    Floor,
    Size,
    UndecidedSize,
    bounds,
    formula,
    long_division,
    number_text,
    proves_at_most,
    sized,
)


@dataclass(frozen=True, slots=True)
class Guard:
    """What a call must meet beside the dims' ranges: `size` within the ends; None is no end."""

    text: str  # in the words of the model's author: `x.shape[1] % 4 == 0`
    size: Size
    low: int | None
    high: int | None


def size_of(dim: Dim) -> Extent:
    """The size that is just a dim; an int where its range leaves one value."""
    return dim.low if dim.low == dim.high else Size((((dim,), 1),))


def largest(left: Extent, right: Extent) -> Extent:
    """The larger of two sizes."""
    return _chosen("max", left, right)


def smallest(left: Extent, right: Extent) -> Extent:
    """The smaller of two sizes."""
    return _chosen("min", left, right)


def _chosen(name: str, left: Extent, right: Extent) -> Extent:
    if proves_at_most(left, right):
        return right if name == "max" else left
    if proves_at_most(right, left):
        return left if name == "max" else right
    first, second = sorted((left, right), key=str)
    return Size((((Choice(name, first, second),), 1),))


def is_static(values: Iterable[Extent]) -> bool:
    """Whether no size among the values waits for the call."""
    return all(isinstance(value, int) for value in values)


def fixed(extent: Extent) -> int:
    """The size as a number; raises `UndecidedSize` where it is dynamic."""
    if isinstance(extent, int):
        return extent
    raise UndecidedSize(f"size `{extent}` is only known at the call")


def typical(extent: Extent) -> int:
    """The value for costs: the size where all dims have their typical values."""
    return extent if isinstance(extent, int) else _typical(extent)


def highest(extent: Extent) -> int:
    """The largest value that the ranges allow."""
    return bounds(extent)[1]


def content(extent: Extent) -> int:
    """A number that divides the size at every call."""
    return abs(extent) if isinstance(extent, int) else gcd(*(count for _, count in extent.terms))


def divides(divisor: Extent, extent: Extent) -> bool:
    """Whether the quotient is whole at every call, by the canonical form."""
    if isinstance(extent, int) and isinstance(divisor, int):
        return extent % divisor == 0
    if extent == 0:
        return True
    return not long_division(extent, divisor)[1]


def with_remainder(extent: Extent, divisor: Extent) -> tuple[Extent, Extent]:
    """(q, r) with extent = divisor · q + r: floored for ints, else by whole terms."""
    if isinstance(extent, int) and isinstance(divisor, int):
        return divmod(extent, divisor)
    whole, rest = long_division(extent, divisor)
    if not isinstance(divisor, int):
        return whole, sized(rest)
    start = rest.get((), 0)
    return whole + start // divisor, sized({**rest, (): start % divisor})


def common_factor(left: Extent, right: Extent) -> Extent:
    """A size that divides both: exact for numbers and single products."""
    if isinstance(left, int) or isinstance(right, int):
        return gcd(content(left), content(right))
    if divides(left, right):
        return _unsigned(left)
    if divides(right, left):
        return _unsigned(right)
    if len(left.terms) == len(right.terms) == 1:
        rest = list(right.terms[0][0])
        shared = []
        for atom in left.terms[0][0]:
            if atom in rest:
                rest.remove(atom)
                shared.append(atom)
        return sized({tuple(shared): gcd(content(left), content(right))})
    return gcd(content(left), content(right))


def _unsigned(size: Size) -> Extent:
    """The size, or its opposite where that is what the ranges prove to be positive."""
    return -size if proves_at_most(size, 0) else size


def substitute(extent: Extent, values: Mapping[Dim, Extent]) -> Extent:
    """The size with dims replaced, simplified again."""
    if isinstance(extent, int):
        return extent
    total: Extent = 0
    for monomial, count in extent.terms:
        part: Extent = count
        for atom in monomial:
            part = part * _atom_at(atom, values)
        total = total + part
    return total


def _atom_at(atom: Atom, values: Mapping[Dim, Extent]) -> Extent:
    if isinstance(atom, Dim):
        return values.get(atom, size_of(atom))
    if isinstance(atom, Floor):
        return substitute(atom.dividend, values) // substitute(atom.divisor, values)
    return _chosen(atom.name, substitute(atom.left, values), substitute(atom.right, values))


@lru_cache(maxsize=65536)
def _typical(size: Size) -> int:
    found = substitute(size, {dim: dim.typical for dim in size.dims()})
    assert isinstance(found, int)
    return found


def kernel_text(extent: Extent) -> str:
    """As a kernel has it, with a parameter for each dim; parenthesized where it is a sum."""
    truncated = _truncated(extent)
    if isinstance(truncated, int):
        return number_text(truncated, True)
    written = formula(truncated, True)
    return written if written.isidentifier() else f"({written})"


@lru_cache(maxsize=65536)
def _truncated(extent: Extent) -> Extent:
    """The same size of quotients that truncation toward zero leaves as they are.

    floor(a / d) → max(a, 0) // d - (d - 1 - min(a, 0)) // d, where a may be negative.
    """
    if isinstance(extent, int):
        return extent
    total: Extent = 0
    for monomial, count in extent.terms:
        part: Extent = count
        for atom in monomial:
            part = part * _truncated_atom(atom)
        total = total + part
    return total


def _truncated_atom(atom: Atom) -> Extent:
    if isinstance(atom, Dim):
        return size_of(atom)
    if isinstance(atom, Choice):
        return _chosen(atom.name, _truncated(atom.left), _truncated(atom.right))
    dividend, divisor = _truncated(atom.dividend), _truncated(atom.divisor)
    if proves_at_most(0, atom.dividend):
        return dividend // divisor
    return largest(dividend, 0) // divisor - (divisor - 1 - smallest(dividend, 0)) // divisor
