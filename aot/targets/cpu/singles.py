"""f32 functions as LLVM IR text, without a library; errors are measured by a test.

Range reductions and reconstructions: W. J. Cody, W. Waite, "Software Manual for the Elementary
Functions" (1980); large angles: M. Payne, R. Hanek, SIGNUM Newsletter 18 (1983).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from aotc.aot.targets.cpu import coefficients as fitted
from aotc.aot.targets.cpu import inverse_trigonometry
from aotc.aot.targets.cpu.single_angle import ANGLES, NOTE
from aotc.aot.targets.cpu.vector_ir import Function, Value

LOG2_E = 1.4426950408889634
# log 2 in two parts; the high one has 15 zero bits at its end, so that its products are exact.
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440054690583e-4
ROUNDING = 12582912.0  # 1.5 · 2²³: adding it leaves the rounded integer in the low bits
ROUNDING_BITS = 0x4B400000
SQRT_HALF_BITS, ONE_BITS = 0x3F3504F3, 0x3F800000
_VECTOR = "<16 x float>"
SCALE = (
    f"call {_VECTOR} @llvm.x86.avx512.mask.scalef.ps.512"
    f"({_VECTOR} {{0}}, {_VECTOR} {{1}}, {_VECTOR} {{0}}, i16 -1, i32 4)"
)
SMALLEST_NORMAL = 2.0**-126
ERFC_CENTRE, ERFC_LIMIT = 1.875, 10.1  # beyond the limit the complement is 0


def _nearest(x: Value, factor: float) -> tuple[Value, Value]:
    """(n as float, n as i32) for n = x · factor rounded to nearest; |n| < 2²²."""
    shifted = x.fma(factor, ROUNDING)
    return shifted - ROUNDING, shifted.cast("bitcast", "i32") - ROUNDING_BITS


def _power_of_two(n: Value) -> Value:
    """2ⁿ of an i32 in −126…127."""
    return ((n + 127) << 23).cast("bitcast", "float")


def _scale(x: Value, n: Value, n_float: Value) -> Value:
    """x · 2ⁿ with one rounding for n in −252…254, overflow and subnormal results included."""
    if x.text.lanes == 16:  # the AVX-512 row: one instruction
        return x.text.emit("float", SCALE.format(x.name, n_float.name))
    if x.text.lanes == 32:
        return x.text.in_halves("float", SCALE, x, n_float)
    half = n >> 1
    return x * _power_of_two(half) * _power_of_two(n - half)


def _reduce_exponent(x: Value) -> tuple[Value, Value, Value]:
    """x = n · log 2 + r, |r| ≤ log 2 / 2: (r, n as float, n as i32)."""
    n_float, n = _nearest(x, LOG2_E)
    return n_float.fma(-LN2_LOW, n_float.fma(-LN2_HIGH, x)), n_float, n


def _exp(x: Value, halvings: int = 0) -> Value:
    """e^x / 2^halvings."""
    r, n_float, n = _reduce_exponent(x.at_most(90.0).at_least(-105.0))
    power = r.fma(r.polynomial(fitted.EXP), 1.0)
    if halvings:
        n_float, n = n_float - halvings, n - halvings
    return _scale(power, n, n_float)


def _exp2(x: Value) -> Value:
    x = x.at_most(129.0).at_least(-151.0)
    n_float, n = _nearest(x, 1.0)
    r = x - n_float
    return _scale(r.fma(r.polynomial(fitted.EXP2), 1.0), n, n_float)


def _expm1(x: Value) -> Value:
    r, _, n = _reduce_exponent(x.at_most(89.0).at_least(-18.0))
    less_one = (r * r).fma(r.polynomial(fitted.EXPM1), r)
    half = _power_of_two(n - 1)  # n = 128 would overflow
    result = half.fma(less_one, half - 0.5)
    # A tiny x comes back as it is, with the sign of zero.
    return (x.abs() < 1e-30).select(x, result + result)


def _log_of_ratio(f: Value, exponent: Value) -> Value:
    """log(1 + f) + exponent · log 2 for √½ ≤ 1 + f ≤ √2."""
    square = f * f
    tail = (square * f) * f.polynomial(fitted.LOG)
    tail = exponent.fma(LN2_LOW, tail)
    tail = square.fma(-0.5, tail)
    return exponent.fma(LN2_HIGH, f + tail)


def _split(x: Value) -> tuple[Value, Value]:
    """A positive normal x = (1 + f) · 2ⁿ with √½ ≤ 1 + f < √2: (f, n as i32)."""
    bits = x.cast("bitcast", "i32")
    n = (bits - SQRT_HALF_BITS) >> 23
    return (bits - (n << 23)).cast("bitcast", "float") - 1.0, n


def _split_any(x: Value) -> tuple[Value, Value]:
    """As `_split` with subnormals: (f, n as float)."""
    small = x < SMALLEST_NORMAL
    f, n = _split(small.select(x * 2.0**23, x))
    n_float = n.cast("sitofp", "float")
    return f, small.select(n_float - 23.0, n_float)


def log_limits(x: Value, result: Value) -> Value:
    """The values of any logarithm at 0, ∞, NaN and below 0."""
    result = (x < math.inf).select(result, x)
    result = (x < 0.0).select(x.like(math.nan), result)
    return x.equals(0.0).select(x.like(-math.inf), result)


def _log(x: Value) -> Value:
    return log_limits(x, _log_of_ratio(*_split_any(x)))


def _log2(x: Value) -> Value:
    f, n = _split_any(x)
    logarithm = _log_of_ratio(f, f.like(0.0))
    low = logarithm.fma(1.925963033500e-8, n)  # log2 e less its f32 value
    return log_limits(x, logarithm.fma(1.44269502162933349609375, low))


def _log1p(x: Value) -> Value:
    total = x + 1.0
    lost = x - (total - 1.0)  # what the addition rounded away
    f, n = _split(total)
    f = (lost * 0.5).fma(_power_of_two(1 - n), f)  # the half keeps n = 128 in range
    result = _log_of_ratio(f, n.cast("sitofp", "float"))
    result = log_limits(total, result)
    return (x.abs() < 1e-30).select(x, result)


def _rational(x: Value, limit: float, above: tuple[float, ...], below: tuple[float, ...]) -> Value:
    """x P(x²) / Q(x²) for |x| ≤ limit, where this ratio is ±1 exactly: 1 + f vanishes beyond."""
    x = x.at_most(limit).at_least(-limit)
    square = x * x
    ratio = x * square.polynomial(above) / square.polynomial(below)
    return ratio.at_most(1.0).at_least(-1.0)


def _tanh(x: Value) -> Value:
    return _rational(x, 9.0089, fitted.TANH, fitted.TANH_DENOMINATOR)


def _erf(x: Value) -> Value:
    return _rational(x, 3.9, fitted.ERF, fitted.ERF_DENOMINATOR)


def _erfc(x: Value) -> Value:
    """1 − erf x near 0, else by e^(−x²), whose exponent keeps what rounding x² loses."""
    square = x * x
    near = 1.0 - x.fma(square.polynomial(fitted.ERF_NEAR), x)
    size = x.abs().at_most(ERFC_LIMIT)
    place = (size - ERFC_CENTRE) / (size + ERFC_CENTRE)
    square = size * size
    r, n_float, n = _reduce_exponent(-square)
    r = r - size.fma(size, -square)
    power = r.fma(r.polynomial(fitted.EXP), 1.0)
    level = place.polynomial(fitted.ERFC) / size.fma(2.0, 1.0)
    far = _scale(power * level, n, n_float)
    far = (x < 0.0).select(2.0 - far, far)
    return (x.abs() < 0.5).select(near, far)


def _pow(x: Value, y: Value) -> Value:
    """2^(y log2 |x|) in f64, then the cases of C's pow."""
    size = x.abs()
    wide = size.cast("fpext", "double")
    bits = wide.cast("bitcast", "i64")
    n = (bits - 0x3FE6A09E667F3BCD) >> 52
    f = (bits - (n << 52)).cast("bitcast", "double") - 1.0
    logarithm = f.fma(f.polynomial(fitted.LOG2_DOUBLE), n.cast("sitofp", "double"))
    logarithm = (size < math.inf).select(logarithm, wide)
    logarithm = size.equals(0.0).select(wide.like(-math.inf), logarithm)
    exponent = y.cast("fpext", "double") * logarithm
    exponent = size.equals(1.0).select(wide.like(0.0), exponent)
    exponent = exponent.at_most(200.0).at_least(-200.0)
    shifted = exponent + 6755399441055744.0  # 1.5 · 2⁵²
    power = shifted.cast("bitcast", "i64") << 52
    r = exponent - (shifted - 6755399441055744.0)
    fraction = r.fma(r.polynomial(fitted.EXP2_DOUBLE), 1.0)
    result = (fraction.cast("bitcast", "i64") + power).cast("bitcast", "double")
    result = exponent.is_nan().select(exponent, result).cast("fptrunc", "float")
    return pow_signs(x, y, result)


