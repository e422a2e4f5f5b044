"""Integers as linear forms: `sum(coefficient * atom) + constant + stride * lane`."""

from __future__ import annotations

import math
import re
import struct
from typing import NamedTuple, TypeAlias

from aotc.aot.targets.cpu.writer import Operand, constant


class EightBits(NamedTuple):
    """A float of 8 bits: a sign, an exponent and `mantissa` bits of a fraction."""

    mantissa: int
    bias: int
    largest: int
    """The bits of the largest number."""
    nan: int
    has_infinity: bool = False

    @property
    def has_negative_zero(self) -> bool:
        return self.nan != 0x80

    def decoded(self, bits: int) -> float:
        """The number of 8 bits."""
        sign, size = -1.0 if bits & 0x80 else 1.0, bits & 0x7F
        if self.has_infinity and size == 0x7C:
            return sign * math.inf
        if bits == self.nan or (self.has_negative_zero and size > self.largest):
            return math.nan
        exponent, fraction = size >> self.mantissa, size & ((1 << self.mantissa) - 1)
        whole = fraction / (1 << self.mantissa) + (exponent > 0)
        return sign * whole * 2.0 ** (max(1, exponent) - self.bias)

    def encoded(self, value: float) -> int:
        """The nearest number's bits, the even one of two, the largest beyond it."""
        if value != value:
            return self.nan
        size, best = abs(value), 0
        for bits in range(self.largest + 1):
            near, far = abs(self.decoded(bits) - size), abs(self.decoded(best) - size)
            if near < far or (near == far and bits % 2 == 0):
                best = bits
        if not best and not self.has_negative_zero:
            return 0
        return best | (0x80 if math.copysign(1.0, value) < 0 else 0)


EIGHT_BITS = {
    "f8E5M2": EightBits(2, 15, 0x7B, 0x7F, has_infinity=True),
    "f8E4M3FN": EightBits(3, 7, 0x7E, 0x7F),
    "f8E5M2FNUZ": EightBits(2, 16, 0x7F, 0x80),
    "f8E4M3FNUZ": EightBits(3, 8, 0x7F, 0x80),
}

LLVM_TYPES = {
    "f64": "double", "f32": "float", "f16": "half", "bf16": "i16",
    "i64": "i64", "i32": "i32", "i16": "i16", "i8": "i8", "i1": "i1", "ptr": "ptr",
    **dict.fromkeys(EIGHT_BITS, "i8"),
}  # fmt: skip
"""LLVM type of a Triton element type; bf16 and the 8-bit floats travel as their bits."""


def float_constant(value: float, kind: str) -> Operand:
    """A float literal; LLVM writes f32 as the bits of the equal f64."""
    if kind in EIGHT_BITS:
        return constant(EIGHT_BITS[kind].encoded(value), "i8")
    if kind == "bf16":
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 if value == value else 0x7FC0
        return constant(rounded & 0xFFFF, "i16")
    if kind == "f16":
        return constant(f"0xH{struct.unpack('<H', _packed('<e', value))[0]:04X}", "half")
    if kind == "f32":
        value = struct.unpack("<f", _packed("<f", value))[0]
    return constant(f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}", LLVM_TYPES[kind])


def _packed(code: str, value: float) -> bytes:
    """A float in a shorter format, infinite where it is too large for it."""
    try:
        return struct.pack(code, value)
    except OverflowError:
        return struct.pack(code, math.copysign(math.inf, value))


def is_vector(operand: Operand) -> bool:
    return operand.type.startswith("<")


def is_literal(operand: Operand) -> bool:
    return not operand.text.startswith(("%", "@"))


def scalar_type(kind: str) -> str:
    """`<16 x float>` → `float`."""
    return kind[kind.index(" x ") + 3 : -1] if kind.startswith("<") else kind


_LITERAL_LANE = re.compile(r"i\d+ (-?\d+|true|false)")
_TRUTHS = {"false": 0, "true": 1}
DIVISIONS = frozenset({"sdiv", "udiv", "srem", "urem"})


def number(operand: Operand) -> int:
    """The value of a scalar integer literal as it is written; `true` is 1."""
    if operand.text in ("true", "false"):
        return int(operand.text == "true")
    return int(operand.text)


def literal_lanes(operand: Operand) -> tuple[int, ...] | None:
    """The integers of a vector that is a literal; booleans as 0 and 1."""
    if not is_vector(operand) or not is_literal(operand):
        return None
    found = _LITERAL_LANE.findall(operand.text)
    return tuple(_TRUTHS[each] if each in _TRUTHS else int(each) for each in found) or None


def literal_cast(name: str, operand: Operand, kind: str) -> Operand:
    """`sext`, `zext` or `trunc` of a scalar literal; a bool is -1 or 1 in a wider type."""
    bits = int(operand.type[1:])
    value = number(operand) & ((1 << bits) - 1)
    if name == "sext" and value >> (bits - 1):
        value -= 1 << bits
    value = wrap(value, kind)
    return constant(("false", "true")[value] if kind == "i1" else value, kind)


