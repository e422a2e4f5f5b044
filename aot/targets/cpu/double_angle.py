"""f64 sine, cosine and tangent as LLVM IR text: a fast reduction to 2³⁰, an exact one above.

As `angle.py`: Cody and Waite's reduction by π/2 in three parts, whose first product is exact by the
fused multiply-add, and Payne and Hanek's with as many bits of 2/π as f64 has exponents.
"""

from __future__ import annotations

import math

from aotc.aot.targets.cpu import double_coefficients as fitted
from aotc.aot.targets.cpu.angle import Finish, cold_form, function
from aotc.aot.targets.cpu.vector_ir import Value

NOTE = "a slower exact reduction above 2³⁰"
FAST_LIMIT = 2.0**30
ROUNDING, ROUNDING_BITS = 6755399441055744.0, 0x4338000000000000
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
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


def _from_quadrant(r: Value, quadrant: Value) -> tuple[Value, Value]:
    """(sine, cosine) of r + quadrant · π/2 for |r| ≤ π/4."""
    square = r * r
    sine = (square * r).fma(square.polynomial(fitted.SIN), r)
    half = square * 0.5
    whole = 1.0 - half
    lost = (1.0 - whole) - half
    cosine = whole + (square * square).fma(square.polynomial(fitted.COS), lost)
    odd = (quadrant & 1).equals(1)
    first, second = odd.select(cosine, sine), odd.select(sine, cosine)
    return _negate_if_bit(first, quadrant), _negate_if_bit(second, quadrant + 1)


def _negate_if_bit(x: Value, quadrant: Value) -> Value:
    """−x where bit 1 of the quadrant is set."""
    sign = (quadrant & 2) << 62
    return (x.cast("bitcast", "i64") ^ sign).cast("bitcast", "double")


def _reduce(x: Value) -> tuple[Value, Value]:
    """x = r + n · π/2 for |x| ≤ 2³⁰: (r, n as i64)."""
    shifted = x.fma(2 / math.pi, ROUNDING)
    n = shifted - ROUNDING
    r = x
    for part in HALF_PI:
        r = n.fma(-part, r)
    return r, shifted.cast("bitcast", "i64") - ROUNDING_BITS


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


def _sine(r: Value, quadrant: Value) -> Value:
    return _from_quadrant(r, quadrant)[0]


def _cosine(r: Value, quadrant: Value) -> Value:
    return _from_quadrant(r, quadrant)[1]


def _tangent(r: Value, quadrant: Value) -> Value:
    sine, cosine = _from_quadrant(r, quadrant)
    return sine / cosine


FINISHES: dict[str, Finish] = {"sin": _sine, "cos": _cosine, "tan": _tangent}
BUILDS = {name: function(name, _reduce, finish, FAST_LIMIT) for name, finish in FINISHES.items()}
COLD = {
    name: cold_form(name, "double", _reduce_exactly, finish) for name, finish in FINISHES.items()
}