def pow_signs(x: Value, y: Value, result: Value) -> Value:
    """|x|^y given as `result`, with the signs, NaN and ones of C's pow."""
    truncate = x.text.intrinsic
    integer = truncate("trunc", y).equals(y)
    half = y * 0.5
    odd = integer & (truncate("trunc", half).equals(half) ^ 1)
    result = odd.select(result.copysign(x), result)
    no_root = (x < 0.0) & (x > -math.inf) & (integer ^ 1)
    result = no_root.select(x.like(math.nan), result)
    return (y.equals(0.0) | x.equals(1.0)).select(x.like(1.0), result)


def rsqrt(x: Value) -> Value:
    return 1.0 / x.sqrt()


def intrinsic(name: str) -> Callable[[Value], Value]:
    return lambda x: x.text.intrinsic(name, x)


def _half_exp(exp: Callable[..., Value], x: Value) -> Value:
    """e^|x| / 2, finite as long as cosh is."""
    return exp(x.abs(), halvings=1)


def sigmoid(exp: Callable[..., Value]) -> Callable[[Value], Value]:
    """By the exponential of the element type, as the two below."""
    return lambda x: 1.0 / (exp(-x) + 1.0)


def sinh(exp: Callable[..., Value], expm1: Callable[[Value], Value]) -> Callable[[Value], Value]:
    def build(x: Value) -> Value:
        half = _half_exp(exp, x)
        power = expm1(x.abs())
        near = (power + power / (power + 1.0)) * 0.5
        return (x.abs() < 1.0).select(near, half - 0.25 / half).copysign(x)

    return build


