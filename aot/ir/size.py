"""Dynamic sizes: integer polynomials over named dims, canonical at once.

An `Extent` is an int or a `Size`; a `Size` is never constant, since arithmetic answers an int
wherever it can. So shapes of static graphs hold plain ints and every rule reads both alike. An atom
of a polynomial is a `Dim`, or the floor quotient, maximum or minimum of sizes where nothing simpler
is known. Equality is that of the canonical form: two equal sizes are equal at every call, two
different ones may still meet at some. An order is decided by the ranges of the dims or refused by
`UndecidedSize`, so that nothing is assumed of a size that a call could break.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import gcd, prod
from typing import Any, Generic, TypeVar

from aotc.aot.errors import UndecidedSize as UndecidedSize

Dividend = TypeVar("Dividend")  # Extent or Index


@dataclass(frozen=True, slots=True)
class Dim:
    """A size given at the call: `low` ≤ value ≤ `high`; `typical` is for costs."""

    name: str
    low: int
    high: int
    typical: int


@dataclass(frozen=True, slots=True)
class Quotient(Generic[Dividend]):
    """floor(dividend / divisor) of a size, or of an index (`index.py`); divisor at least 1."""

    dividend: Dividend
    divisor: Extent

    def divided(self, shift: Extent, divisor: Extent) -> Dividend:
        """(E // a + k) // b → (E + k*a) // (a*b), for E and k of every sign, as a, b ≥ 1."""
        dividend: Any = self.dividend
        quotient: Dividend = (dividend + shift * self.divisor) // (self.divisor * divisor)
        return quotient


@dataclass(frozen=True, slots=True)
class Choice:
    """The largest (`max`) or the smallest (`min`) of two sizes."""

    name: str
    left: Extent
    right: Extent


Atom = Dim | Quotient["Extent"] | Choice
Monomial = tuple[Atom, ...]  # sorted by text; () is the constant
Terms = tuple[tuple[Monomial, int], ...]
MOST_FLOORS = 3  # in a size, up to which a bound is looked for by each of them
KERNEL_PREFIX = "size_"  # of the kernel parameter that holds a dim


@dataclass(frozen=True, slots=True)
class Size:
    """Sum of coefficient · product of atoms; terms are sorted, distinct and non-zero."""

    terms: Terms
    _hash: int = field(init=False, repr=False, compare=False)  # of nested terms, taken once

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.terms))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Size], tuple[Terms]]:
        return Size, (self.terms,)  # hashes of texts differ between processes

    def __add__(self, other: Extent) -> Extent:
        return _sum(self, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Extent) -> Extent:
        return _sum(self, other, -1)

    def __rsub__(self, other: Extent) -> Extent:
        return _sum(other, self, -1)

    def __neg__(self) -> Extent:
        return _sum(0, self, -1)

    def __mul__(self, other: Extent) -> Extent:
        return _product(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Extent) -> Extent:
        return _divide(self, other)

    def __rfloordiv__(self, other: Extent) -> Extent:
        return _divide(other, self)

    def __mod__(self, other: Extent) -> Extent:
        return self - _divide(self, other) * other

    def __rmod__(self, other: Extent) -> Extent:
        return other - _divide(other, self) * self

    def __lt__(self, other: Extent) -> bool:
        return is_below(self, other)

    def __le__(self, other: Extent) -> bool:
        return not is_below(other, self)

    def __gt__(self, other: Extent) -> bool:
        return is_below(other, self)

    def __ge__(self, other: Extent) -> bool:
        return not is_below(self, other)

    def __index__(self) -> int:
        raise UndecidedSize(f"size `{self}` is only known at the call")

    def __truediv__(self, other: object) -> float:
        raise UndecidedSize(f"size `{self}` is only known at the call")

    __rtruediv__ = __truediv__

    def __str__(self) -> str:
        return formula(self)

    __repr__ = __str__

    def dims(self) -> tuple[Dim, ...]:
        """The dims that the value depends on, by name."""
        return tuple(sorted(set(_dims(self)), key=lambda dim: dim.name))


Extent = int | Size
Shape = tuple[Extent, ...]


# -- what the ranges prove -------------------------------------------------------------------------


def bounds(extent: Extent) -> tuple[int, int]:
    """Smallest and largest value (both inclusive) that the ranges allow, or somewhat beyond."""
    if isinstance(extent, int):
        return extent, extent
    return _lowest(extent), -_lowest_of(-extent)


