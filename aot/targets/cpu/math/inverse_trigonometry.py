"""Inverse sine, cosine and tangent as LLVM IR text, f32 and f64 by their coefficients."""

from __future__ import annotations

import math

from aotc.aot.targets.cpu.math import double_coefficients, single_coefficients
from aotc.aot.targets.cpu.math.vector_ir import Value

COEFFICIENTS = {"float": single_coefficients, "double": double_coefficients}
# π/2 less its value in the type.
HALF_PI_REST = {"float": -4.37113883e-8, "double": 6.123233995736766e-17}


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
