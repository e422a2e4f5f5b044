"""The formats f32 and f64 with their powers of two and logarithms, as LLVM IR text.

Range reductions and reconstructions: W. J. Cody, W. Waite, "Software Manual for the Elementary
Functions" (1980). Logarithms of f64 follow fdlibm's formula (Sun Microsystems, 1993).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from aotc.aot.targets.cpu.math import coefficients as fitted
from aotc.aot.targets.cpu.math.vector_ir import Value

Range = tuple[float, float]
LN2_ABOVE = 0.6932  # a little more than log 2
WIDEST_BYTES = 64  # of a vector of AVX-512


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point format with the constants of its functions.

    sqrt_half_bits: of √½; subnormal_shift: an exponent that makes every subnormal a normal number;
    log2_e, ln2: in two parts, of ln2 the high one with so many zero bits at its end that its
    products with exponents are exact; tiny: below it, x² and the like are nothing beside x;
    ranges: beyond which e^x, 2^x and e^x − 1 are at their limits, at the lower one of the first two
    by a factor that has no exponent left and is 0; power: e^r for |r| ≤ ln2 / 2;
    log_of_ratio: log(1 + f) + n · log 2 for √½ ≤ 1 + f ≤ √2; scale_instruction: AVX-512's for
    x · 2ⁿ, of a whole vector.
    """

    element: str
    integer: str  # of as many bits
    bits: int
    fraction_bits: int
    sqrt_half_bits: int
    subnormal_shift: int
    log2_e: tuple[float, float]
    ln2: tuple[float, float]
    tiny: float
    exp_range: Range
    exp2_range: Range
    expm1_range: Range
    power: Callable[[Value], Value]
    log_of_ratio: Callable[[Value, Value], Value]
    scale_instruction: str | None = None

    @property
    def rounding(self) -> float:
        """Adding it to a number leaves the rounded integer in the low bits."""
        return 1.5 * 2.0**self.fraction_bits

    @property
    def rounding_bits(self) -> int:
        """`rounding` as an integer."""
        return ((self.bias + self.fraction_bits) << self.fraction_bits) + (
            1 << (self.fraction_bits - 1)
        )

    @property
    def bias(self) -> int:
        """Of the exponent."""
        return (1 << (self.bits - self.fraction_bits - 2)) - 1

    def nearest(self, x: Value, factor: float) -> tuple[Value, Value]:
        """(n as a float, n as an integer) for n = x · factor rounded to nearest."""
        shifted = x.fma(factor, self.rounding)
        return (
            shifted - self.rounding,
            shifted.cast("bitcast", self.integer) - self.rounding_bits,
        )

    def float_of(self, n: Value) -> Value:
        """A small integer; of i64 without the conversion that only AVX-512 has."""
        if self.integer == "i32":
            return n.cast("sitofp", self.element)
        return (n + self.rounding_bits).cast("bitcast", self.element) - self.rounding

    def power_of_two(self, n: Value) -> Value:
        """2ⁿ of an integer that is a normal number's exponent."""
        return ((n + self.bias) << self.fraction_bits).cast("bitcast", self.element)

    def scaled(self, x: Value, n_float: Value, n: Value, halvings: int = 0) -> Value:
        """x · 2ⁿ / 2^halvings with one rounding, overflow and subnormal results included."""
        if self.scale_instruction is not None and self.is_scaled_at_once(x):
            n_float = n_float - halvings if halvings else n_float
            width = WIDEST_BYTES * 8 // self.bits
            if x.text.lanes != width:
                return x.text.in_parts(self.element, width, self.scale_instruction, x, n_float)
            text = self.scale_instruction.format(x.name, n_float.name)
            return x.text.emit(self.element, text)
        n = n - halvings if halvings else n
        half = n >> 1
        return x * self.power_of_two(half) * self.power_of_two(n - half)

    def reduce_exponent(self, x: Value) -> tuple[Value, Value, Value]:
        """x = n · log 2 + r, |r| ≤ log 2 / 2: (r, n as a float, n as an integer)."""
        n_float, n = self.nearest(x, self.log2_e[0])
        high, low = self.ln2
        return n_float.fma(-low, n_float.fma(-high, x)), n_float, n

    def exp(self, x: Value, halvings: int = 0) -> Value:
        """e^x / 2^halvings."""
        r, n_float, n = self.reduce_exponent(self._bounded(x, self.exp_range))
        result = self.scaled(self.power(r), n_float, n, halvings)
        return self._or_nothing(x, self.least_power * LN2_ABOVE, result)

    def exp2(self, x: Value) -> Value:
        bounded = self._bounded(x, self.exp2_range)
        n_float, n = self.nearest(bounded, 1.0)
        result = self.scaled(self.power_of_fraction(bounded - n_float), n_float, n)
        return self._or_nothing(x, self.least_power, result)

    @property
    def least_power(self) -> float:
        """2^x rounds to 0 below."""
        return -float(self.bias + self.fraction_bits)

    def is_scaled_at_once(self, x: Value) -> bool:
        """Whether one instruction scales all lanes, or equal parts of them."""
        return self.scale_instruction is not None and x.text.lanes in (16, 32)

    def _bounded(self, x: Value, limits: Range) -> Value:
        """x at most at the upper limit, and at least at the lower one where that makes the power an
        exact 0: the product of a factor 0."""
        low, high = limits
        return x.at_most(high) if self.is_scaled_at_once(x) else x.at_most(high).at_least(low)

    def _or_nothing(self, x: Value, least: float, power: Value) -> Value:
        """A power, 0 below `least`: a mask of the scaling instruction. A power that becomes 0 by
        rounding, as of each -∞ of a mask, takes processors of Intel some hundred cycles."""
        if not self.is_scaled_at_once(x):
            return power
        is_some = x.text.emit("i1", f"fcmp uge {x}, {x.like(least).name}")
        return is_some.select(power, 0.0)

    def exp2m1_inside(self, x: Value) -> Value:
        """2^x − 1 where 2^x is a normal number."""
        n_float, n = self.nearest(x, 1.0)
        r = x - n_float
        scale = self.power_of_two(n)
        return scale.fma(r * r.polynomial(fitted.EXP2[self.element]), scale - 1.0)

    def power_of_fraction(self, r: Value) -> Value:
        """2^r for |r| ≤ ½."""
        return r.fma(r.polynomial(fitted.EXP2[self.element]), 1.0)

    def expm1(self, x: Value) -> Value:
        r, _, n = self.reduce_exponent(_within(x, self.expm1_range))
        less_one = self.less_one(r)
        half = self.power_of_two(n - 1)  # the largest n would overflow
        result = half.fma(less_one, half - 0.5)
        # A tiny x comes back as it is, with the sign of zero.
        return (x.abs() < self.tiny).select(x, result + result)

    def less_one(self, r: Value) -> Value:
        """e^r − 1 for |r| ≤ log 2 / 2."""
        return (r * r).fma(r.polynomial(fitted.EXPM1[self.element]), r)

    def split(self, x: Value) -> tuple[Value, Value]:
        """A positive normal x = (1 + f) · 2ⁿ with √½ ≤ 1 + f < √2: (f, n as an integer)."""
        bits = x.cast("bitcast", self.integer)
        n = (bits - self.sqrt_half_bits) >> self.fraction_bits
        return (bits - (n << self.fraction_bits)).cast("bitcast", self.element) - 1.0, n

    def split_any(self, x: Value) -> tuple[Value, Value]:
        """As `split` with subnormals: (f, n as a float)."""
        small = x < 2.0 ** (1 - self.bias)
        f, n = self.split(small.select(x * 2.0**self.subnormal_shift, x))
        n_float = self.float_of(n)
        return f, small.select(n_float - float(self.subnormal_shift), n_float)

    def log(self, x: Value) -> Value:
        return log_limits(x, self.log_of_ratio(*self.split_any(x)))

    def log2(self, x: Value) -> Value:
        f, n = self.split_any(x)
        logarithm = self.log_of_ratio(f, f.like(0.0))
        high, low = self.log2_e
        return log_limits(x, logarithm.fma(high, logarithm.fma(low, n)))

    def log1p(self, x: Value) -> Value:
        total = x + 1.0
        lost = x - (total - 1.0)  # what the addition rounded away
        f, n = self.split(total)
        f = (lost * 0.5).fma(self.power_of_two(1 - n), f)  # the half keeps the largest n in range
        result = log_limits(total, self.log_of_ratio(f, self.float_of(n)))
        return (x.abs() < self.tiny).select(x, result)

    def sigmoid(self, x: Value) -> Value:
        return 1.0 / (self.exp(-x) + 1.0)

    def sinh(self, x: Value) -> Value:
        half = self.exp(x.abs(), halvings=1)  # finite as long as cosh is
        power = self.expm1(x.abs())
        near = (power + power / (power + 1.0)) * 0.5
        return (x.abs() < 1.0).select(near, half - 0.25 / half).copysign(x)

    def cosh(self, x: Value) -> Value:
        half = self.exp(x.abs(), halvings=1)
        return half + 0.25 / half


