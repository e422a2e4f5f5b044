"""Polynomials over dims, and over quotients and choices of polynomials where nothing simpler is
known: arithmetic, what the ranges of the dims prove, and texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import gcd, prod

from aotc.aot.errors import TypeRuleError


class UndecidedSize(TypeRuleError):
    """A rule asked for a dynamic size."""


@dataclass(frozen=True, slots=True)
class Dim:
    """A size given at the call: `low` ≤ value ≤ `high`; `typical` is for costs."""

    name: str
    low: int
    high: int
    typical: int


@dataclass(frozen=True, slots=True)
class Floor:
    """floor(dividend / divisor) for a divisor of at least 1."""

    dividend: Extent
    divisor: Extent


@dataclass(frozen=True, slots=True)
class Choice:
    """The largest (`max`) or the smallest (`min`) of two sizes."""

    name: str
    left: Extent
    right: Extent


Atom = Dim | Floor | Choice
Monomial = tuple[Atom, ...]  # sorted by text; () is the constant
Terms = tuple[tuple[Monomial, int], ...]
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
    """A lower bound: by intervals, by distances from the low ends, without a floor."""
    return max(_interval_low(size), _shifted_low(size), *_unfloored_low(size))


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
    """For a term in floor(p / d): d·floor(p / d) = p - r with a remainder r below d."""
    for monomial, count in size.terms:
        floors = [atom for atom in monomial if isinstance(atom, Floor)]
        if not floors:
            continue
        atom, others = floors[0], sized({_removed(monomial, (floors[0],)) or (): count})
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
        return


@lru_cache(maxsize=65536)
def _atom_bounds(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, Dim):
        return atom.low, atom.high
    if isinstance(atom, Floor):
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
    whole, rest_terms = long_division(extent, divisor)
    rest = sized(rest_terms)
    if isinstance(divisor, int):
        start = rest_terms.get((), 0)
        whole, rest = whole + start // divisor, rest - start // divisor * divisor
        low, high = bounds(rest)
        if low // divisor == high // divisor:
            return whole + low // divisor
        factor = gcd(divisor, *(count for monomial, count in terms_of(rest) if monomial))
        if factor > 1:
            return whole + _divide(_without_factor(rest, factor), divisor // factor)
    else:
        if not proves_at_most(0, rest) and proves_at_most(0, rest + divisor):
            whole, rest = whole - 1, rest + divisor
        if proves_at_most(0, rest) and proves_below(rest, divisor):
            return whole
    return whole + _floor(rest, divisor)


def _without_factor(rest: Extent, factor: int) -> Extent:
    """floor(rest / factor) where the factor divides all but the constant."""
    return sized({monomial: count // factor for monomial, count in terms_of(rest)})


def _floor(rest: Extent, divisor: Extent) -> Extent:
    """The atom; floor((floor(a / b) + k) / c) is floor((a + k·b) / (b·c))."""
    varying = [(monomial, count) for monomial, count in terms_of(rest) if monomial]
    if len(varying) == 1 and varying[0][1] == 1 and len(varying[0][0]) == 1:
        atom = varying[0][0][0]
        if isinstance(atom, Floor):
            start = dict(terms_of(rest)).get((), 0)
            return _divide(atom.dividend + atom.divisor * start, atom.divisor * divisor)
    return Size((((Floor(rest, divisor),), 1),))


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
            if isinstance(atom, Floor):
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
    if isinstance(atom, Floor):
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
