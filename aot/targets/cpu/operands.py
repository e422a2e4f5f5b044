"""LLVM operands of Triton's element types: what every elementwise rule works with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from aotc.aot.targets.cpu.lanes import Lanes
from aotc.aot.targets.cpu.linear import Lane
from aotc.aot.targets.cpu.literals import is_vector, scalar_type
from aotc.aot.targets.cpu.ttir import Operation
from aotc.aot.targets.cpu.writer import Operand, constant

Rule: TypeAlias = Callable[[Lanes, Operation, Sequence[Lane]], Lane]
"""Evaluates one operation on the lane values of its operands."""

LINEAR_KINDS = ("i32", "i64")
"""Integer types kept as linear forms; the others are plain operands."""


def typed(lanes: Lanes, operand: Operand, kind: str, *, most: int | None = None) -> Lane:
    """An operand as the lane value that its Triton element type asks for.

    With a `most`, the value is known to lie between 0 and that.
    """
    if kind not in LINEAR_KINDS:
        return operand
    return lanes.atom(operand, kind, natural=most is not None, most=most)


def result_kind(operation: Operation) -> str:
    return operation.results[0].type.element


def as_f32(lanes: Lanes, operand: Operand, kind: str) -> Operand:
    """Widens f16 and bf16 (given as its bits); exact."""
    if kind == "f16":
        return lanes.cast("fpext", operand, "float")
    if kind != "bf16":
        return operand
    wide = lanes.cast("zext", operand, "i32")
    shifted = lanes.binary("shl", wide, constant(16, "i32"))
    return lanes.cast("bitcast", shifted, "float")


def from_f32(lanes: Lanes, operand: Operand, kind: str) -> Operand:
    """Rounds f32 to nearest even; bf16 by integer arithmetic, NaN kept as a quiet NaN."""
    if kind == "f16":
        return lanes.cast("fptrunc", operand, "half")
    if kind != "bf16":
        return operand
    # Chosen before it is cut off: what is widened again at once then stays in 32 bits.
    bits = lanes.cast("bitcast", operand, "i32")
    odd = lanes.binary("and", lanes.binary("lshr", bits, constant(16, "i32")), constant(1, "i32"))
    rounded = lanes.binary("add", lanes.binary("add", bits, odd), constant(0x7FFF, "i32"))
    nan = compare(lanes, "fcmp uno", operand, operand)
    chosen = select(lanes, nan, constant(0x7FC00000, "i32"), rounded)
    return lanes.cast("trunc", lanes.binary("lshr", chosen, constant(16, "i32")), "i16")


def compare(lanes: Lanes, instruction: str, a: Operand, b: Operand) -> Operand:
    if is_vector(a) != is_vector(b):
        a, b = lanes.splat(a), lanes.splat(b)
    kind = lanes.vector_type("i1") if is_vector(a) else "i1"
    if is_vector(a):
        kind = a.type[: a.type.index(" x ") + 3] + "i1>"
    return lanes.writer.emit(f"{instruction} {a.type} {a.text}, {b.text}", kind, [a, b])


def select(lanes: Lanes, condition: Operand, a: Operand, b: Operand) -> Operand:
    if condition.text in ("true", "false"):
        return a if condition.text == "true" else b
    if any(is_vector(x) for x in (condition, a, b)):
        a, b = lanes.splat(a), lanes.splat(b)
        condition = lanes.splat(condition)
    return lanes.writer.emit(f"select {condition}, {a}, {b}", a.type, [condition, a, b])


def matched(lanes: Lanes, operands: Sequence[Lane]) -> list[Operand]:
    found = [lanes.operand(x) for x in operands]
    if any(is_vector(x) for x in found):
        found = [lanes.splat(x) for x in found]
    return found


def intrinsic_suffix(operand: Operand) -> str:
    """Name suffix of an overloaded intrinsic: `<16 x float>` → `v16f32`."""
    names = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}
    kind = scalar_type(operand.type)
    count = f"v{operand.type[1 : operand.type.index(' ')]}" if is_vector(operand) else ""
    return count + names.get(kind, kind)