def proves_at_most(left: Extent, right: Extent) -> bool:
    """Whether left ≤ right at every call, as far as the ranges prove."""
    if isinstance(left, int) and isinstance(right, int):
        return left <= right
    return _lowest_of(right - left) >= 0


def proves_below(left: Extent, right: Extent) -> bool:
    """Whether left < right at every call, as far as the ranges prove."""
    return proves_at_most(left + 1, right)


def is_below(left: Extent, right: Extent) -> bool:
    """left < right; raises `UndecidedSize` where calls differ."""
    if proves_below(left, right):
        return True
    if proves_at_most(right, left):
        return False
    raise UndecidedSize(f"`{left} < {right}` is only known at the call")


def _lowest_of(extent: Extent) -> int:
    return extent if isinstance(extent, int) else _lowest(extent)


@lru_cache(maxsize=65536)
def _lowest(size: Size) -> int:
    """A lower bound: by intervals, by distances from the low ends, without a floor; and as whole
    counts have it, a multiple of what all of them are multiples of."""
    found = max(_interval_low(size), _shifted_low(size), *_unfloored_low(size))
    common = gcd(*(count for _, count in size.terms))
    return -(-found // common) * common


def _interval_low(size: Size) -> int:
    total = 0
    for monomial, count in size.terms:
        ends = {count}
        for atom in monomial:
            ends = {end * factor for end in ends for factor in _atom_bounds(atom)}
        total += min(ends)
    return total


def _shifted_low(size: Size) -> int:
    """Each atom as its low end plus a distance: what cancels then costs nothing."""
    found: dict[tuple[Atom, ...], int] = {}
    for monomial, count in size.terms:
        for picks in product((False, True), repeat=len(monomial)):
            pairs = list(zip(monomial, picks, strict=True))
            far = tuple(atom for atom, is_far in pairs if is_far)
            near = prod(_atom_bounds(atom)[0] for atom, is_far in pairs if not is_far)
            found[far] = found.get(far, 0) + count * near
    total = found.pop((), 0)
    for far, count in found.items():
        if count < 0:
            spans = (_atom_bounds(atom) for atom in far)
            total += count * prod(high - low for low, high in spans)
    return total


def _unfloored_low(size: Size) -> Iterator[int]:
    """For a term in floor(p / d): d·floor(p / d) = p - r with a remainder r below d. Each such term
    by itself, where they are few: which one the others cancel is not known."""
    floored = [term for term in size.terms if any(isinstance(x, Quotient) for x in term[0])]
    for monomial, count in floored[: MOST_FLOORS if len(floored) <= MOST_FLOORS else 1]:
        atom = next(atom for atom in monomial if isinstance(atom, Quotient))
        others = sized({_removed(monomial, (atom,)) or (): count})
        rest = sized({key: value for key, value in size.terms if key != monomial})
        if isinstance(atom.divisor, int) and isinstance(others, int):
            # The remainders of a positive count are at most count · (d - 1).
            taken = (atom.divisor - 1) * max(count, 0)
            whole = _lowest_of(rest * atom.divisor + atom.dividend * count - taken)
            yield -(-whole // atom.divisor)
        elif not isinstance(atom.divisor, int):
            times, left = long_division(others, atom.divisor)
            if isinstance(times, int) and not left:
                most = (atom.divisor - 1) * max(times, 0)
                yield _lowest_of(rest + atom.dividend * times - most)


@lru_cache(maxsize=65536)
def _atom_bounds(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, Dim):
        return atom.low, atom.high
    if isinstance(atom, Quotient):
        low, high = bounds(atom.dividend)
        divisors = bounds(atom.divisor)
        ends = [end // divisor for end in (low, high) for divisor in divisors]
        return min(ends), max(ends)
    pairs = bounds(atom.left), bounds(atom.right)
    pick = max if atom.name == "max" else min
    return pick(pairs[0][0], pairs[1][0]), pick(pairs[0][1], pairs[1][1])


# -- arithmetic ------------------------------------------------------------------------------------


def terms_of(extent: Extent) -> Terms:
    if isinstance(extent, int):
        return (((), extent),) if extent else ()
    return extent.terms


def sized(terms: Mapping[Monomial, int]) -> Extent:
    kept = {monomial: count for monomial, count in terms.items() if count}
    if not kept.keys() - {()}:
        return kept.get((), 0)
    if len(kept) == 1:
        return Size(tuple(kept.items()))
    return Size(tuple(sorted(kept.items(), key=lambda term: _order(term[0]), reverse=True)))


@lru_cache(maxsize=65536)
def _order(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    """Degree first, then the atoms' texts: an order that products keep."""
    return len(monomial), tuple(atom_text(atom) for atom in monomial)


def _sum(left: Extent, right: Extent, factor: int) -> Extent:
    _refuse_others(left, right)
    return _added(left, right, factor)


@lru_cache(maxsize=65536)
def _added(left: Extent, right: Extent, factor: int) -> Extent:
    found = dict(terms_of(left))
    for monomial, count in terms_of(right):
        found[monomial] = found.get(monomial, 0) + factor * count
    return sized(found)


def _refuse_others(left: Extent, right: Extent) -> None:
    """Arithmetic with a float needs the number that a size has at the call."""
    for each in (left, right):
        if not isinstance(each, int | Size):
            raise UndecidedSize(f"`{left}` and `{right}` are only known together at the call")


def _product(left: Extent, right: Extent) -> Extent:
    _refuse_others(left, right)
    return _multiplied(left, right)


@lru_cache(maxsize=65536)
def _multiplied(left: Extent, right: Extent) -> Extent:
    found: dict[Monomial, int] = {}
    for first, count in terms_of(left):
        for second, factor in terms_of(right):
            monomial = tuple(sorted(first + second, key=atom_text))
            found[monomial] = found.get(monomial, 0) + count * factor
    return sized(found)


@lru_cache(maxsize=65536)
def _divide(extent: Extent, divisor: Extent) -> Extent:
    if isinstance(extent, int) and isinstance(divisor, int):
        return extent // divisor
    if not proves_at_most(1, divisor):
        raise UndecidedSize(f"divisor `{divisor}` may be less than 1")
    if divisor == 1:
        return extent
    # (d*A + B) // d → A + B // d, for every sign of A and B.
    whole, rest = with_remainder(extent, divisor)
    is_open = not isinstance(divisor, int) and not proves_at_most(0, rest)
    if is_open and proves_at_most(0, rest + divisor):
        whole, rest = whole - 1, rest + divisor
    common = common_quotient(rest, rest, divisor)
    if common is not None:
        return whole + common
    if isinstance(divisor, int):
        factor = gcd(divisor, *(count for monomial, count in terms_of(rest) if monomial))
        if factor > 1:
            # (f*A + k) // (f*e) → (A + k // f) // e
            reduced = {monomial: count // factor for monomial, count in terms_of(rest)}
            return whole + _divide(sized(reduced), divisor // factor)
    return whole + _divide_atom(rest, divisor)


def common_quotient(low: Extent, high: Extent, divisor: Extent) -> int | None:
    """floor(value / divisor) where it is the same number for all values from `low` to `high`."""
    if isinstance(divisor, int):
        first, last = bounds(low)[0] // divisor, bounds(high)[1] // divisor
        if first == last:
            return first
    return 0 if proves_at_most(0, low) and proves_below(high, divisor) else None


def _divide_atom(rest: Extent, divisor: Extent) -> Extent:
    """An atom, or a quotient of one quotient as a single one."""
    varying = [(monomial, count) for monomial, count in terms_of(rest) if monomial]
    if len(varying) == 1 and varying[0][1] == 1 and len(varying[0][0]) == 1:
        atom = varying[0][0][0]
        if isinstance(atom, Quotient):
            return atom.divided(dict(terms_of(rest)).get((), 0), divisor)
    return Size((((Quotient(rest, divisor),), 1),))


def long_division(extent: Extent, divisor: Extent) -> tuple[Extent, dict[Monomial, int]]:
    """(q, r) with extent = divisor · q + r, by the leading term of the divisor."""
    lead, lead_count = terms_of(divisor)[0]
    work, rest = dict(terms_of(extent)), dict[Monomial, int]()
    quotient: dict[Monomial, int] = {}
    while work:
        monomial = max(work, key=_order)
        count = work[monomial]
        left = _removed(monomial, lead)
        if left is None or count % lead_count:
            rest[monomial] = work.pop(monomial)
            continue
        factor = count // lead_count
        quotient[left] = quotient.get(left, 0) + factor
        for other, other_count in terms_of(_product(sized({left: factor}), divisor)):
            work[other] = work.get(other, 0) - other_count
            if not work[other]:
                del work[other]
    return sized(quotient), rest


def _removed(monomial: Monomial, part: Monomial) -> Monomial | None:
    """The monomial without the atoms of `part`, or None where it lacks one."""
    left = list(monomial)
    for atom in part:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _dims(size: Size) -> Iterator[Dim]:
    for monomial, _ in size.terms:
        for atom in monomial:
            if isinstance(atom, Dim):
                yield atom
                continue
            if isinstance(atom, Quotient):
                parts = (atom.dividend, atom.divisor)
            else:
                parts = (atom.left, atom.right)
            for part in parts:
                yield from () if isinstance(part, int) else _dims(part)


@lru_cache(maxsize=65536)
def formula(size: Size, is_kernel: bool = False) -> str:
    """The text of a polynomial: `2*batch + 1`; in a kernel, with the names of its parameters."""
    words = ""
    for monomial, count in size.terms:
        factors = [atom_text(atom, is_kernel) for atom in monomial]
        if abs(count) != 1 or not factors:
            factors.insert(0, number_text(abs(count), is_kernel))
        sign = (" - " if count < 0 else " + ") if words else ("-" if count < 0 else "")
        words += sign + "*".join(factors)
    return words


@lru_cache(maxsize=65536)
def atom_text(atom: Atom, is_kernel: bool = False) -> str:
    """The text of one atom, parenthesized where it is a quotient."""
    if isinstance(atom, Dim):
        return KERNEL_PREFIX + atom.name if is_kernel else atom.name
    if isinstance(atom, Quotient):
        return f"({_part(atom.dividend, is_kernel)}//{_part(atom.divisor, is_kernel)})"
    call = {"max": "tl.maximum", "min": "tl.minimum"}[atom.name] if is_kernel else atom.name
    parts = (_plain(part, is_kernel) for part in (atom.left, atom.right))
    return f"{call}({', '.join(parts)})"


def _plain(extent: Extent, is_kernel: bool) -> str:
    if isinstance(extent, int):
        return number_text(extent, is_kernel)
    return formula(extent, is_kernel)


def number_text(number: int, is_kernel: bool) -> str:
    """The text of a number; in a kernel one of 64 bits says so, since Triton takes a literal as of
    the type of what it stands beside."""
    is_long = is_kernel and not -(1 << 31) <= number < 1 << 31
    return f"tl.full([], {number}, tl.int64)" if is_long else str(number)


def _part(extent: Extent, is_kernel: bool) -> str:
    written = _plain(extent, is_kernel)
    return written if written.isalnum() or written.isidentifier() else f"({written})"


# -- questions about sizes -------------------------------------------------------------------------


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
    """Whether no size among the values is dynamic."""
    return all(isinstance(value, int) for value in values)


def fixed(extent: Extent) -> int:
    """The size as a number; raises `UndecidedSize` where it is dynamic."""
    if isinstance(extent, int):
        return extent
    raise UndecidedSize(f"size `{extent}` is only known at the call")


def typical(extent: Extent) -> int:
    """The value for costs: the size where all dims have their typical values.

    Of a dynamic one 1 at least: costs divide by it, and kernels are not for calls of no elements.
    """
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
    return _changed(extent, lambda atom: _atom_at(atom, values))


def _changed(extent: Extent, change: Callable[[Atom], Extent]) -> Extent:
    """The size with each atom replaced."""
    if isinstance(extent, int):
        return extent
    total: Extent = 0
    for monomial, count in extent.terms:
        total = total + prod(map(change, monomial), start=count)
    return total


def _atom_at(atom: Atom, values: Mapping[Dim, Extent]) -> Extent:
    if isinstance(atom, Dim):
        return values.get(atom, size_of(atom))
    if isinstance(atom, Quotient):
        return substitute(atom.dividend, values) // substitute(atom.divisor, values)
    return _chosen(atom.name, substitute(atom.left, values), substitute(atom.right, values))


@lru_cache(maxsize=65536)
def _typical(size: Size) -> int:
    found = substitute(size, {dim: dim.typical for dim in size.dims()})
    assert isinstance(found, int)
    return max(1, found)


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
    return _changed(extent, _truncated_atom)


def _truncated_atom(atom: Atom) -> Extent:
    if isinstance(atom, Dim):
        return size_of(atom)
    if isinstance(atom, Choice):
        return _chosen(atom.name, _truncated(atom.left), _truncated(atom.right))
    dividend, divisor = _truncated(atom.dividend), _truncated(atom.divisor)
    if proves_at_most(0, atom.dividend):
        return dividend // divisor
    return largest(dividend, 0) // divisor - (divisor - 1 - smallest(dividend, 0)) // divisor
