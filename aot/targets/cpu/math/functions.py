"""The functions of f32 and f64 as LLVM IR text, without a library; errors are measured by a test.

`pow` of f64 takes the logarithm in two parts, so that a large exponent does not multiply its error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from aotc.aot.targets.cpu.math import coefficients as fitted
from aotc.aot.targets.cpu.math.angles import DOUBLES, SINGLES, Angles
from aotc.aot.targets.cpu.math.formats import (
    F32,
    F64,
    LOG2_E,
    LOG2_E_REST,
    Format,
    log_limits,
)
from aotc.aot.targets.cpu.math.vector_ir import Function, Value

# -- alike for both types --------------------------------------------------------------------------

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
    tail = (square * reduced) * square.polynomial(fitted.ATAN[x.element])
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
    return far, (reduced * square).fma(square.polynomial(fitted.ASIN[x.element]), reduced)


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


def _pow_signs(x: Value, y: Value, result: Value) -> Value:
    """|x|^y given as `result`, with the signs, NaN and ones of C's pow."""
    truncate = x.text.intrinsic
    integer = truncate("trunc", y).equals(y)
    half = y * 0.5
    odd = integer & (truncate("trunc", half).equals(half) ^ 1)
    result = odd.select(result.copysign(x), result)
    no_root = (x < 0.0) & (x > -math.inf) & (integer ^ 1)
    result = no_root.select(x.like(math.nan), result)
    return (y.equals(0.0) | x.equals(1.0)).select(x.like(1.0), result)


# -- f32 -------------------------------------------------------------------------------------------

SINGLE_ERFC_CENTRE, SINGLE_ERFC_LIMIT = 1.875, 10.1  # beyond the limit the complement is 0


def _tanh_single(x: Value) -> Value:
    """t / (t + 2) of t = 2^(2 log2 e |x|) − 1, so that 1 − tanh² x is right where it is small."""
    size = x.abs().at_most(9.02)
    power = F32.exp2m1_inside(size * (2 * F32.log2_e[0]))
    return (power / (power + 2.0)).copysign(x)


def _erf_single(x: Value) -> Value:
    """1 − 2^(log2 erfc |x|), right where it is near 1; it is 1 from 3.93 on."""
    size = x.abs().at_most(3.93)
    power = F32.exp2m1_inside(size * size.polynomial(fitted.ERF["float"]))
    return (-power).copysign(x)


def _erfc_single(x: Value) -> Value:
    """1 − erf x near 0, else by e^(−x²), whose exponent keeps what rounding x² loses."""
    square = x * x
    near = 1.0 - x.fma(square.polynomial(fitted.ERF_NEAR["float"]), x)
    size = x.abs().at_most(SINGLE_ERFC_LIMIT)
    place = (size - SINGLE_ERFC_CENTRE) / (size + SINGLE_ERFC_CENTRE)
    square = size * size
    r, n_float, n = F32.reduce_exponent(-square)
    r = r - size.fma(size, -square)
    power = F32.power(r)
    level = place.polynomial(fitted.ERFC["float"]) / size.fma(2.0, 1.0)
    far = F32.scaled(power * level, n_float, n)
    far = (x < 0.0).select(2.0 - far, far)
    return (x.abs() < 0.5).select(near, far)


