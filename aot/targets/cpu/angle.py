"""Sine, cosine and tangent of any element type as LLVM IR text: a fast reduction, an exact one.

Up to a limit the angle is reduced by π/2 in parts of the element type (Cody and Waite). A vector
with a larger lane takes a cold branch, where each such lane is multiplied with the bits of 2/π that
matter (Payne and Hanek). `single_angle.py` and `double_angle.py` have the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from aotc.aot.targets.cpu.vector_ir import Text, Value, mangled, type_name

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
