"""f64 functions as LLVM IR text, without a library; errors are measured by a test.

Logarithms follow fdlibm's formula (Sun Microsystems, 1993); `pow` takes the logarithm in two
parts, so that a large exponent does not multiply its error; the rest is as in `singles.py`.
"""

from __future__ import annotations

import math

from aotc.aot.targets.cpu import double_coefficients as fitted
from aotc.aot.targets.cpu.double_angle import ANGLES, NOTE
from aotc.aot.targets.cpu.singles import SAME_FORM, cosh, log_limits, pow_signs, sigmoid, sinh
from aotc.aot.targets.cpu.vector_ir import Function, Value

LOG2_E, LOG2_E_REST = 1.4426950408889634, 2.0355273740931033e-17
# log 2 in two parts; the high one has 32 zero bits at its end, so that its products are exact.
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
ROUNDING = 6755399441055744.0  # 1.5 · 2⁵²: adding it leaves the rounded integer in the low bits
ROUNDING_BITS = 0x4338000000000000
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
SMALLEST_NORMAL = 2.0**-1022
TINY = 1e-290  # below, x² and the like are nothing beside x
ERF_CENTRE = 2.75
ERFC_CENTRE, ERFC_LIMIT = 3.75, 27.3  # beyond the limit the complement is 0


def _nearest(x: Value, factor: float) -> tuple[Value, Value]:
    """(n as float, n as i64) for n = x · factor rounded to nearest; |n| < 2⁵¹."""
    shifted = x.fma(factor, ROUNDING)
    return shifted - ROUNDING, shifted.cast("bitcast", "i64") - ROUNDING_BITS


def _float_of(n: Value) -> Value:
    """A small i64 as f64, without the conversion that only AVX-512 has."""
    return (n + ROUNDING_BITS).cast("bitcast", "double") - ROUNDING


def _power_of_two(n: Value) -> Value:
    """2ⁿ of an i64 in −1022…1023."""
    return ((n + 1023) << 52).cast("bitcast", "double")


def _scale(x: Value, n: Value) -> Value:
    """x · 2ⁿ with one rounding for n in −2044…2046, overflow and subnormal results included."""
    half = n >> 1
    return x * _power_of_two(half) * _power_of_two(n - half)


def _reduce_exponent(x: Value) -> tuple[Value, Value]:
    """x = n · log 2 + r, |r| ≤ log 2 / 2: (r, n as i64)."""
    n_float, n = _nearest(x, LOG2_E)
    return n_float.fma(-LN2_LOW, n_float.fma(-LN2_HIGH, x)), n


def _less_one(r: Value) -> Value:
    """e^r − 1 for |r| ≤ log 2 / 2."""
    return (r * r).fma(r.polynomial(fitted.EXP), r)


def _exp(x: Value, halvings: int = 0) -> Value:
    """e^x / 2^halvings."""
    r, n = _reduce_exponent(x.at_most(711.0).at_least(-746.0))
    return _scale(_less_one(r) + 1.0, n - halvings if halvings else n)


def _exp2(x: Value) -> Value:
    x = x.at_most(1025.0).at_least(-1076.0)
    n_float, n = _nearest(x, 1.0)
    r = x - n_float
    return _scale(r.fma(r.polynomial(fitted.EXP2), 1.0), n)


def _expm1(x: Value) -> Value:
    r, n = _reduce_exponent(x.at_most(710.0).at_least(-40.0))
    half = _power_of_two(n - 1)  # n = 1024 would overflow
    result = half.fma(_less_one(r), half - 0.5)
    # A tiny x comes back as it is, with the sign of zero.
    return (x.abs() < TINY).select(x, result + result)


def _split(x: Value) -> tuple[Value, Value]:
    """A positive normal x = (1 + f) · 2ⁿ with √½ ≤ 1 + f < √2: (f, n as i64)."""
    bits = x.cast("bitcast", "i64")
    n = (bits - SQRT_HALF_BITS) >> 52
    return (bits - (n << 52)).cast("bitcast", "double") - 1.0, n


def _split_any(x: Value) -> tuple[Value, Value]:
    """As `_split` with subnormals: (f, n as float)."""
    small = x < SMALLEST_NORMAL
    f, n = _split(small.select(x * 2.0**54, x))
    n_float = _float_of(n)
    return f, small.select(n_float - 54.0, n_float)


