"""8-bit floats as bits and as numbers: what their formats are in arithmetic on f32 and i32."""

from __future__ import annotations

from dataclasses import dataclass

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of 8-bit float: a sign, `exponent_bits`, `mantissa_bits`."""

    exponent_bits: int
    mantissa_bits: int
    largest: float
    has_infinity: bool

    @property
    def bias(self) -> int:
        """What an exponent's bits are more than the exponent."""
        return (1 << (self.exponent_bits - 1)) - 1


E4M3 = Format(4, 3, 448.0, False)
E5M2 = Format(5, 2, 57344.0, True)


def widened(bits: Node, kind: Format) -> Node:
    """The f32 numbers of bits u8: their exponent and mantissa at f32's places, times a power of 2.

    f32 has all of them, those below the smallest normal one too, as numbers below its own.
    """
    whole = build.cast(bits, "i32")
    shift = 23 - kind.mantissa_bits
    sign = build.pointwise("shift_left", build.pointwise("bitwise_and", whole, 128), 24)
    size = build.pointwise("bitwise_and", whole, 127)
    placed = build.pointwise("bitwise_or", sign, build.pointwise("shift_left", size, shift))
    found = build.scale(make("bitcast", (placed,), {"dtype": "f32"}), 2.0 ** (127 - kind.bias))
    if not kind.has_infinity:
        return build.where(build.equal(size, 127), float("nan"), found)
    above = 31 << kind.mantissa_bits
    wild = build.where(build.equal(size, above), build.scalar(float("inf"), "f32"), _nan())
    signed = build.where(build.pointwise("lt", sign, 0), wild * -1.0, wild)
    return build.where(build.pointwise("ge", size, above), signed, found)


def rounded(data: Node, kind: Format, saturates: bool) -> Node:
    """f32 numbers as the nearest ones of a format, even ones of two.

    `saturates`: what lies beyond a format without infinities is its end, not NaN.


    x + m - m with m of the exponent of x and as many bits more as f32 has more than the format.
    """
    bits = make("bitcast", (data,), {"dtype": "i32"})
    smallest = 127 + 1 - kind.bias  # the exponent's bits, in f32, of the smallest normal number
    exponent = build.pointwise("bitwise_and", bits, 0x7F800000)
    least = build.maximum(exponent, smallest << 23)
    # 1.5 · 2^e: both signs of x keep its exponent.
    offset = build.pointwise("add", least, ((23 - kind.mantissa_bits) << 23) + (1 << 22))
    magic = make("bitcast", (build.minimum(offset, 0x7F000000),), {"dtype": "f32"})
    near = build.pointwise("sub", build.pointwise("add", data, magic), magic)
    signed = make(
        "bitcast",
        (
            build.pointwise(
                "bitwise_or",
                build.pointwise(
                    "bitwise_and", make("bitcast", (near,), {"dtype": "i32"}), 0x7FFFFFFF
                ),
                build.pointwise("bitwise_and", bits, -0x80000000),
            ),
        ),
        {"dtype": "f32"},
    )
    if kind.has_infinity:
        beyond = build.pointwise("gt", build.unary("abs", signed), kind.largest)
        return build.where(beyond, data * float("inf"), signed)
    if saturates:
        return build.maximum(build.minimum(signed, kind.largest), -kind.largest)
    beyond = build.pointwise("gt", build.unary("abs", signed), kind.largest)
    return build.where(beyond, float("nan"), signed)


def _nan() -> Node:
    return build.scalar(float("nan"), "f32")


def bits_of(data: Node, kind: Format) -> Node:
    """The bits, u8, of f32 numbers that the format has; all of a NaN's are set."""
    small = build.scale(data, 2.0 ** (kind.bias - 127))
    whole = make("bitcast", (small,), {"dtype": "i32"})
    size = build.pointwise(
        "shift_right", build.pointwise("bitwise_and", whole, 0x7FFFFFFF), 23 - kind.mantissa_bits
    )
    above = (
        1 << (7 - kind.mantissa_bits)
    ) - 1 << kind.mantissa_bits  # infinity, where there is one
    size = build.minimum(size, above if kind.has_infinity else 127)
    size = build.where(build.equal(data, data), size, 127)
    sign = build.pointwise("bitwise_and", build.pointwise("shift_right", whole, 24), 128)
    return build.cast(build.pointwise("bitwise_or", size, sign), "u8")