def _within(x: Value, limits: Range) -> Value:
    low, high = limits
    return x.at_most(high).at_least(low)


def log_limits(x: Value, result: Value) -> Value:
    """The values of any logarithm at 0, ∞, NaN and below 0."""
    result = (x < math.inf).select(result, x)
    result = (x < 0.0).select(x.like(math.nan), result)
    return x.equals(0.0).select(x.like(-math.inf), result)


# -- f32 -------------------------------------------------------------------------------------------

_VECTOR = "<16 x float>"
_LN2_SINGLE = 0.693359375, -2.12194440054690583e-4


def _power_single(r: Value) -> Value:
    return r.fma(r.polynomial(fitted.EXP["float"]), 1.0)


def _log_of_ratio_single(f: Value, exponent: Value) -> Value:
    high, low = _LN2_SINGLE
    square = f * f
    tail = (square * f) * f.polynomial(fitted.LOG["float"])
    tail = exponent.fma(low, tail)
    tail = square.fma(-0.5, tail)
    return exponent.fma(high, f + tail)


F32 = Format(
    element="float",
    integer="i32",
    bits=32,
    fraction_bits=23,
    sqrt_half_bits=0x3F3504F3,
    subnormal_shift=23,
    log2_e=(1.44269502162933349609375, 1.925963033500e-8),
    ln2=_LN2_SINGLE,
    tiny=1e-30,
    exp_range=(-176.0, 90.0),
    exp2_range=(-254.0, 129.0),
    expm1_range=(-18.0, 89.0),
    power=_power_single,
    log_of_ratio=_log_of_ratio_single,
    scale_instruction=(
        f"call {_VECTOR} @llvm.x86.avx512.mask.scalef.ps.512"
        f"({_VECTOR} {{0}}, {_VECTOR} {{1}}, {_VECTOR} {{0}}, i16 -1, i32 4)"
    ),
)