def is_harmless_divisor(operand: Operand) -> bool:
    """Whether a divisor is a literal by which no number's division traps: neither 0 nor -1."""
    if not is_literal(operand):
        return False
    kind = scalar_type(operand.type)
    found = [int(x) for x in _LITERAL_LANE.findall(operand.text)] or [number(operand)]
    return not {wrap(x, kind) for x in found} & {0, -1}


def wrap(value: int, kind: str) -> int:
    """`value` as a signed integer of type `kind`."""
    bits = int(kind[1:])
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) and bits > 1 else value


class Atom(NamedTuple):
    """An opaque integer in a linear form."""

    operand: Operand
    multiple: int = 1
    """The value is a multiple of this."""
    natural: bool = False
    """The value is known to be ≥ 0."""
    most: int | None = None
    """The largest value of a natural atom; None: an index (program id, loop counter), moderate."""
    source: Operand | None = None
    """What the operand is the sign extension of, if it is one."""

    @property
    def origin(self) -> Operand:
        """The operand before any sign extension."""
        return self.source or self.operand


class Linear(NamedTuple):
    """`sum(coefficient * atom) + constant`."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    @property
    def is_constant(self) -> bool:
        return not self.terms

    @property
    def multiple(self) -> int:
        """Largest known divisor; 0 stands for the value zero."""
        return math.gcd(self.constant, *(atom.multiple * c for atom, c in self.terms))

    @property
    def is_vector(self) -> bool:
        return any(a.operand.type.startswith("<") for a, _ in self.terms)

    def coefficient(self, operand: Operand) -> int:
        """What `operand`, or its sign extension, is multiplied by; 0 where it does not occur."""
        return sum(c for atom, c in self.terms if atom.origin == operand)

    def plus(self, other: Linear, sign: int = 1) -> Linear:
        sums: dict[Atom, int] = dict(self.terms)
        for atom, coefficient in other.terms:
            sums[atom] = sums.get(atom, 0) + sign * coefficient
        terms = tuple((a, c) for a, c in sums.items() if c)
        return Linear(terms, self.constant + sign * other.constant)

    def times(self, factor: int) -> Linear:
        if factor == 0:
            return Linear()
        return Linear(tuple((a, c * factor) for a, c in self.terms), self.constant * factor)


class Int(NamedTuple):
    """An integer of type `kind`: `base + stride * lane`, modulo 2 to the bits of the type."""

    kind: str
    base: Linear
    stride: Linear = Linear()

    @property
    def cannot_wrap(self) -> bool:
        """Whether the form is the value itself, not only modulo 2 to the bits of its type.

        Data wraps around, so its atoms count with their largest values. Indices are taken not to:
        program ids and loop counters times less than 2^(bits - 8), which strides of memory are.
        """
        bits, total = int(self.kind[1:]), abs(self.base.constant) + abs(self.stride.constant) * 64
        is_atom = len(self.base.terms) == 1 and self.base.terms[0][1] == 1
        if is_atom and self.stride == Linear() and not self.base.constant:
            return True
        has_index = False
        for atom, coefficient in (*self.base.terms, *self.stride.terms):
            if not atom.natural:
                return False
            if atom.most is None:
                has_index = True
                if abs(coefficient) >> (bits - 8):
                    return False
            else:
                total += abs(coefficient) * atom.most
        return not total >> (bits - 2 if has_index else bits - 1)

    @property
    def natural(self) -> bool:
        """The value is known to be ≥ 0."""
        return self.cannot_wrap and all(
            x.constant >= 0 and all(atom.natural and c >= 0 for atom, c in x.terms)
            for x in (self.base, self.stride)
        )

    @property
    def most(self) -> int | None:
        """The largest value of a natural form of one lane, if it is known."""
        known = [atom.most for atom, _ in self.base.terms]
        if self.stride != Linear() or not self.natural or None in known:
            return None
        return self.base.constant + sum(c * (atom.most or 0) for atom, c in self.base.terms)

    @property
    def is_uniform(self) -> bool:
        return self.stride == Linear() and not self.base.is_vector

    @property
    def constant(self) -> int | None:
        if self.stride == Linear() and self.base.is_constant:
            return self.base.constant
        return None


class Pointer(NamedTuple):
    """`base + offset` elements of type `element`; the offset may differ from lane to lane."""

    base: Operand
    offset: Int
    element: str
    narrow: Int | None = None
    """The offset in 32 bits, where it is the extension of that."""

    def at(self, offset: Int) -> Pointer:
        """The pointer with another offset."""
        return self._replace(offset=offset, narrow=None)


Lane: TypeAlias = Int | Operand | Pointer


def integer(value: int, kind: str = "i32") -> Int:
    return Int(kind, Linear((), wrap(value, kind)))


def reduced(a: Int) -> Int:
    """Constants within the type's range, so that they can be compared and widened."""
    base = a.base._replace(constant=wrap(a.base.constant, a.kind))
    return Int(a.kind, base, a.stride)
