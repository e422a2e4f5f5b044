"""Torch's expressions over the symbols of sizes, as sizes of ours."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from aotc.aot.ir.size import Extent, UndecidedSize, largest, proves_at_most, smallest

SHAPE_OF_DATA = "its shape depends on data: keep the full size and a mask of what counts"
# Denominators of factors whose products with sizes are exact in floats.
LARGEST_FRACTION = 1 << 10


def converted(expression: Any, known: Mapping[Any, Extent]) -> Extent:
    """A sympy expression as a size; `known` holds the symbols' sizes.

    Raises `UndecidedSize` for one that depends on data, or that is no size of ours.
    """
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol:
        size = known.get(expression)
        if size is None:
            raise UndecidedSize(SHAPE_OF_DATA)
        return size
    name = type(expression).__name__
    if name not in _SPELLINGS:
        return _truncated(expression, known)
    parts = [converted(part, known) for part in expression.args]
    total = parts[0]
    for part in parts[1:]:
        total = _SPELLINGS[name](total, part)
    return total


def _truncated(expression: Any, known: Mapping[Any, Extent]) -> Extent:
    """A float cut off to a size: exact for sums of whole quarters, eighths … and for numbers."""
    values = {symbol: known.get(symbol) for symbol in expression.free_symbols}
    if values and all(isinstance(value, int) for value in values.values()):
        return int(expression.subs(values))
    name = type(expression).__name__
    if name in ("TruncToInt", "FloorToInt"):
        size, whole = _fraction(expression.args[0], known)
        if proves_at_most(0, size):  # where both round to the same side
            return size // whole
    raise UndecidedSize(f"a size of the form `{expression}`")


def _fraction(expression: Any, known: Mapping[Any, Extent]) -> tuple[Extent, int]:
    """(a, b) with the value of a float product as a / b; raises `UndecidedSize` for others."""
    total: Extent = 1
    divisor = 1
    for factor in expression.args if type(expression).__name__ == "Mul" else (expression,):
        if factor.is_Float:
            above, below = float(factor).as_integer_ratio()
            total, divisor = total * above, divisor * below
        elif type(factor).__name__ == "ToFloat":
            total = total * converted(factor.args[0], known)
        else:
            total = total * converted(factor, known)
    # Small enough that the product of floats is exact for every size that fits memory.
    if divisor > LARGEST_FRACTION:
        raise UndecidedSize(f"a size of the form `{expression}`")
    return total, divisor


def _power(base: Extent, exponent: Extent) -> Extent:
    if not isinstance(exponent, int) or exponent < 0:
        raise UndecidedSize(f"a size to the power of `{exponent}`")
    return prod([base] * exponent)


_SPELLINGS: dict[str, Any] = {
    "Add": lambda left, right: left + right,
    "Mul": lambda left, right: left * right,
    "Pow": _power,
    "FloorDiv": lambda left, right: left // right,
    "CleanDiv": lambda left, right: left // right,
    "Mod": lambda left, right: left % right,
    "PythonMod": lambda left, right: left % right,
    "Max": largest,
    "Min": smallest,
}