def cosh(exp: Callable[..., Value]) -> Callable[[Value], Value]:
    def build(x: Value) -> Value:
        half = _half_exp(exp, x)
        return half + 0.25 / half

    return build


# Written alike for every element type.
SAME_FORM: dict[str, Function] = {
    "asin": Function(1, inverse_trigonometry.asin, 4.0),
    "acos": Function(1, inverse_trigonometry.acos, 4.0),
    "atan": Function(1, inverse_trigonometry.atan, 4.0),
    "atan2": Function(2, inverse_trigonometry.atan2, 4.0),
    "sqrt": Function(1, Value.sqrt, 0.5),
    "rsqrt": Function(1, rsqrt, 1.5),
    "floor": Function(1, intrinsic("floor"), 0.0),
    "ceil": Function(1, intrinsic("ceil"), 0.0),
    "trunc": Function(1, intrinsic("trunc"), 0.0),
    "round": Function(1, Value.round_even, 0.0, "halves go to the even integer"),
}
FUNCTIONS: dict[str, Function] = {
    "exp": Function(1, _exp, 3.0),
    "exp2": Function(1, _exp2, 2.0),
    "expm1": Function(1, _expm1, 4.0),
    "log": Function(1, _log, 2.0),
    "log2": Function(1, _log2, 3.0),
    "log1p": Function(1, _log1p, 3.0),
    "tanh": Function(1, _tanh, 6.0),
    "sigmoid": Function(
        1, sigmoid(_exp), 4.0, "0 below −88.7, where the exact value is below 2⁻¹²⁷"
    ),
    "erf": Function(1, _erf, 6.0),
    "erfc": Function(1, _erfc, 6.0),
    "sinh": Function(1, sinh(_exp, _expm1), 6.0),
    "cosh": Function(1, cosh(_exp), 5.0),
    **{
        name: Function(1, ANGLES.build(name), max_ulp, NOTE, ANGLES.cold(name))
        for name, max_ulp in {"sin": 3.0, "cos": 3.0, "tan": 5.0}.items()
    },
    "pow": Function(2, _pow, 1.0, "C's cases for zeros, infinities, NaN and negative bases"),
    **SAME_FORM,
}
