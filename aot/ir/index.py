"""Integer index expressions over loop symbols, simplified exactly by the symbols' ranges.

An `Index` is a linear form `constant + sum(coefficient * atom)`, where an atom is a loop symbol, a
floor quotient or a floor remainder of another index by a positive constant. Every operation returns
the simplified form at once, so that equal accesses are equal values and a contiguous access prints
as `x*768 + y`. Quotients and remainders are floored here and truncated in Triton: the two agree
wherever the dividend is not negative, and a dividend can only be negative where the condition of a
`pad` masks the access off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd


@dataclass(frozen=True, slots=True)
class Symbol:
    """A loop variable, or a loaded integer, with values in [0, extent)."""

    name: str
    extent: int


@dataclass(frozen=True, slots=True)
class Quotient:
    """floor(dividend / divisor), where nothing simpler is known."""

    dividend: Index
    divisor: int


@dataclass(frozen=True, slots=True)
class Remainder:
    """dividend - divisor * floor(dividend / divisor), where nothing simpler is known."""

    dividend: Index
    divisor: int


Atom = Symbol | Quotient | Remainder


@dataclass(frozen=True, slots=True)
class Index:
    """constant + sum of coefficient * atom; terms are sorted, distinct and non-zero."""

    terms: tuple[tuple[Atom, int], ...]
    constant: int

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.constant + other)
        coefficients = dict(self.terms)
        for atom, coefficient in other.terms:
            coefficients[atom] = coefficients.get(atom, 0) + coefficient
        return _linear(coefficients, self.constant + other.constant)

    def __sub__(self, other: Index | int) -> Index:
        return self + (other * -1)

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return ZERO
        terms = {atom: coefficient * factor for atom, coefficient in self.terms}
        return Index(_sorted_terms(terms), self.constant * factor)

    def __floordiv__(self, divisor: int) -> Index:
        return _divide(self, divisor)

    def __mod__(self, divisor: int) -> Index:
        return _remain(self, divisor)

    def __str__(self) -> str:
        return _text(self)

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def symbols(self) -> frozenset[Symbol]:
        """All loop symbols that the value depends on."""
        return _symbols(self)

    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value (both inclusive) that the ranges allow."""
        return _bounds(self)

    def stride(self, symbol: Symbol) -> int | None:
        """Change of the value when `symbol` grows by one; None where it is not constant."""
        stride = 0
        for atom, coefficient in self.terms:
            if atom == symbol:
                stride = coefficient
            elif not isinstance(atom, Symbol) and symbol in _symbols(atom.dividend):
                return None
        return stride

    def substitute(self, values: Mapping[Symbol, Index]) -> Index:
        """The same expression with symbols replaced, simplified again."""
        total = constant(self.constant)
        for atom, coefficient in self.terms:
            if isinstance(atom, Symbol):
                value = values.get(atom, of(atom))
            elif isinstance(atom, Quotient):
                value = atom.dividend.substitute(values) // atom.divisor
            else:
                value = atom.dividend.substitute(values) % atom.divisor
            total = total + value * coefficient
        return total


ZERO = Index((), 0)


def constant(value: int) -> Index:
    """The index of one fixed value."""
    return Index((), value)


def of(atom: Atom) -> Index:
    """The index that is just one atom; a symbol of extent 1 is zero."""
    if isinstance(atom, Symbol) and atom.extent == 1:
        return ZERO
    return Index(((atom, 1),), 0)


def symbol(name: str, extent: int) -> Index:
    """A loop symbol with values in [0, extent) as an index."""
    return of(Symbol(name, extent))


def linear(index: Sequence[Index], shape: Sequence[int]) -> Index:
    """Row-major position of a multi-dimensional index."""
    total = ZERO
    for position, extent in zip(index, shape, strict=True):
        total = total * extent + position
    return total


def unravel(position: Index, shape: Sequence[int]) -> tuple[Index, ...]:
    """Multi-dimensional index of a row-major position in [0, product of shape)."""
    found: list[Index] = []
    for axis in range(len(shape) - 1, -1, -1):
        if axis == 0:
            found.append(position if shape[0] != 1 else ZERO)
        else:
            found.append(position % shape[axis])
            position = position // shape[axis]
    return tuple(reversed(found))


