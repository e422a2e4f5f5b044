"""Random index expressions, each built as an `Index` and as plain floored arithmetic.

A case holds expressions three ways: the values of all points, which numpy computes step by step,
the `Index` that the same steps give, and the text of that index. `faults` says where they differ:
the text is evaluated as Triton does it, in 32 bits, with `//` and `%` truncated toward zero.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from types import CodeType

import numpy as np

from aotc.aot.ir import index as ix
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.size import KERNEL_PREFIX, Dim, Extent, Quotient, size_of, substitute

Values = np.ndarray
Calls = Mapping[Dim, int]

N, M = Dim("n", 1, 5, 3), Dim("m", 2, 6, 4)
n, m = size_of(N), size_of(M)
CALLS: tuple[Calls, ...] = ({N: 1, M: 2}, {N: 5, M: 6}, {N: 4, M: 3}, {N: 2, M: 5})
FIXED: tuple[Calls, ...] = ({},)
NUMBERS = (1, 2, 3, 4, 5, 6, 7, 8, 12)
SIZES = (n, m, n + 1, 2 * n, m * 2, n * m, m - 1, (n + 1) // 2, m * 3, n * 4 + 2)


class Truncated:
    """A block of 32-bit integers as a kernel computes with it."""

    __slots__ = ("values",)

    def __init__(self, values: Values) -> None:
        self.values = values

    def __add__(self, other: Truncated | int) -> Truncated:
        return Truncated(self.values + _block(other))

    __radd__ = __add__

    def __sub__(self, other: Truncated | int) -> Truncated:
        return Truncated(self.values - _block(other))

    def __rsub__(self, other: int) -> Truncated:
        return Truncated(_block(other) - self.values)

    def __mul__(self, other: Truncated | int) -> Truncated:
        return Truncated(self.values * _block(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: Truncated | int) -> Truncated:
        divisor = _block(other)
        return Truncated((self.values - np.fmod(self.values, divisor)) // divisor)

    def __mod__(self, other: Truncated | int) -> Truncated:
        return Truncated(np.fmod(self.values, _block(other)))

    def __rfloordiv__(self, other: int) -> Truncated:
        return Truncated(_block(other)) // self

    def __rmod__(self, other: int) -> Truncated:
        return Truncated(_block(other)) % self

    def __neg__(self) -> Truncated:
        return Truncated(-self.values)

    def __lt__(self, other: Truncated | int) -> Values:
        return self.values < _block(other)


def _block(value: Truncated | int) -> Values:
    return value.values if isinstance(value, Truncated) else np.int32(value)


class Language:
    """The functions of `tl` that an index or a size is written with."""

    @staticmethod
    def where(condition: Values, left: Truncated, right: Truncated) -> Truncated:
        return Truncated(np.where(condition, _block(left), _block(right)))

    @staticmethod
    def maximum(left: Truncated | int, right: Truncated | int) -> Truncated:
        return Truncated(np.maximum(_block(left), _block(right)))

    @staticmethod
    def minimum(left: Truncated | int, right: Truncated | int) -> Truncated:
        return Truncated(np.minimum(_block(left), _block(right)))


@cache
def number(extent: Extent, call: int, is_fixed: bool) -> int:
    """The size at one of the calls."""
    found = extent if isinstance(extent, int) else substitute(extent, _calls(is_fixed)[call])
    assert isinstance(found, int)
    return found


def _calls(is_fixed: bool) -> tuple[Calls, ...]:
    return FIXED if is_fixed else CALLS


@dataclass(slots=True)
class Expression:
    """An index, and for each call its value at every point of the symbols, by plain arithmetic."""

    index: Index
    values: list[Values]


class Case:
    """Symbols with all their points, and expressions over them."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.is_fixed = self.draw.random() < 0.8
        pool = NUMBERS if self.is_fixed else (*SIZES, 2, 3, 4)
        rank = self.draw.choice((1, 2, 2, 3))
        self.symbols = [Symbol(f"x{at}", self.draw.choice(pool)) for at in range(rank)]
        self.points: list[dict[Symbol, Values]] = []
        for call in range(len(_calls(self.is_fixed))):
            extents = [self.number(symbol.extent, call) for symbol in self.symbols]
            grid = np.indices(extents, dtype=np.int64).reshape(rank, -1)
            self.points.append(dict(zip(self.symbols, grid, strict=True)))
        self.trail: list[tuple[str, Expression]] = []
        self._draw()

    def number(self, extent: Extent, call: int) -> int:
        return number(extent, call, self.is_fixed)

    def _each(
        self, expression: Expression, function: Callable[[int, Values], Values], index: Index
    ) -> Expression:
        return Expression(index, [function(*row) for row in enumerate(expression.values)])

    def _draw(self) -> None:
        found = self._symbol()
        for _ in range(self.draw.randint(2, 7)):
            step = self.draw.choice(_STEPS)
            found = step(self, found)
            self.trail.append((step.__name__.strip("_"), found))

    def _symbol(self) -> Expression:
        symbol = self.draw.choice(self.symbols)
        return Expression(ix.of(symbol), [points[symbol] for points in self.points])

    def _extent(self) -> Extent:
        """A positive number or size."""
        is_number = self.is_fixed or self.draw.random() < 0.4
        return self.draw.choice(NUMBERS if is_number else SIZES)

    def _factor(self) -> Extent:
        return self._extent() * self.draw.choice((1, 1, -1))

    def _add_symbol(self, left: Expression) -> Expression:
        return self._add(left, self._symbol())

    def _add(self, left: Expression, right: Expression) -> Expression:
        factor = self._factor()
        values = [
            each + other * self.number(factor, call)
            for call, (each, other) in enumerate(zip(left.values, right.values, strict=True))
        ]
        return Expression(left.index + right.index * factor, values)

    def _shift(self, left: Expression) -> Expression:
        by = self._factor()
        return self._each(left, lambda call, each: each + self.number(by, call), left.index + by)

    def _scale(self, left: Expression) -> Expression:
        by = self._factor()
        return self._each(left, lambda call, each: each * self.number(by, call), left.index * by)

    def _divide(self, left: Expression) -> Expression:
        by = self._extent()
        return self._each(left, lambda call, each: each // self.number(by, call), left.index // by)

    def _remain(self, left: Expression) -> Expression:
        by = self._extent()
        return self._each(left, lambda call, each: each % self.number(by, call), left.index % by)

    def _flip(self, left: Expression) -> Expression:
        """What remains of a division, counted from the end."""
        by = self._extent()
        index = left.index % by * -1 + (by - 1)

        def flipped(call: int, each: Values) -> Values:
            count = self.number(by, call)
            return count - 1 - each % count

        return self._each(left, flipped, index)

    def _restore(self, left: Expression) -> Expression:
        """Divided apart, perhaps by two steps, and put together again."""
        by, over = self._extent(), self._extent()
        index = left.index // by
        if self.draw.random() < 0.5:
            return Expression(index * by + left.index % by, left.values)
        index = (index % over) * by + left.index % by
        return self._each(
            left,
            lambda call, each: each % (self.number(by, call) * self.number(over, call)),
            index,
        )

    def _reshape(self, left: Expression) -> Expression:
        """A position in one shape as one of its dims in another."""
        first, second, third = self._extent(), self._extent(), self._extent()
        place = self.draw.randrange(3)
        index = ix.unravel(left.index % (first * second * third), (first, second, third))[place]

        def unraveled(call: int, each: Values) -> Values:
            shape = [self.number(extent, call) for extent in (first, second, third)]
            return np.unravel_index(each % (shape[0] * shape[1] * shape[2]), shape)[place]

        return self._each(left, unraveled, index)

    def _replace(self, left: Expression) -> Expression:
        """Another value within the range of a symbol put in its place."""
        symbol = self.draw.choice(self.symbols)
        other = self._flip(self._add_symbol(self._symbol()))
        value = other.index % symbol.extent
        reached = [each % self.number(symbol.extent, call)
                   for call, each in enumerate(other.values)]  # fmt: skip
        index = left.index.substitute({symbol: value})
        values = []
        for call, (points, at) in enumerate(zip(self.points, reached, strict=True)):
            # The point with that value in the symbol's place, of all points in row-major order.
            place = np.zeros_like(at)
            for each in self.symbols:
                step = at if each is symbol else points[each]
                place = place * self.number(each.extent, call) + step
            values.append(left.values[call][place])
        return Expression(index, values)

    def faults(self) -> Iterator[str]:
        """Where an index, its range or its text differ from plain arithmetic."""
        for place, (_, expression) in enumerate(self.trail):
            for call, plain in enumerate(expression.values):
                for what in self._differing(expression.index, call, plain):
                    steps = ", ".join(name for name, _ in self.trail[: place + 1])
                    yield f"{what} of `{expression.index}` at call {call}, after {steps}"

    def _differing(self, index: Index, call: int, plain: Values) -> Iterator[str]:
        if (self._value(index, call) != plain).any():
            yield "value"
        low, high = (self.number(end, call) for end in index.bounds())
        if not low <= plain.min() <= plain.max() <= high:
            yield "range"
        if (self._written(str(index), call) != plain).any():
            yield "text"

    def _written(self, text: str, call: int) -> Values:
        """The value of the text as a kernel computes it."""
        names = {symbol.name: Truncated(points.astype(np.int32))
                 for symbol, points in self.points[call].items()}  # fmt: skip
        for dim, value in _calls(self.is_fixed)[call].items():
            names[KERNEL_PREFIX + dim.name] = Truncated(np.array([value], np.int32))
        return _block(eval(_compiled(text), {"tl": Language}, names))

    def _value(self, index: Index, call: int) -> Values | int:
        total: Values | int = self.number(index.constant, call)
        for atom, coefficient in index.terms:
            if isinstance(atom, Symbol):
                part = self.points[call][atom]
            elif isinstance(atom, Quotient):
                part = self._value(atom.dividend, call) // self.number(atom.divisor, call)
            else:
                part = self._value(atom.dividend, call) % self.number(atom.divisor, call)
            total = total + part * self.number(coefficient, call)
        return total


@lru_cache(maxsize=256)
def _compiled(text: str) -> CodeType:
    return compile(text, "index", "eval")


_STEPS = (
    Case._add_symbol,
    Case._add_symbol,
    Case._shift,
    Case._scale,
    Case._divide,
    Case._divide,
    Case._remain,
    Case._remain,
    Case._flip,
    Case._flip,
    Case._restore,
    Case._reshape,
    Case._replace,
)


def first_faults(seed: int, count: int, most: int = 5) -> list[str]:
    """The first faults of `count` expressions, from this seed on."""
    found: list[str] = []
    while count > 0 and len(found) < most:
        case = Case(seed)
        found += [f"seed {seed}: {fault}" for fault in case.faults()]
        seed, count = seed + 1, count - len(case.trail)
    return found[:most]
