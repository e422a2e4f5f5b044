"""f64 functions as LLVM IR text, without a library; errors are measured by a test.

Logarithms follow fdlibm's formula (Sun Microsystems, 1993); `pow` takes the logarithm in two
parts, so that a large exponent does not multiply its error; the rest is as in `singles.py`.
"""

from __future__ import annotations

import math

from aotc.aot.targets.cpu.math import double_coefficients as fitted
from aotc.aot.targets.cpu.math.angles import DOUBLES as ANGLES
from aotc.aot.targets.cpu.math.every_type import SAME_FORM
from aotc.aot.targets.cpu.math.formats import Format, log_limits, pow_signs
from aotc.aot.targets.cpu.math.vector_ir import Function, Value

LOG2_E, LOG2_E_REST = 1.4426950408889634, 2.0355273740931033e-17
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
ERF_CENTRE = 2.75
ERFC_CENTRE, ERFC_LIMIT = 3.75, 27.3  # beyond the limit the complement is 0


def _power(r: Value) -> Value:
    return F64.less_one(r) + 1.0


def _log_of_ratio(f: Value, exponent: Value) -> Value:
    s = f / (f + 2.0)
    z = s * s
    half = (f * f) * 0.5
    tail = exponent.fma(LN2_LOW, s * z.fma(z.polynomial(fitted.LOG), half))
    return exponent.fma(LN2_HIGH, f - (half - tail))


F64 = Format(
    element="double",
    integer="i64",
    bits=64,
    fraction_bits=52,
    sqrt_half_bits=0x3FE6A09E667F3BCD,
    subnormal_shift=54,
    log2_e=(LOG2_E, LOG2_E_REST),
    ln2=(LN2_HIGH, LN2_LOW),
    tiny=1e-290,
    exp_range=(-746.0, 711.0),
    exp2_range=(-1076.0, 1025.0),
    expm1_range=(-40.0, 710.0),
    exp2_coefficients=fitted.EXP2,
    expm1_coefficients=fitted.EXPM1,
    power=_power,
    log_of_ratio=_log_of_ratio,
)


def _tanh(x: Value) -> Value:
    """t / (t + 2) of t = e^(2|x|) − 1, which has reached 1 at 20."""
    size = x.abs().at_most(20.0)
    power = F64.expm1(size + size)
    return (power / (power + 2.0)).copysign(x)


def _erf(x: Value) -> Value:
    size = x.abs()
    square = size * size
    near = size.fma(square.polynomial(fitted.ERF), size)
    far = size.at_most(6.0).at_least(1.0)
    place = (far - ERF_CENTRE) / (far + ERF_CENTRE)
    rest = F64.exp(-(far * far)) * place.polynomial(fitted.ERF_COMPLEMENT)
    return (size < 1.0).select(near, 1.0 - rest).copysign(x)


def _erfc(x: Value) -> Value:
    """1 − erf x near 0, else by e^(−x²), whose exponent keeps what rounding x² loses."""
    square = x * x
    near = 1.0 - x.fma(square.polynomial(fitted.ERF), x)
    size = x.abs().at_most(ERFC_LIMIT)
    place = (size - ERFC_CENTRE) / (size + ERFC_CENTRE)
    square, lost = _product(size, size)
    r, n_float, n = F64.reduce_exponent(-square)
    power = _power(r - lost)
    level = place.polynomial(fitted.ERFC) / size.fma(2.0, 1.0)
    far = F64.scaled(power * level, n_float, n)
    far = (x < 0.0).select(2.0 - far, far)
    return (x.abs() < 0.5).select(near, far)


def _product(x: Value, y: Value | float) -> tuple[Value, Value]:
    """x · y as its rounded value and what that lost."""
    high = x * y
    return high, x.fma(y, -high)


def _sum(large: Value, small: Value) -> tuple[Value, Value]:
    """The sum as its rounded value and what that lost; the first is the larger one, or 0."""
    total = large + small
    return total, small - (total - large)


def _log2_parts(x: Value) -> tuple[Value, Value]:
    """log2 x of a positive finite x as a sum of two: the error is below 2⁻⁵⁹ of it."""
    f, n = F64.split_any(x)
    divisor = f + 2.0
    s = f / divisor
    # What is missing from s, with what is missing from the divisor.
    rest = (s.fma(-divisor, f) - s * (f - (divisor - 2.0))) / divisor
    z = s * s
    high, low = _sum(s + s, (s * z).fma(z.polynomial(fitted.LOG), rest + rest))
    product, lost = _product(high, LOG2_E)
    total, rounded = _sum(n, product)
    return total, rounded + high.fma(LOG2_E_REST, low.fma(LOG2_E, lost))


def _pow(x: Value, y: Value) -> Value:
    """2^(y log2 |x|), then the cases of C's pow."""
    size = x.abs()
    high, low = _log2_parts(size)
    exponent, lost = _product(y, high)
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
    return pow_signs(x, y, result)


FUNCTIONS: dict[str, Function] = {
    "exp": Function(1, F64.exp, 2.0),
    "exp2": Function(1, F64.exp2, 2.0),
    "expm1": Function(1, F64.expm1, 4.0),
    "log": Function(1, F64.log, 2.0),
    "log2": Function(1, F64.log2, 3.0),
    "log1p": Function(1, F64.log1p, 3.0),
    "tanh": Function(1, _tanh, 5.0),
    "sigmoid": Function(
        1, F64.sigmoid, 4.0, "0 below −709.8, where the exact value is below 2⁻¹⁰²³"
    ),
    "erf": Function(1, _erf, 3.0),
    "erfc": Function(1, _erfc, 5.0),
    "sinh": Function(1, F64.sinh, 5.0),
    "cosh": Function(1, F64.cosh, 4.0),
    **{
        name: Function(1, ANGLES.build(name), max_ulp, ANGLES.note, ANGLES.cold(name))
        for name, max_ulp in {"sin": 3.0, "cos": 3.0, "tan": 5.0}.items()
    },
    "pow": Function(2, _pow, 16.0, "C's cases for zeros, infinities, NaN and negative bases"),
    **SAME_FORM,
}
