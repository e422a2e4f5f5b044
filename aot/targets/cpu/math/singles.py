"""f32 functions as LLVM IR text, without a library; errors are measured by a test."""

from __future__ import annotations

import math

from aotc.aot.targets.cpu.math import single_coefficients as fitted
from aotc.aot.targets.cpu.math.angles import SINGLES as ANGLES
from aotc.aot.targets.cpu.math.every_type import SAME_FORM
from aotc.aot.targets.cpu.math.formats import Format, pow_signs
from aotc.aot.targets.cpu.math.vector_ir import Function, Value

_VECTOR = "<16 x float>"
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440054690583e-4
ERFC_CENTRE, ERFC_LIMIT = 1.875, 10.1  # beyond the limit the complement is 0


def _power(r: Value) -> Value:
    return r.fma(r.polynomial(fitted.EXP), 1.0)


def _log_of_ratio(f: Value, exponent: Value) -> Value:
    square = f * f
    tail = (square * f) * f.polynomial(fitted.LOG)
    tail = exponent.fma(LN2_LOW, tail)
    tail = square.fma(-0.5, tail)
    return exponent.fma(LN2_HIGH, f + tail)


F32 = Format(
    element="float",
    integer="i32",
    bits=32,
    fraction_bits=23,
    sqrt_half_bits=0x3F3504F3,
    subnormal_shift=23,
    log2_e=(1.44269502162933349609375, 1.925963033500e-8),
    ln2=(LN2_HIGH, LN2_LOW),
    tiny=1e-30,
    exp_range=(-105.0, 90.0),
    exp2_range=(-151.0, 129.0),
    expm1_range=(-18.0, 89.0),
    exp2_coefficients=fitted.EXP2,
    expm1_coefficients=fitted.EXPM1,
    power=_power,
    log_of_ratio=_log_of_ratio,
    scale_instruction=(
        f"call {_VECTOR} @llvm.x86.avx512.mask.scalef.ps.512"
        f"({_VECTOR} {{0}}, {_VECTOR} {{1}}, {_VECTOR} {{0}}, i16 -1, i32 4)"
    ),
)


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
    r, n_float, n = F32.reduce_exponent(-square)
    r = r - size.fma(size, -square)
    power = _power(r)
    level = place.polynomial(fitted.ERFC) / size.fma(2.0, 1.0)
    far = F32.scaled(power * level, n_float, n)
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


FUNCTIONS: dict[str, Function] = {
    "exp": Function(1, F32.exp, 3.0),
    "exp2": Function(1, F32.exp2, 2.0),
    "expm1": Function(1, F32.expm1, 4.0),
    "log": Function(1, F32.log, 2.0),
    "log2": Function(1, F32.log2, 3.0),
    "log1p": Function(1, F32.log1p, 3.0),
    "tanh": Function(1, _tanh, 6.0),
    "sigmoid": Function(1, F32.sigmoid, 4.0, "0 below −88.7, where the exact value is below 2⁻¹²⁷"),
    "erf": Function(1, _erf, 6.0),
    "erfc": Function(1, _erfc, 6.0),
    "sinh": Function(1, F32.sinh, 6.0),
    "cosh": Function(1, F32.cosh, 5.0),
    **{
        name: Function(1, ANGLES.build(name), max_ulp, ANGLES.note, ANGLES.cold(name))
        for name, max_ulp in {"sin": 3.0, "cos": 3.0, "tan": 5.0}.items()
    },
    "pow": Function(2, _pow, 1.0, "C's cases for zeros, infinities, NaN and negative bases"),
    **SAME_FORM,
}