# -- f64 -------------------------------------------------------------------------------------------

_VECTOR_DOUBLE = "<8 x double>"
LOG2_E, LOG2_E_REST = 1.4426950408889634, 2.0355273740931033e-17
_LN2_DOUBLE = 6.93147180369123816490e-01, 1.90821492927058770002e-10


def _power_double(r: Value) -> Value:
    return F64.less_one(r) + 1.0


def _log_of_ratio_double(f: Value, exponent: Value) -> Value:
    high, low = _LN2_DOUBLE
    s = f / (f + 2.0)
    z = s * s
    half = (f * f) * 0.5
    tail = exponent.fma(low, s * z.fma(z.polynomial(fitted.LOG["double"]), half))
    return exponent.fma(high, f - (half - tail))


F64 = Format(
    element="double",
    integer="i64",
    bits=64,
    fraction_bits=52,
    sqrt_half_bits=0x3FE6A09E667F3BCD,
    subnormal_shift=54,
    log2_e=(LOG2_E, LOG2_E_REST),
    ln2=_LN2_DOUBLE,
    tiny=1e-290,
    exp_range=(-1418.3, 711.0),
    exp2_range=(-2046.0, 1025.0),
    expm1_range=(-40.0, 710.0),
    power=_power_double,
    log_of_ratio=_log_of_ratio_double,
    scale_instruction=(
        f"call {_VECTOR_DOUBLE} @llvm.x86.avx512.mask.scalef.pd.512"
        f"({_VECTOR_DOUBLE} {{0}}, {_VECTOR_DOUBLE} {{1}}, {_VECTOR_DOUBLE} {{0}}, i8 -1, i32 4)"
    ),
)