def _log_of_ratio(f: Value, exponent: Value) -> Value:
    """log(1 + f) + exponent · log 2 for √½ ≤ 1 + f ≤ √2."""
    s = f / (f + 2.0)
    z = s * s
    half = (f * f) * 0.5
    tail = exponent.fma(LN2_LOW, s * z.fma(z.polynomial(fitted.LOG), half))
    return exponent.fma(LN2_HIGH, f - (half - tail))


def _log(x: Value) -> Value:
    return log_limits(x, _log_of_ratio(*_split_any(x)))


def _log2(x: Value) -> Value:
    f, n = _split_any(x)
    logarithm = _log_of_ratio(f, f.like(0.0))
    low = logarithm.fma(LOG2_E_REST, n)
    return log_limits(x, logarithm.fma(LOG2_E, low))


def _log1p(x: Value) -> Value:
    total = x + 1.0
    lost = x - (total - 1.0)  # what the addition rounded away
    f, n = _split(total)
    f = (lost * 0.5).fma(_power_of_two(1 - n), f)  # the half keeps n = 1024 in range
    result = log_limits(total, _log_of_ratio(f, _float_of(n)))
    return (x.abs() < TINY).select(x, result)


def _tanh(x: Value) -> Value:
    """t / (t + 2) of t = e^(2|x|) − 1, which has reached 1 at 20."""
    size = x.abs().at_most(20.0)
    power = _expm1(size + size)
    return (power / (power + 2.0)).copysign(x)


def _erf(x: Value) -> Value:
    size = x.abs()
    square = size * size
    near = size.fma(square.polynomial(fitted.ERF), size)
    far = size.at_most(6.0).at_least(1.0)
    place = (far - ERF_CENTRE) / (far + ERF_CENTRE)
    rest = _exp(-(far * far)) * place.polynomial(fitted.ERF_COMPLEMENT)
    return (size < 1.0).select(near, 1.0 - rest).copysign(x)


def _erfc(x: Value) -> Value:
    """1 − erf x near 0, else by e^(−x²), whose exponent keeps what rounding x² loses."""
    square = x * x
    near = 1.0 - x.fma(square.polynomial(fitted.ERF), x)
    size = x.abs().at_most(ERFC_LIMIT)
    place = (size - ERFC_CENTRE) / (size + ERFC_CENTRE)
    square, lost = _product(size, size)
    r, n = _reduce_exponent(-square)
    power = _less_one(r - lost) + 1.0
    level = place.polynomial(fitted.ERFC) / size.fma(2.0, 1.0)
    far = _scale(power * level, n)
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
    f, n = _split_any(x)
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
    n_float, n = _nearest(exponent, 1.0)
    r = (exponent - n_float) + lost
    result = _scale(r.fma(r.polynomial(fitted.EXP2), 1.0), n)
    result = (size.is_nan() | y.is_nan()).select(x.like(math.nan), result)
    return pow_signs(x, y, result)


FUNCTIONS: dict[str, Function] = {
    "exp": Function(1, _exp, 2.0),
    "exp2": Function(1, _exp2, 2.0),
    "expm1": Function(1, _expm1, 4.0),
    "log": Function(1, _log, 2.0),
    "log2": Function(1, _log2, 3.0),
    "log1p": Function(1, _log1p, 3.0),
    "tanh": Function(1, _tanh, 5.0),
    "sigmoid": Function(
        1, sigmoid(_exp), 4.0, "0 below −709.8, where the exact value is below 2⁻¹⁰²³"
    ),
    "erf": Function(1, _erf, 3.0),
    "erfc": Function(1, _erfc, 5.0),
    "sinh": Function(1, sinh(_exp, _expm1), 5.0),
    "cosh": Function(1, cosh(_exp), 4.0),
    **{
        name: Function(1, ANGLES.build(name), max_ulp, NOTE, ANGLES.cold(name))
        for name, max_ulp in {"sin": 3.0, "cos": 3.0, "tan": 5.0}.items()
    },
    "pow": Function(2, _pow, 16.0, "C's cases for zeros, infinities, NaN and negative bases"),
    **SAME_FORM,
}
