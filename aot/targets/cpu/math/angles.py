"""Sine, cosine and tangent of f32 and f64 as LLVM IR text: a fast reduction, an exact one.

Up to a limit the angle is reduced by π/2 in parts of the element type (Cody and Waite). A vector
with a larger lane takes a cold branch, where each such lane is multiplied with the bits of 2/π that
matter (M. Payne, R. Hanek, SIGNUM Newsletter 18, 1983).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from aotc.aot.targets.cpu.math import coefficients as fitted
from aotc.aot.targets.cpu.math.vector_ir import Text, Value, mangled, type_name

# Without these LLVM splits 512-bit vectors.
WIDE = '"min-legal-vector-width"="512" "prefer-vector-width"="512"'
# Of (sine, cosine).
FINISHES: dict[str, Callable[[Value, Value], Value]] = {
    "sin": lambda sine, cosine: sine,
    "cos": lambda sine, cosine: cosine,
    "tan": lambda sine, cosine: sine / cosine,
}


@dataclass(frozen=True, slots=True)
class Angles:
    """The functions of one element type.

    near: (sine, cosine) for |r| ≤ π/4; exactly: x = r + n · π/2 of one finite x above the limit.
    """

    element: str
    integer: str  # of as many bits
    sign_bit: int
    limit: float  # of the fast reduction
    rounding: float  # adding it leaves the rounded integer in the low bits
    rounding_bits: int
    half_pi: tuple[float, ...]
    near: Callable[[Value], tuple[Value, Value]]
    exactly: Callable[[Value], tuple[Value, Value]]
    note: str

    def build(self, name: str) -> Callable[[Value], Value]:
        """Builder of a function whose lanes above the limit are left to its cold form."""

        def build(x: Value) -> Value:
            fast = self._finished(name, *self._reduce(x))
            if name != "cos":  # the reduction loses the sign of a zero
                fast = x.equals(0.0).select(x, fast)
            large = x.abs() > self.limit
            return x.text.rarely(large, fast, f"aotc.{name}.large.{_mangled(x)}", x)

        return build

    def cold(self, name: str) -> Callable[[int], tuple[str, ...]]:
        """Definitions of `aotc.<name>.large` by lanes: each lane reduced exactly."""

        def cold(lanes: int) -> tuple[str, ...]:
            text = Text(1)
            x = Value(text, "%x", self.element)
            result = self._finished(name, *self.exactly(x))
            result = (x.abs() < math.inf).select(result, x - x)
            lines = [*text.lines, f"  ret {result}"]
            scalar = _define(f"aotc.{name}.large", self.element, 1, lines)
            return (scalar,) if lanes == 1 else (scalar, _each_lane(name, self.element, lanes))

        return cold

    def _reduce(self, x: Value) -> tuple[Value, Value]:
        """x = r + n · π/2 up to the limit: (r, n as an integer)."""
        shifted = x.fma(2 / math.pi, self.rounding)
        n = shifted - self.rounding
        r = x
        for part in self.half_pi:
            r = n.fma(-part, r)
        return r, shifted.cast("bitcast", self.integer) - self.rounding_bits

    def _finished(self, name: str, r: Value, quadrant: Value) -> Value:
        """The function of r + quadrant · π/2 for |r| ≤ π/4."""
        sine, cosine = self.near(r)
        odd = (quadrant & 1).equals(1)
        first, second = odd.select(cosine, sine), odd.select(sine, cosine)
        signed = self._negate_if_bit(first, quadrant), self._negate_if_bit(second, quadrant + 1)
        return FINISHES[name](*signed)

    def signed(self, sine: Value, cosine: Value, quadrant: Value) -> Value:
        """The sine of r + quadrant · π/2, of those of r."""
        odd = (quadrant & 1).equals(1)
        return self._negate_if_bit(odd.select(cosine, sine), quadrant)

    def _negate_if_bit(self, x: Value, quadrant: Value) -> Value:
        """−x where bit 1 of the quadrant is set."""
        sign = (quadrant & 2) << (self.sign_bit - 1)
        return (x.cast("bitcast", self.integer) ^ sign).cast("bitcast", self.element)


def _mangled(x: Value) -> str:
    return mangled(x.element, x.text.lanes)


def _each_lane(name: str, element: str, lanes: int) -> str:
    """The vector form of the cold function: the scalar one, lane by lane."""
    vector, before = type_name(element, lanes), "poison"
    scalar = f"@aotc.{name}.large.{mangled(element, 1)}"
    lines = []
    for lane in range(lanes):
        lines += [
            f"  %a{lane} = extractelement {vector} %x, i32 {lane}",
            f"  %b{lane} = call {element} {scalar}({element} %a{lane})",
            f"  %c{lane} = insertelement {vector} {before}, {element} %b{lane}, i32 {lane}",
        ]
        before = f"%c{lane}"
    return _define(f"aotc.{name}.large", element, lanes, [*lines, f"  ret {vector} {before}"])


def _define(name: str, element: str, lanes: int, lines: list[str]) -> str:
    vector = type_name(element, lanes)
    head = f"define internal {vector} @{name}.{mangled(element, lanes)}({vector} %x)"
    return "\n".join([f"{head} noinline cold nounwind {WIDE} {{", *lines, "}"])


# ⌊2/π · 2¹²¹⁶⌋
TWO_OVER_PI_BITS = 1216
TWO_OVER_PI = int(
    "A2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424D"
    "D2E006492EEA09D1921CFE1DEB1CB129A73EE88235F52EBB4484E99C7026B45F7E413991D639"
    "835339F49C845F8BBDF9283B1FF897FFDE05980FEF2F118B5A0A6D1F6D367ECF27CB09B74F46"
    "3F669E5FEA2D7527BAC7EBE5F17B3D0739F78A5292EA6BFB5FB11F8D5D0856033046FC7B6BAB",
    16,
)
SHORT_BITS = 200  # of them, as many as f32 needs


def _near_of_singles(r: Value) -> tuple[Value, Value]:
    """(sine, cosine) for |r| ≤ π/4."""
    square = r * r
    sine = (square * r).fma(square.polynomial(fitted.SIN["float"]), r)
    cosine = (square * square).fma(square.polynomial(fitted.COS["float"]), square.fma(-0.5, 1.0))
    return sine, cosine


def _reduce_singles(x: Value) -> tuple[Value, Value]:
    """x = r + n · π/2 of one finite float above 10⁵: (r, n as i32).

    With x = m · 2^e, m an integer of 24 bits, 96 bits of 2/π are enough: those of weight 4 and
    more times m are whole turns, and 70 bits of fraction remain below.
    """
    bits = x.cast("bitcast", "i32")
    exponent = (bits.logical_right(23) & 0xFF) - 150
    mantissa = ((bits & 0x7FFFFF) | 0x800000).cast("zext", "i128")
    shift = (SHORT_BITS - 94) - exponent
    everything = x.text.splat(TWO_OVER_PI >> (TWO_OVER_PI_BITS - SHORT_BITS), "i256")
    window = everything.logical_right(shift.cast("zext", "i256")).cast("trunc", "i128")
    turns = (mantissa * window) << 32  # two bits of quadrant above the fraction
    quadrant = (turns + (1 << 125)).logical_right(126)
    fraction = (turns - (quadrant << 126)).logical_right(64).cast("trunc", "i64")
    r = fraction.cast("sitofp", "double") * (math.pi / 2 * 2.0**-62)
    r32, n = r.cast("fptrunc", "float"), quadrant.cast("trunc", "i32")
    negative = bits < 0
    return negative.select(-r32, r32), negative.select(0 - n, n)


SINGLES = Angles(
    element="float",
    integer="i32",
    sign_bit=31,
    limit=1e5,
    rounding=12582912.0,
    rounding_bits=0x4B400000,
    half_pi=(1.57079637050628662109375, -4.37113900018624283e-8, -1.71512449e-15),
    near=_near_of_singles,
    exactly=_reduce_singles,
    note="a slower exact reduction above 10⁵",
)

QUADRANT_FRACTION_BITS = 190  # of an angle in quadrants; two more hold the quadrant


def _near_of_doubles(r: Value) -> tuple[Value, Value]:
    """(sine, cosine) for |r| ≤ π/4."""
    square = r * r
    sine = (square * r).fma(square.polynomial(fitted.SIN["double"]), r)
    half = square * 0.5
    whole = 1.0 - half
    lost = (1.0 - whole) - half
    return sine, whole + (square * square).fma(square.polynomial(fitted.COS["double"]), lost)


def _reduce_doubles(x: Value) -> tuple[Value, Value]:
    """x = r + n · π/2 of one finite f64 above 2³⁰: (r, n as i64).

    With x = m · 2^e, m an integer of 53 bits, 192 bits of 2/π are enough: those of weight 4 and
    more times m are whole turns, and what is left out is below 2⁻¹³⁷ of a quadrant.
    """
    bits = x.cast("bitcast", "i64")
    exponent = (bits.logical_right(52) & 0x7FF) - 1075
    mantissa = ((bits & (2**52 - 1)) | 2**52).cast("zext", "i192")
    shift = (TWO_OVER_PI_BITS - QUADRANT_FRACTION_BITS) - exponent
    everything = x.text.splat(TWO_OVER_PI, "i1216")
    window = everything.logical_right(shift.cast("zext", "i1216")).cast("trunc", "i192")
    turns = mantissa * window
    quadrant = (turns + (1 << (QUADRANT_FRACTION_BITS - 1))).logical_right(QUADRANT_FRACTION_BITS)
    fraction = turns - (quadrant << QUADRANT_FRACTION_BITS)
    high = fraction.logical_right(128).cast("trunc", "i64").cast("sitofp", "double")
    low = fraction.logical_right(64).cast("trunc", "i64").cast("uitofp", "double")
    # Units of 2⁻⁶² and 2⁻¹²⁶ of a quadrant: the low part counts near the axes.
    part = (high * 2.0**-62) + (low * 2.0**-126)
    r, n = part * (math.pi / 2), quadrant.cast("trunc", "i64")
    negative = bits < 0
    return negative.select(-r, r), negative.select(0 - n, n)


DOUBLES = Angles(
    element="double",
    integer="i64",
    sign_bit=63,
    limit=2.0**30,
    rounding=6755399441055744.0,
    rounding_bits=0x4338000000000000,
    half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
    near=_near_of_doubles,
    exactly=_reduce_doubles,
    note="a slower exact reduction above 2³⁰",
)