# -- conditions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bound:
    """The condition low <= index < high; a side that always holds is None."""

    index: Index
    low: int | None
    high: int | None

    def __str__(self) -> str:
        sides = []
        if self.low is not None:
            sides.append(f"({self.index} >= {self.low})")
        if self.high is not None:
            sides.append(f"({self.index} < {self.high})")
        return " & ".join(sides)


def bound(index: Index, low: int, high: int) -> Bound | None:
    """The condition low <= index < high, or None where the ranges already imply it."""
    smallest, largest = index.bounds()
    needs_low = low if smallest < low else None
    needs_high = high if largest >= high else None
    if needs_low is None and needs_high is None:
        return None
    return Bound(index, needs_low, needs_high)


def bounds_of(index: Sequence[Index], lows: Sequence[int], highs: Sequence[int]) -> list[Bound]:
    """The conditions lows[i] <= index[i] < highs[i] that are not already implied."""
    found = (bound(*row) for row in zip(index, lows, highs, strict=True))
    return [condition for condition in found if condition is not None]


# -- simplification --------------------------------------------------------------------------------


def _linear(coefficients: dict[Atom, int], constant_part: int) -> Index:
    """Drop zero terms, join quotients with their remainders, sort."""
    kept = {atom: coefficient for atom, coefficient in coefficients.items() if coefficient}
    for atom, coefficient in kept.items():
        if isinstance(atom, Remainder):
            joined = _join(kept, atom, coefficient)
            if joined is not None:
                return joined + constant_part
    return Index(_sorted_terms(kept), constant_part)


def _join(coefficients: dict[Atom, int], remainder: Remainder, factor: int) -> Index | None:
    """D*(E // D) + E % D → E and D*(E // D % c) + E % D → E % (D*c), all times `factor`."""
    dividend, divisor = remainder.dividend, remainder.divisor
    whole = dividend // divisor
    if whole.is_constant:
        return None
    quotient = whole * (factor * divisor)
    if all(coefficients.get(atom) == count for atom, count in quotient.terms):
        taken = {remainder, *(atom for atom, _ in quotient.terms)}
        return _without(coefficients, taken) - quotient.constant + dividend * factor
    for atom, count in coefficients.items():
        if not isinstance(atom, Remainder) or count != factor * divisor:
            continue
        if whole % atom.divisor == of(atom):
            rest = _without(coefficients, {remainder, atom})
            return rest + (dividend % (divisor * atom.divisor)) * factor
    return None


def _without(coefficients: dict[Atom, int], taken: set[Atom]) -> Index:
    rest = {atom: count for atom, count in coefficients.items() if atom not in taken}
    return _linear(rest, 0)


def _sorted_terms(coefficients: Mapping[Atom, int]) -> tuple[tuple[Atom, int], ...]:
    return tuple(sorted(coefficients.items(), key=lambda term: (-term[1], _atom_text(term[0]))))


@lru_cache(maxsize=65536)
def _divide(index: Index, divisor: int) -> Index:
    if divisor <= 0:
        raise ValueError(f"divisor is {divisor}, expected a positive integer")
    if divisor == 1:
        return index
    whole, rest = _split(index, divisor)
    whole = whole + rest.constant // divisor
    rest = Index(rest.terms, rest.constant % divisor)
    low, high = rest.bounds()
    if low // divisor == high // divisor:
        return whole + low // divisor
    for factor in _shared_factors(rest, divisor):
        outer, inner = _split(rest, factor)
        outer, inner = outer + inner.constant // factor, _wrapped(inner, factor)
        inner_low, inner_high = inner.bounds()
        if inner_low >= 0 and inner_high < factor:
            return whole + outer // (divisor // factor)
    return whole + _divide_atom(rest, divisor)


