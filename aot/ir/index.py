"""Integer index expressions over loop symbols, simplified exactly by the symbols' ranges.

An `Index` is a linear form `constant + sum(coefficient * atom)`, where an atom is a loop symbol, a
floor quotient or a floor remainder of another index by a positive divisor. Coefficients, constants,
divisors and the symbols' extents are ints, or dynamic sizes; what holds only at some calls
simplifies nothing. Every operation returns the simplified form at once, so that equal accesses are
equal values and a contiguous access prints as `x*768 + y`.

Each simplification holds for floors of dividends of either sign, under the condition beside it.
Triton's `//` and `%` truncate, which is the same for dividends that are not negative: atoms have
theirs shifted by whole divisors until the ranges prove that (`_based`), or the text says floor.

Conditions on indices are here too, and which of them the ranges already imply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from aotc.aot.ir.size import (
    Extent,
    Quotient,
    UndecidedSize,
    common_factor,
    common_quotient,
    divides,
    fixed,
    kernel_text,
    largest,
    proves_at_most,
    proves_below,
    smallest,
    typical,
    with_remainder,
)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A loop variable, or a loaded integer, with values in [0, extent)."""

    name: str
    extent: Extent

    @property
    def length(self) -> int:
        """The extent as a number; raises `UndecidedSize` where it is dynamic."""
        return fixed(self.extent)


@dataclass(frozen=True, slots=True)
class Remainder:
    """dividend - divisor * floor(dividend / divisor), where nothing simpler is known."""

    dividend: Index
    divisor: Extent


Atom = Symbol | Quotient["Index"] | Remainder


@dataclass(frozen=True, slots=True)
class Index:
    """constant + sum of coefficient * atom; terms are sorted, distinct and non-zero."""

    terms: tuple[tuple[Atom, Extent], ...]
    constant: Extent
    _hash: int = field(init=False, repr=False, compare=False)  # of nested terms, taken once

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.terms, self.constant)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Index], tuple[object, ...]]:
        return Index, (self.terms, self.constant)  # hashes of texts differ between processes

    def __add__(self, other: Index | Extent) -> Index:
        if not isinstance(other, Index):
            return Index(self.terms, self.constant + other)
        if not other.terms:
            return Index(self.terms, self.constant + other.constant)
        if not self.terms:
            return Index(other.terms, self.constant + other.constant)
        coefficients = dict(self.terms)
        for atom, coefficient in other.terms:
            coefficients[atom] = coefficients.get(atom, 0) + coefficient
        return _linear(coefficients, self.constant + other.constant)

    def __sub__(self, other: Index | Extent) -> Index:
        return self + (other * -1)

    def __mul__(self, factor: Extent) -> Index:
        if factor == 0:
            return ZERO
        if factor == 1:
            return self
        terms = {atom: coefficient * factor for atom, coefficient in self.terms}
        return Index(_sorted_terms(terms), self.constant * factor)

    def __floordiv__(self, divisor: Extent) -> Index:
        return _divide(self, divisor)

    def __mod__(self, divisor: Extent) -> Index:
        return _remain(self, divisor)

    def __str__(self) -> str:
        return _text(self)

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def symbols(self) -> frozenset[Symbol]:
        """All loop symbols that the value depends on."""
        return _symbols(self)

    def bounds(self) -> tuple[Extent, Extent]:
        """Smallest and largest value (both inclusive) that the ranges allow."""
        return _bounds(self)

    def stride(self, symbol: Symbol) -> Extent | None:
        """Change of the value when `symbol` grows by one; None where it is not constant."""
        stride: Extent = 0
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


def constant(value: Extent) -> Index:
    """The index of one fixed value."""
    return Index((), value)


def of(atom: Atom) -> Index:
    """The index that is just one atom; a symbol of extent 1 is zero."""
    is_zero = isinstance(atom, Symbol) and atom.extent == 1
    return ZERO if is_zero else Index(((atom, 1),), 0)


def symbol(name: str, extent: Extent) -> Index:
    """A loop symbol with values in [0, extent) as an index."""
    return of(Symbol(name, extent))


def linear(index: Sequence[Index], shape: Sequence[Extent]) -> Index:
    """Row-major position of a multi-dimensional index."""
    total = ZERO
    for position, extent in zip(index, shape, strict=True):
        total = total * extent + position
    return total


def unravel(position: Index, shape: Sequence[Extent]) -> tuple[Index, ...]:
    """Multi-dimensional index of a row-major position in [0, product of shape).

    Nothing is read of a tensor that may be empty, but its text must not divide by zero.
    """
    inner: list[Index] = []
    for extent in reversed(shape[1:]):
        inner.append(position % largest(extent, 1))
        position = position // largest(extent, 1)
    outer = [position if extent != 1 else ZERO for extent in shape[:1]]
    return (*outer, *reversed(inner))


