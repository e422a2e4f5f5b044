"""Literals and types of LLVM operands: how they are written, and what integers in them are."""

from __future__ import annotations

import math
import re
import struct

from aotc.aot.targets.cpu.writer import Operand, constant

LLVM_TYPES = {
    "f64": "double", "f32": "float", "f16": "half", "bf16": "i16",
    "i64": "i64", "i32": "i32", "i16": "i16", "i8": "i8", "i1": "i1", "ptr": "ptr",
}  # fmt: skip
"""LLVM type of a Triton element type; bf16 travels as its bits."""


def float_constant(value: float, kind: str) -> Operand:
    """A float literal; LLVM writes f32 as the bits of the equal f64."""
    if kind == "bf16":
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 if value == value else 0x7FC0
        return constant(rounded & 0xFFFF, "i16")
    if kind == "f16":
        return constant(f"0xH{struct.unpack('<H', _half(value))[0]:04X}", "half")
    if kind == "f32":
        value = struct.unpack("<f", _single(value))[0]
    return constant(f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}", LLVM_TYPES[kind])


def _half(value: float) -> bytes:
    try:
        return struct.pack("<e", value)
    except OverflowError:
        return struct.pack("<e", math.copysign(math.inf, value))


def _single(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def is_vector(operand: Operand) -> bool:
    return operand.type.startswith("<")


def is_literal(operand: Operand) -> bool:
    return not operand.text.startswith(("%", "@"))


def scalar_type(kind: str) -> str:
    """`<16 x float>` → `float`."""
    return kind[kind.index(" x ") + 3 : -1] if kind.startswith("<") else kind


_LITERAL_LANE = re.compile(r"i\d+ (-?\d+)")
DIVISIONS = frozenset({"sdiv", "udiv", "srem", "urem"})


def number(operand: Operand) -> int:
    """The value of a scalar integer literal as it is written; `true` is 1."""
    if operand.text in ("true", "false"):
        return int(operand.text == "true")
    return int(operand.text)


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