def _pow_single(x: Value, y: Value) -> Value:
    """2^(y log2 |x|) in f64, then the cases of C's pow."""
    size = x.abs()
    wide = size.cast("fpext", "double")
    bits = wide.cast("bitcast", "i64")
    n = (bits - 0x3FE6A09E667F3BCD) >> 52
    f = (bits - (n << 52)).cast("bitcast", "double") - 1.0
    logarithm = f.fma(f.polynomial(fitted.POW_LOG2["float"]), n.cast("sitofp", "double"))
    logarithm = (size < math.inf).select(logarithm, wide)
    logarithm = size.equals(0.0).select(wide.like(-math.inf), logarithm)
    exponent = y.cast("fpext", "double") * logarithm
    exponent = size.equals(1.0).select(wide.like(0.0), exponent)
    exponent = exponent.at_most(200.0).at_least(-200.0)
    shifted = exponent + 6755399441055744.0  # 1.5 · 2⁵²
    power = shifted.cast("bitcast", "i64") << 52
    r = exponent - (shifted - 6755399441055744.0)
    fraction = r.fma(r.polynomial(fitted.POW_EXP2["float"]), 1.0)
    result = (fraction.cast("bitcast", "i64") + power).cast("bitcast", "double")
    result = exponent.is_nan().select(exponent, result).cast("fptrunc", "float")
    return _pow_signs(x, y, result)


# -- f64 -------------------------------------------------------------------------------------------

DOUBLE_ERF_CENTRE = 2.75
DOUBLE_ERFC_CENTRE, DOUBLE_ERFC_LIMIT = 3.75, 27.3  # beyond the limit the complement is 0


def _tanh_double(x: Value) -> Value:
    """t / (t + 2) of t = e^(2|x|) − 1, which has reached 1 at 20."""
    size = x.abs().at_most(20.0)
    power = F64.expm1(size + size)
    return (power / (power + 2.0)).copysign(x)


def _erf_double(x: Value) -> Value:
    size = x.abs()
    square = size * size
    near = size.fma(square.polynomial(fitted.ERF_NEAR["double"]), size)
    far = size.at_most(6.0).at_least(1.0)
    place = (far - DOUBLE_ERF_CENTRE) / (far + DOUBLE_ERF_CENTRE)
    rest = F64.exp(-(far * far)) * place.polynomial(fitted.ERF_FAR["double"])
    return (size < 1.0).select(near, 1.0 - rest).copysign(x)


def _erfc_double(x: Value) -> Value:
    """1 − erf x near 0, else by e^(−x²), whose exponent keeps what rounding x² loses."""
    square = x * x
    near = 1.0 - x.fma(square.polynomial(fitted.ERF_NEAR["double"]), x)
    size = x.abs().at_most(DOUBLE_ERFC_LIMIT)
    place = (size - DOUBLE_ERFC_CENTRE) / (size + DOUBLE_ERFC_CENTRE)
    square, lost = product_parts(size, size)
    r, n_float, n = F64.reduce_exponent(-square)
    power = F64.power(r - lost)
    level = place.polynomial(fitted.ERFC["double"]) / size.fma(2.0, 1.0)
    far = F64.scaled(power * level, n_float, n)
    far = (x < 0.0).select(2.0 - far, far)
    return (x.abs() < 0.5).select(near, far)


def product_parts(x: Value, y: Value | float) -> tuple[Value, Value]:
    """x · y as its rounded value and what that lost."""
    high = x * y
    return high, x.fma(y, -high)


def sum_parts(large: Value, small: Value) -> tuple[Value, Value]:
    """The sum as its rounded value and what that lost; the first is the larger one, or 0."""
    total = large + small
    return total, small - (total - large)


def log2_parts(x: Value) -> tuple[Value, Value]:
    """log2 x of a positive finite x as a sum of two: the error is below 2⁻⁶⁶ of it.

    2 s + ⅔ s³ + … of s = f / (f + 2), both first terms in two parts.
    """
    f, n = F64.split_any(x)
    divisor = f + 2.0
    s = f / divisor
    rest = (s.fma(-divisor, f) - s * (f - (divisor - 2.0))) / divisor
    z, z_rest = product_parts(s, s)
    z_rest = (s + s).fma(rest, z_rest)
    cube, cube_rest = product_parts(z, s)
    cube_rest = z.fma(rest, s.fma(z_rest, cube_rest))
    third, third_rest = 0.6666666666666666, 3.700743415417188e-17
    term, term_rest = product_parts(cube, third)
    tail = z.polynomial([2.0 / (2 * k + 5) for k in range(14)])
    term_rest = (cube * z).fma(tail, cube_rest.fma(third, cube.fma(third_rest, term_rest)))
    high, low = sum_parts(s + s, term)
    low = low + (term_rest + (rest + rest))
    high, low = sum_parts(high, low)
    product, lost = product_parts(high, LOG2_E)
    total, rounded = sum_parts(n, product)
    # n may be 0 or smaller than the product: then its rounding is found the other way round.
    rounded = (n.abs() < product.abs()).select(n - (total - product), rounded)
    return total, rounded + high.fma(LOG2_E_REST, low.fma(LOG2_E, lost))


