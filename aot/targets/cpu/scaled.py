"""Operands of `tt.dot_scaled` as f32: elements of a narrow format by a scale for each group.

    x[i, k] = decode(bits[i, k]) · scale[i, k // group]

A scale is the exponent of a power of two, biased by 127 and NaN at 255, or an 8-bit float.
"""

from __future__ import annotations

from aotc.aot.targets.cpu.evaluate import TENSORS, Kernel
from aotc.aot.targets.cpu.lanes import as_f32, compare, select
from aotc.aot.targets.cpu.linear import EIGHT_BITS, Lane, float_constant, integer
from aotc.aot.targets.cpu.memory import Index
from aotc.aot.targets.cpu.ttir import Operation, Value, unsupported
from aotc.aot.targets.cpu.writer import Operand, constant

NAME = "aotc.scaled"
FORMATS = ("f8E4M3FN", "f8E5M2", "f6E2M3FN", "f6E3M2FN", "f4E2M1FN", "bf16", "f16")
"""By the number that stands for an element type in the attributes of `tt.dot_scaled`."""


def _element(kernel: Kernel, operation: Operation, value: Value, index: Index) -> Lane:
    lanes, source = kernel.lanes, operation.operands[0]
    form = str(operation.attributes["format"])
    axis, packed = operation.integer("axis"), operation.integer("packed_axis")
    if packed >= 0:
        place = list(index)
        place[packed] = lanes.divide(index[packed], integer(2), remainder=False)
        byte = lanes.operand(kernel.at(source, tuple(place)))
        odd = lanes.operand(lanes.divide(index[packed], integer(2), remainder=True))
        found = _half_byte(kernel, byte, odd)
    else:
        bits = lanes.operand(kernel.at(source, index))
        kind = form if form in EIGHT_BITS or form == source.type.element else source.type.element
        if kind not in EIGHT_BITS and kind not in ("bf16", "f16"):
            raise unsupported(f"a scaled product of `{form}` in `{kind}`")
        found = as_f32(lanes, bits, kind)
    if len(operation.operands) == 1:
        return found
    return lanes.binary("fmul", found, _scale(kernel, operation, value, index, axis))


def _half_byte(kernel: Kernel, byte: Operand, odd: Operand) -> Operand:
    """e2m1: 0, ½, 1, 1½, 2, 3, 4, 6 and a sign; the lower half is the first element."""
    lanes = kernel.lanes
    wide = lanes.cast("zext", byte, "i32")
    high = lanes.binary("lshr", wide, constant(4, "i32"))
    is_odd = compare(lanes, "icmp ne", odd, constant(0, "i32"))
    bits = select(lanes, is_odd, high, wide)
    size = lanes.binary("and", bits, constant(7, "i32"))
    # As f32 with an exponent too small by 126, so that ½, subnormal here, needs no case.
    moved = lanes.binary("shl", size, constant(22, "i32"))
    wide_float = lanes.cast("bitcast", moved, "float")
    found = lanes.binary("fmul", wide_float, float_constant(2.0**126, "f32"))
    sign = lanes.binary("and", bits, constant(8, "i32"))
    sign = lanes.binary("shl", sign, constant(28, "i32"))
    signed = lanes.binary("or", lanes.cast("bitcast", found, "i32"), sign)
    return lanes.cast("bitcast", signed, "float")


def _scale(kernel: Kernel, operation: Operation, value: Value, index: Index, axis: int) -> Operand:
    """Scales stand by (row of a or column of b, group)."""
    lanes, scales = kernel.lanes, operation.operands[1]
    shape, groups = value.type.shape or (), (scales.type.shape or ())[-1]
    inner = len(shape) - 2 + axis
    group = lanes.divide(index[inner], integer(shape[inner] // groups), remainder=False)
    other = index[len(shape) - 1 - axis]
    found = lanes.operand(kernel.at(scales, (*index[:-2], other, group)))
    if scales.type.element in EIGHT_BITS:
        return as_f32(lanes, found, scales.type.element)
    exponent = lanes.cast("zext", found, "i32")
    bits = lanes.binary("shl", exponent, constant(23, "i32"))
    least = compare(lanes, "icmp eq", exponent, constant(0, "i32"))  # 2⁻¹²⁷ is subnormal
    bits = select(lanes, least, constant(1 << 22, "i32"), bits)
    is_nan = compare(lanes, "icmp eq", exponent, constant(255, "i32"))
    bits = select(lanes, is_nan, constant(0x7FC00000, "i32"), bits)
    return lanes.cast("bitcast", bits, "float")


TENSORS[NAME] = _element
