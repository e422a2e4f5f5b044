"""f32 sine, cosine and tangent: reduced fast to 10⁵, above in 128-bit integers."""

from __future__ import annotations

import math

from aotc.aot.targets.cpu import coefficients as fitted
from aotc.aot.targets.cpu.angle import Angles
from aotc.aot.targets.cpu.vector_ir import Value

NOTE = "a slower exact reduction above 10⁵"
# ⌊2/π · 2²⁰⁰⌋
TWO_OVER_PI_BITS = 200
TWO_OVER_PI = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE


def _near(r: Value) -> tuple[Value, Value]:
    """(sine, cosine) for |r| ≤ π/4."""
    square = r * r
    sine = (square * r).fma(square.polynomial(fitted.SIN), r)
    cosine = (square * square).fma(square.polynomial(fitted.COS), square.fma(-0.5, 1.0))
    return sine, cosine


def _reduce_exactly(x: Value) -> tuple[Value, Value]:
    """x = r + n · π/2 of one finite float above 10⁵: (r, n as i32).

    With x = m · 2^e, m an integer of 24 bits, 96 bits of 2/π are enough: those of weight 4 and
    more times m are whole turns, and 70 bits of fraction remain below.
    """
    bits = x.cast("bitcast", "i32")
    exponent = (bits.logical_right(23) & 0xFF) - 150
    mantissa = ((bits & 0x7FFFFF) | 0x800000).cast("zext", "i128")
    shift = (TWO_OVER_PI_BITS - 94) - exponent
    everything = x.text.splat(TWO_OVER_PI, "i256")
    window = everything.logical_right(shift.cast("zext", "i256")).cast("trunc", "i128")
    turns = (mantissa * window) << 32  # two bits of quadrant above the fraction
    quadrant = (turns + (1 << 125)).logical_right(126)
    fraction = (turns - (quadrant << 126)).logical_right(64).cast("trunc", "i64")
    r = fraction.cast("sitofp", "double") * (math.pi / 2 * 2.0**-62)
    r32, n = r.cast("fptrunc", "float"), quadrant.cast("trunc", "i32")
    negative = bits < 0
    return negative.select(-r32, r32), negative.select(0 - n, n)


ANGLES = Angles(
    element="float",
    integer="i32",
    sign_bit=31,
    limit=1e5,
    rounding=12582912.0,
    rounding_bits=0x4B400000,
    half_pi=(1.57079637050628662109375, -4.37113900018624283e-8, -1.71512449e-15),
    near=_near,
    exactly=_reduce_exactly,
)