# -- simplification --------------------------------------------------------------------------------


def _linear(coefficients: dict[Atom, Extent], constant_part: Extent) -> Index:
    """Drop zero terms, join quotients with their remainders, sort."""
    kept = {atom: count for atom, count in coefficients.items() if count}
    for atom, coefficient in kept.items():
        joined = _join(kept, atom, coefficient) if isinstance(atom, Remainder) else None
        if joined is not None:
            return joined + constant_part
    return Index(_sorted_terms(kept), constant_part)


def _join(coefficients: dict[Atom, Extent], remainder: Remainder, factor: Extent) -> Index | None:
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


def _without(coefficients: dict[Atom, Extent], taken: set[Atom]) -> Index:
    rest = {atom: count for atom, count in coefficients.items() if atom not in taken}
    return _linear(rest, 0)


def _sorted_terms(coefficients: Mapping[Atom, Extent]) -> tuple[tuple[Atom, Extent], ...]:
    if len(coefficients) < 2:
        return tuple(coefficients.items())
    return tuple(
        sorted(coefficients.items(), key=lambda term: (-typical(term[1]), _atom_text(term[0])))
    )


@lru_cache(maxsize=65536)
def _divide(index: Index, divisor: Extent) -> Index:
    _refuse_divisor(divisor)
    if divisor == 1:
        return index
    # (d*A + B) // d → A + B // d, for every sign of A and B.
    whole, rest = _split(index, divisor)
    quotient, rest = _based(rest, divisor)
    whole = whole + quotient
    common = common_quotient(*rest.bounds(), divisor)
    if common is not None:
        return whole + common
    for factor in _shared_factors(rest, divisor):
        # (f*A + B) // (f*e) → A // e, where 0 ≤ B < f.
        outer, inner = _split(rest, factor)
        carry, inner = _based(inner, factor)
        if _is_within(inner, factor):
            return whole + (outer + carry) // (divisor // factor)
    return whole + _divide_atom(rest, divisor)