def _pow_double(x: Value, y: Value) -> Value:
    """2^(y log2 |x|), then the cases of C's pow."""
    size = x.abs()
    high, low = log2_parts(size)
    exponent, lost = product_parts(y, high)
    lost = y.fma(low, lost)
    is_inside = exponent.abs() < 1100.0
    lost = is_inside.select(lost, 0.0)
    # Of 0 and ∞, whose logarithm is infinite, and of y = ∞ only the sign counts.
    limit = log_limits(size, high)
    is_limit = size.equals(0.0) | size.equals(math.inf)
    exponent = is_limit.select(y * limit, exponent)
    exponent = size.equals(1.0).select(x.like(0.0), exponent)
    lost = (is_limit | size.equals(1.0)).select(x.like(0.0), lost)
    exponent = exponent.at_most(1100.0).at_least(-1100.0)
    n_float, n = F64.nearest(exponent, 1.0)
    r = (exponent - n_float) + lost
    result = F64.scaled(F64.power_of_fraction(r), n_float, n)
    result = (size.is_nan() | y.is_nan()).select(x.like(math.nan), result)
    return _pow_signs(x, y, result)


# -- the table -------------------------------------------------------------------------------------

# Methods of `Format`, with their stated bounds for f32 and f64.
OF_FORMATS = {
    "exp": (3.0, 2.0),
    "exp2": (2.0, 2.0),
    "expm1": (4.0, 4.0),
    "log": (2.0, 2.0),
    "log2": (3.0, 3.0),
    "log1p": (3.0, 3.0),
    "sinh": (6.0, 5.0),
    "cosh": (5.0, 4.0),
}
ALIKE: dict[str, Function] = {
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
POW_NOTE = "C's cases for zeros, infinities, NaN and negative bases"


def _shared(form: Format, angles: Angles, place: int) -> Iterator[tuple[str, Function]]:
    """The rows that both types have; `place`: of the type's bounds in `OF_FORMATS`."""
    for name, bounds in OF_FORMATS.items():
        yield name, Function(1, getattr(form, name), bounds[place])
    for name, bound in {"sin": 3.0, "cos": 3.0, "tan": 5.0}.items():
        yield name, Function(1, angles.build(name), bound, angles.note, angles.cold(name))
    yield from ALIKE.items()


FUNCTIONS: Mapping[str, Mapping[str, Function]] = {
    "float": {
        **dict(_shared(F32, SINGLES, 0)),
        "tanh": Function(1, _tanh_single, 4.0),
        "sigmoid": Function(
            1, F32.sigmoid, 4.0, "0 below −88.7, where the exact value is below 2⁻¹²⁷"
        ),
        "erf": Function(1, _erf_single, 3.0),
        "erfc": Function(1, _erfc_single, 6.0),
        "pow": Function(2, _pow_single, 1.0, POW_NOTE),
    },
    "double": {
        **dict(_shared(F64, DOUBLES, 1)),
        "tanh": Function(1, _tanh_double, 5.0),
        "sigmoid": Function(
            1, F64.sigmoid, 4.0, "0 below −709.8, where the exact value is below 2⁻¹⁰²³"
        ),
        "erf": Function(1, _erf_double, 3.0),
        "erfc": Function(1, _erfc_double, 5.0),
        "pow": Function(2, _pow_double, 2.0, POW_NOTE),
    },
}
