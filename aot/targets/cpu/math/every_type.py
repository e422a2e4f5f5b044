"""Functions that are written alike for f32 and f64, by the coefficients and limits of the type."""

from __future__ import annotations

import math
from collections.abc import Callable

from aotc.aot.targets.cpu.math import double_coefficients, single_coefficients
from aotc.aot.targets.cpu.math.vector_ir import Function, Value

COEFFICIENTS = {"float": single_coefficients, "double": double_coefficients}
# π/2 less its value in the type.
HALF_PI_REST = {"float": -4.37113883e-8, "double": 6.123233995736766e-17}
# Bits of a significand; a power of two that brings the largest quotient below the largest number
# in two steps, and is below every quotient that is infinite.
LIMITS = {"float": (24, 2.0**100), "double": (53, 2.0**1000)}


def intrinsic(name: str) -> Callable[[Value], Value]:
    return lambda x: x.text.intrinsic(name, x)


trunc = intrinsic("trunc")


def atan(x: Value) -> Value:
    size = x.abs()
    far, middle = size > 2.414213562373095, size > 0.4142135623730950
    # tan(a − b) = (x − y) / (1 + x y) with y = ∞ above, 1 between and 0 below.
    above = far.select(size.like(-1.0), middle.select(size - 1.0, size))
    below = far.select(size, middle.select(size + 1.0, size.like(1.0)))
    start = far.select(size.like(math.pi / 2), middle.select(size.like(math.pi / 4), 0.0))
    reduced = above / below
    square = reduced * reduced
    tail = (square * reduced) * square.polynomial(COEFFICIENTS[x.element].ATAN)
    return (start + (reduced + tail)).copysign(x)


def atan2(y: Value, x: Value) -> Value:
    """The angle of (x, y): atan of the smaller by the larger size, then the octant."""
    height, width = y.abs(), x.abs()
    steep = height > width
    above, below = steep.select(width, height), steep.select(height, width)
    # Both zero is no angle, both infinite is half a right one.
    ratio = below.equals(0.0).select(x.like(0.0), above / below)
    ratio = above.equals(math.inf).select(x.like(1.0), ratio)
    angle_ = atan(ratio)
    angle_ = steep.select(math.pi / 2 - angle_, angle_)
    angle_ = (x.like(1.0).copysign(x) < 0.0).select(math.pi - angle_, angle_)
    unknown = x.is_nan() | y.is_nan()
    return unknown.select(x.like(math.nan), angle_.copysign(y))


def _arcsine_parts(x: Value) -> tuple[Value, Value]:
    """(|x| > ½, asin of |x| or, there, of √((1 − |x|) / 2))."""
    size = x.abs()
    far = size > 0.5
    square = far.select((1.0 - size) * 0.5, size * size)
    reduced = far.select(square.sqrt(), size)
    return far, (reduced * square).fma(square.polynomial(COEFFICIENTS[x.element].ASIN), reduced)


def asin(x: Value) -> Value:
    far, angle_ = _arcsine_parts(x)
    return far.select(angle_.fma(-2.0, math.pi / 2), angle_).copysign(x)


def acos(x: Value) -> Value:
    far, angle_ = _arcsine_parts(x)
    negative = x < 0.0
    twice = angle_ + angle_
    outer = negative.select(math.pi - twice, twice)
    # The sum is near zero for no |x| ≤ ½, but a part of an ulp counts.
    inner = x.like(math.pi / 2) - (angle_.copysign(x) - HALF_PI_REST[x.element])
    return far.select(outer, inner)


def fmod(x: Value, y: Value) -> Value:
    """x - trunc(x / y) · y, signed as x; of quotients beyond the significand's bits in a loop."""
    (bits, _), a, b = LIMITS[x.element], x.abs(), y.abs()
    quotient = a / b
    near = trunc(quotient).fma(-b, a)
    rest = x.text.rarely_repeated(quotient > 2.0 ** (bits - 1), near, a, lambda r: _step(r, b))
    rest = (rest < 0).select(rest + b, rest)  # where a quotient was rounded up
    return (a < b).select(a, rest).copysign(x)


def _step(rest: Value, b: Value) -> tuple[Value, Value]:
    """rest - trunc(rest / b · 2⁻ᵏ) · b · 2ᵏ, and whether it is not below b yet.

    Exact: of a rounded quotient what is left is a number, and it has fewer bits by a significand's.
    """
    _, step = LIMITS[rest.element]
    divisor = b
    for _ in range(2):  # k > 0 where the quotient is not finite
        is_far = (rest / divisor).abs().equals(float("inf"))
        divisor = is_far.select(divisor * step, divisor)
    left = trunc(rest / divisor).fma(-divisor, rest)
    return left, left.text.emit("i1", f"fcmp oge {left.abs()}, {b.name}")


def rsqrt(x: Value) -> Value:
    return 1.0 / x.sqrt()


# Written alike for every element type.
SAME_FORM: dict[str, Function] = {
    "asin": Function(1, asin, 4.0),
    "acos": Function(1, acos, 4.0),
    "atan": Function(1, atan, 4.0),
    "atan2": Function(2, atan2, 4.0),
    "fmod": Function(2, fmod, 0.0),
    "sqrt": Function(1, Value.sqrt, 0.5),
    "rsqrt": Function(1, rsqrt, 1.5),
    "floor": Function(1, intrinsic("floor"), 0.0),
    "ceil": Function(1, intrinsic("ceil"), 0.0),
    "trunc": Function(1, trunc, 0.0),
    "round": Function(1, Value.round_even, 0.0, "halves go to the even integer"),
}
