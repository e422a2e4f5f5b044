"""Sine, cosine and tangent as LLVM IR text: a fast reduction to 10⁵, an exact one above.

Up to 10⁵ the angle is reduced by π/2 in three f32 parts (Cody and Waite). A vector with a larger
lane takes a cold branch, where each such lane is multiplied with the bits of 2/π that matter
(Payne and Hanek) in 128-bit integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from aotc.aot.targets.cpu import coefficients as fitted
from aotc.aot.targets.cpu.vector_ir import Text, Value, mangled, type_name

FAST_LIMIT = 1e5
# Without these LLVM splits 512-bit vectors.
WIDE = '"min-legal-vector-width"="512" "prefer-vector-width"="512"'
ROUNDING, ROUNDING_BITS = 12582912.0, 0x4B400000
HALF_PI = (1.57079637050628662109375, -4.37113900018624283e-8, -1.71512449e-15)
# ⌊2/π · 2²⁰⁰⌋
TWO_OVER_PI_BITS = 200
TWO_OVER_PI = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE


def _from_quadrant(r: Value, quadrant: Value) -> tuple[Value, Value]:
    """(sine, cosine) of r + quadrant · π/2 for |r| ≤ π/4."""
    square = r * r
    sine = (square * r).fma(square.polynomial(fitted.SIN), r)
    cosine = (square * square).fma(square.polynomial(fitted.COS), square.fma(-0.5, 1.0))
    odd = (quadrant & 1).equals(1)
    first, second = odd.select(cosine, sine), odd.select(sine, cosine)
    return _negate_if_bit(first, quadrant), _negate_if_bit(second, quadrant + 1)


def _negate_if_bit(x: Value, quadrant: Value) -> Value:
    """−x where bit 1 of the quadrant is set."""
    sign = (quadrant & 2) << 30
    return (x.cast("bitcast", "i32") ^ sign).cast("bitcast", "float")


def _reduce(x: Value) -> tuple[Value, Value]:
    """x = r + n · π/2 for |x| ≤ 10⁵: (r, n as i32)."""
    shifted = x.fma(2 / math.pi, ROUNDING)
    n = shifted - ROUNDING
    r = x
    for part in HALF_PI:
        r = n.fma(-part, r)
    return r, shifted.cast("bitcast", "i32") - ROUNDING_BITS


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


def _sine(r: Value, quadrant: Value) -> Value:
    return _from_quadrant(r, quadrant)[0]


def _cosine(r: Value, quadrant: Value) -> Value:
    return _from_quadrant(r, quadrant)[1]


def _tangent(r: Value, quadrant: Value) -> Value:
    sine, cosine = _from_quadrant(r, quadrant)
    return sine / cosine


Reduction = Callable[[Value], tuple[Value, Value]]
Finish = Callable[[Value, Value], Value]


def function(
    name: str, reduce: Reduction, finish: Finish, limit: float
) -> Callable[[Value], Value]:
    """Builder of a function whose lanes above `limit` are left to its cold form."""

    def build(x: Value) -> Value:
        fast = finish(*reduce(x))
        large = x.abs() > limit
        return x.text.rarely(large, fast, f"aotc.{name}.large.{_mangled(x)}", x)

    return build


def _mangled(x: Value) -> str:
    return mangled(x.element, x.text.lanes)


def cold_form(name: str, element: str, reduce: Reduction, finish: Finish) -> Callable[[int], str]:
    """Definitions of `aotc.<name>.large` by lanes: each lane reduced exactly."""

    def cold(lanes: int) -> str:
        text = Text(1)
        x = Value(text, "%x", element)
        result = finish(*reduce(x))
        result = (x.abs() < math.inf).select(result, x - x)
        lines = [*text.lines, f"  ret {result}"]
        scalar = _define(f"aotc.{name}.large", element, 1, lines)
        return scalar if lanes == 1 else f"{scalar}\n\n{_each_lane(name, element, lanes)}"

    return cold


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


FINISHES: dict[str, Finish] = {"sin": _sine, "cos": _cosine, "tan": _tangent}
BUILDS = {name: function(name, _reduce, finish, FAST_LIMIT) for name, finish in FINISHES.items()}
COLD = {
    name: cold_form(name, "float", _reduce_exactly, finish) for name, finish in FINISHES.items()
}