def _divide_atom(rest: Index, divisor: int) -> Index:
    """An atom, or (E // a + k) // b → (E + k*a) // (a*b), or (E % a) // b → (E // b) % (a / b)."""
    if len(rest.terms) == 1 and rest.terms[0][1] == 1:
        atom = rest.terms[0][0]
        if isinstance(atom, Quotient):
            lifted = atom.dividend + rest.constant * atom.divisor
            return lifted // (atom.divisor * divisor)
        if isinstance(atom, Remainder) and rest.constant == 0 and atom.divisor % divisor == 0:
            return (atom.dividend // divisor) % (atom.divisor // divisor)
    return of(Quotient(rest, divisor))


@lru_cache(maxsize=65536)
def _remain(index: Index, divisor: int) -> Index:
    if divisor <= 0:
        raise ValueError(f"divisor is {divisor}, expected a positive integer")
    if divisor == 1:
        return ZERO
    _, rest = _split(index, divisor)
    rest = _wrapped(rest, divisor)
    low, high = rest.bounds()
    if low // divisor == high // divisor:
        return rest - (low // divisor) * divisor
    opened = _open_remainders(rest, divisor)
    if opened != rest:
        return opened % divisor
    for factor in _shared_factors(rest, divisor):
        outer, inner = _split(rest, factor)
        outer, inner = outer + inner.constant // factor, _wrapped(inner, factor)
        inner_low, inner_high = inner.bounds()
        if inner_low >= 0 and inner_high < factor:
            return (outer % (divisor // factor)) * factor + inner
    return of(Remainder(rest, divisor))


def _open_remainders(index: Index, divisor: int) -> Index:
    """k*(E % a) → k*E under a remainder by a divisor of k*a."""
    total = constant(index.constant)
    for atom, coefficient in index.terms:
        if isinstance(atom, Remainder) and (coefficient * atom.divisor) % divisor == 0:
            total = total + atom.dividend * coefficient
        else:
            total = total + of(atom) * coefficient
    return total


def _split(index: Index, divisor: int) -> tuple[Index, Index]:
    """(A, B) with index = divisor*A + B: A takes the terms whose coefficient divides."""
    whole = {atom: count // divisor for atom, count in index.terms if count % divisor == 0}
    rest = {atom: count for atom, count in index.terms if count % divisor}
    return Index(_sorted_terms(whole), 0), Index(_sorted_terms(rest), index.constant)


def _wrapped(index: Index, divisor: int) -> Index:
    return Index(index.terms, index.constant % divisor)


def _shared_factors(index: Index, divisor: int) -> list[int]:
    """Proper factors of the divisor that some coefficient shares with it, largest first."""
    factors = {gcd(coefficient, divisor) for _, coefficient in index.terms}
    return sorted((factor for factor in factors if factor > 1), reverse=True)


@lru_cache(maxsize=65536)
def _bounds(index: Index) -> tuple[int, int]:
    low = high = index.constant
    for atom, coefficient in index.terms:
        ends = tuple(coefficient * end for end in _atom_bounds(atom))
        low += min(ends)
        high += max(ends)
    return low, high


def _atom_bounds(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, Symbol):
        return 0, atom.extent - 1
    low, high = _bounds(atom.dividend)
    if isinstance(atom, Quotient):
        return low // atom.divisor, high // atom.divisor
    return 0, atom.divisor - 1


@lru_cache(maxsize=65536)
def _symbols(index: Index) -> frozenset[Symbol]:
    found: set[Symbol] = set()
    for atom, _ in index.terms:
        found |= {atom} if isinstance(atom, Symbol) else _symbols(atom.dividend)
    return frozenset(found)


# -- text ------------------------------------------------------------------------------------------


@lru_cache(maxsize=65536)
def _text(index: Index) -> str:
    positive = [_term_text(atom, count) for atom, count in index.terms if count > 0]
    negative = [_term_text(atom, -count) for atom, count in index.terms if count < 0]
    if index.constant > 0:
        positive.append(str(index.constant))
    elif index.constant < 0 and positive:
        negative.append(str(-index.constant))
    elif not positive:
        positive.append(str(index.constant))
    return " - ".join([" + ".join(positive), *negative])


def _term_text(atom: Atom, factor: int) -> str:
    if factor == 1:
        return _atom_text(atom)
    name = atom.name if isinstance(atom, Symbol) else f"({_atom_text(atom)})"
    return f"{name}*{factor}"


@lru_cache(maxsize=65536)
def _atom_text(atom: Atom) -> str:
    if isinstance(atom, Symbol):
        return atom.name
    terms, offset = atom.dividend.terms, atom.dividend.constant
    inner = _text(atom.dividend)
    is_symbol = len(terms) == 1 and offset == 0 and isinstance(terms[0][0], Symbol)
    if not (is_symbol and terms[0][1] == 1):
        inner = f"({inner})"
    sign = "//" if isinstance(atom, Quotient) else "%"
    return f"{inner} {sign} {atom.divisor}"