def _divide_atom(rest: Index, divisor: Extent) -> Index:
    """An atom, or a quotient of one quotient or remainder as a single one."""
    if len(rest.terms) == 1 and rest.terms[0][1] == 1:
        atom = rest.terms[0][0]
        if isinstance(atom, Quotient):
            return atom.divided(rest.constant, divisor)
        is_plain = rest.constant == 0
        if isinstance(atom, Remainder) and is_plain and divides(divisor, atom.divisor):
            # (E % a) // b → (E // b) % (a / b), where b divides a.
            return (atom.dividend // divisor) % (atom.divisor // divisor)
    return of(Quotient(rest, divisor))


@lru_cache(maxsize=65536)
def _remain(index: Index, divisor: Extent) -> Index:
    _refuse_divisor(divisor)
    if divisor == 1:
        return ZERO
    # (d*A + B) % d → B % d, for every sign of A and B.
    rest = _based(_split(index, divisor)[1], divisor)[1]
    common = common_quotient(*rest.bounds(), divisor)
    if common is not None:
        return rest - common * divisor
    opened = _open_remainders(rest, divisor)
    if opened != rest:
        return opened % divisor
    for factor in _shared_factors(rest, divisor):
        # (f*A + B) % (f*e) → (A % e)*f + B, where 0 ≤ B < f.
        outer, inner = _split(rest, factor)
        carry, inner = _based(inner, factor)
        if _is_within(inner, factor):
            return ((outer + carry) % (divisor // factor)) * factor + inner
    return of(Remainder(rest, divisor))


def _open_remainders(index: Index, divisor: Extent) -> Index:
    """k*(E % a) → k*E under a remainder by a divisor of k*a: they differ by multiples of k*a."""
    total = constant(index.constant)
    for atom, coefficient in index.terms:
        if isinstance(atom, Remainder) and divides(divisor, coefficient * atom.divisor):
            total = total + atom.dividend * coefficient
        else:
            total = total + of(atom) * coefficient
    return total


def _refuse_divisor(divisor: Extent) -> None:
    if proves_at_most(1, divisor):
        return
    if isinstance(divisor, int):
        raise ValueError(f"divisor is {divisor}, expected a positive integer")
    raise UndecidedSize(f"divisor `{divisor}` may be less than 1")


def _based(index: Index, divisor: Extent) -> tuple[Extent, Index]:
    """(q, B) with index = divisor*q + B and the lowest value of B in [0, divisor).

    Where sizes of the call keep that from being proved it is at least 0, or what whole terms leave.
    """
    quotient, start = with_remainder(index.bounds()[0], divisor)
    if not proves_at_most(0, start) and proves_at_most(start, 0):
        # ceil(-start / divisor) divisors more, as a quotient whose dividend is not negative.
        lacking = (divisor - 1 - start) // divisor
        if proves_at_most(0, start + divisor * lacking):
            quotient = quotient - lacking
    return quotient, Index(index.terms, index.constant - divisor * quotient)


def _is_within(index: Index, extent: Extent) -> bool:
    """Whether 0 ≤ index < extent over the whole range."""
    return common_quotient(*index.bounds(), extent) == 0


def _split(index: Index, divisor: Extent) -> tuple[Index, Index]:
    """(A, B) with index = divisor*A + B: A takes the terms whose coefficient divides."""
    whole, rest = dict[Atom, Extent](), dict[Atom, Extent]()
    for atom, count in index.terms:
        if divides(divisor, count):
            whole[atom] = count // divisor
        else:
            rest[atom] = count
    return Index(_sorted_terms(whole), 0), Index(_sorted_terms(rest), index.constant)


def _shared_factors(index: Index, divisor: Extent) -> list[Extent]:
    """Proper positive factors of the divisor that some coefficient shares, largest first."""
    factors = {common_factor(coefficient, divisor) for _, coefficient in index.terms}
    proper = (each for each in factors if each != 1 and proves_at_most(1, each))
    proper = (each for each in proper if proves_at_most(1, divisor // each))
    return sorted(proper, key=lambda factor: (typical(factor), str(factor)), reverse=True)


@lru_cache(maxsize=65536)
def _bounds(index: Index) -> tuple[Extent, Extent]:
    low = high = index.constant
    for atom, coefficient in index.terms:
        ends = [coefficient * end for end in _atom_bounds(atom)]
        if not proves_at_most(0, coefficient):
            ends.reverse()
            if not proves_at_most(coefficient, 0):
                ends = [smallest(*ends), largest(*ends)]
        low, high = low + ends[0], high + ends[1]
    return low, high


def _atom_bounds(atom: Atom) -> tuple[Extent, Extent]:
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
    return sum_text([(_atom_text(atom), count) for atom, count in index.terms], index.constant)


@lru_cache(maxsize=65536)
def _atom_text(atom: Atom) -> str:
    if isinstance(atom, Symbol):
        return atom.name
    sign = "//" if isinstance(atom, Quotient) else "%"
    is_floored = proves_at_most(0, atom.dividend.bounds()[0])
    return division_text(_text(atom.dividend), sign, atom.divisor, is_floored)


def sum_text(terms: Sequence[tuple[str, Extent]], constant: Extent) -> str:
    """Text of constant + sum of atom * factor, the terms that are subtracted last."""
    positive = [_term_text(atom, count) for atom, count in terms if not _is_negative(count)]
    negative = [_term_text(atom, -count) for atom, count in terms if _is_negative(count)]
    if _is_negative(constant) and positive:
        negative.append(kernel_text(-constant))
    elif constant != 0 or not positive:
        positive.append(kernel_text(constant))
    return " - ".join([" + ".join(positive), *negative])


def division_text(dividend: str, sign: str, divisor: Extent, is_floored: bool) -> str:
    """Text of the floor quotient (`//`) or the floor remainder (`%`) by a divisor of at least 1.

    `is_floored` says that the dividend is never negative, so that truncation is the floor. Else
    floor(a / b) is trunc((a - (b - 1)) / b) for negative a, and a mod b is (a rem b + b) rem b.
    """
    inner = dividend if dividend.isidentifier() else f"({dividend})"
    count = kernel_text(divisor)
    if is_floored:
        return f"{inner} {sign} {count}"
    if sign == "%":
        return f"({inner} % {count} + {count}) % {count}"
    return f"tl.where({inner} < 0, {inner} - {kernel_text(divisor - 1)}, {inner}) // {count}"


def _is_negative(count: Extent) -> bool:
    return isinstance(count, int) and count < 0


def _term_text(atom: str, factor: Extent) -> str:
    if factor == 1:
        return atom
    name = atom if atom.isidentifier() else f"({atom})"
    return f"{name}*{kernel_text(factor)}"


# -- conditions on indices -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bound:
    """The condition low <= index < high; a side that always holds is None."""

    index: Index
    low: Extent | None
    high: Extent | None

    @property
    def undivided(self) -> Bound:
        """The same on what the index is a quotient of: E // a + c >= b where E >= (b - c) * a."""
        terms, constant = self.index.terms, self.index.constant
        if len(terms) != 1 or not isinstance(terms[0][0], Quotient) or terms[0][1] != 1:
            return self
        quotient = terms[0][0]
        low, high = (
            None if end is None else (end - constant) * quotient.divisor
            for end in (self.low, self.high)
        )
        return Bound(quotient.dividend, low, high).undivided

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
