"""f64 sine, cosine and tangent: reduced fast to 2³⁰, above with as many bits of 2/π as f64 has
exponents. The first product of the fast reduction is exact by the fused multiply-add."""

from __future__ import annotations

import math

from aotc.aot.targets.cpu import double_coefficients as fitted
from aotc.aot.targets.cpu.angle import Angles
from aotc.aot.targets.cpu.vector_ir import Value

NOTE = "a slower exact reduction above 2³⁰"
# ⌊2/π · 2¹²¹⁶⌋
TWO_OVER_PI_BITS = 1216
TWO_OVER_PI = int(
    "A2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424D"
    "D2E006492EEA09D1921CFE1DEB1CB129A73EE88235F52EBB4484E99C7026B45F7E413991D639"
    "835339F49C845F8BBDF9283B1FF897FFDE05980FEF2F118B5A0A6D1F6D367ECF27CB09B74F46"
    "3F669E5FEA2D7527BAC7EBE5F17B3D0739F78A5292EA6BFB5FB11F8D5D0856033046FC7B6BAB",
    16,
)
FRACTION_BITS = 190  # of an angle in quadrants; two more hold the quadrant


def _near(r: Value) -> tuple[Value, Value]:
    """(sine, cosine) for |r| ≤ π/4."""
    square = r * r
    sine = (square * r).fma(square.polynomial(fitted.SIN), r)
    half = square * 0.5
    whole = 1.0 - half
    lost = (1.0 - whole) - half
    return sine, whole + (square * square).fma(square.polynomial(fitted.COS), lost)


def _reduce_exactly(x: Value) -> tuple[Value, Value]:
    """x = r + n · π/2 of one finite f64 above 2³⁰: (r, n as i64).

    With x = m · 2^e, m an integer of 53 bits, 192 bits of 2/π are enough: those of weight 4 and
    more times m are whole turns, and what is left out is below 2⁻¹³⁷ of a quadrant.
    """
    bits = x.cast("bitcast", "i64")
    exponent = (bits.logical_right(52) & 0x7FF) - 1075
    mantissa = ((bits & (2**52 - 1)) | 2**52).cast("zext", "i192")
    shift = (TWO_OVER_PI_BITS - FRACTION_BITS) - exponent
    everything = x.text.splat(TWO_OVER_PI, "i1216")
    window = everything.logical_right(shift.cast("zext", "i1216")).cast("trunc", "i192")
    turns = mantissa * window
    quadrant = (turns + (1 << (FRACTION_BITS - 1))).logical_right(FRACTION_BITS)
    fraction = turns - (quadrant << FRACTION_BITS)
    high = fraction.logical_right(128).cast("trunc", "i64").cast("sitofp", "double")
    low = fraction.logical_right(64).cast("trunc", "i64").cast("uitofp", "double")
    # Units of 2⁻⁶² and 2⁻¹²⁶ of a quadrant: the low part counts near the axes.
    part = (high * 2.0**-62) + (low * 2.0**-126)
    r, n = part * (math.pi / 2), quadrant.cast("trunc", "i64")
    negative = bits < 0
    return negative.select(-r, r), negative.select(0 - n, n)


ANGLES = Angles(
    element="double",
    integer="i64",
    sign_bit=63,
    limit=2.0**30,
    rounding=6755399441055744.0,
    rounding_bits=0x4338000000000000,
    half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
    near=_near,
    exactly=_reduce_exactly,
)
