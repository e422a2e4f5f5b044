"""What a reduction begins with: the element that changes nothing that it is combined with, and
what is seen of the numbers that it combines."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aotc.aot.ir.reductions import REDUCTIONS
from aotc.aot.ir.types import Scalar
from aotc.aot.targets.cpu.linear import LLVM_TYPES, Lane, float_constant, integer, wrap
from aotc.aot.targets.cpu.ttir import Dense, Operation, Value
from aotc.aot.targets.cpu.writer import constant

_zero, _one, _lowest, _highest = (
    REDUCTIONS[name].identity for name in ("sum", "prod", "max", "min")
)
NEUTRAL: Mapping[str, Callable[[str], Scalar]] = {
    "addf": _zero, "addi": _zero, "mulf": _one, "muli": _one,
    "maxnumf": _lowest, "maximumf": _lowest, "minnumf": _highest, "minimumf": _highest,
    "maxsi": _lowest, "minsi": _highest, "maxui": _zero, "minui": lambda _: -1,
    "ori": _zero, "xori": _zero, "andi": lambda _: -1,
}  # fmt: skip
"""By an operation of Triton's dialect `arith`: what changes nothing that it combines."""
WIDENING = ("arith.extui", "arith.extsi")


def neutral(operation: Operation) -> Lane | None:
    """The neutral element of a reduction of one operand by one operation, if it has one."""
    number, kind = neutral_number(operation), operation.operands[0].type.element
    if number is None:
        return None
    if kind[0] in "fb":
        return float_constant(float(number), kind)
    if kind == "i1":
        return constant("true" if number else "false", "i1")
    found = wrap(int(number), kind)
    return integer(found, kind) if kind in ("i32", "i64") else constant(found, LLVM_TYPES[kind])


def neutral_number(operation: Operation) -> Scalar | None:
    """The same as a number."""
    block, value = operation.body, operation.operands[0]
    name, kind = name_of(operation), value.type.element
    is_one = len(operation.operands) == 1 and len(block.operations) == 2
    if not is_one or name not in NEUTRAL or (kind == "i1" and name[-2:] == "si"):
        return None
    ends = range_of(value) if name in ("maxsi", "minsi") else None
    return NEUTRAL[name](kind) if ends is None else ends[name == "minsi"]


def name_of(operation: Operation) -> str:
    """The first operation of a combination, of Triton's dialect `arith`."""
    return operation.body.operations[0].name.removeprefix("arith.")


def range_of(value: Value) -> tuple[int, int] | None:
    """The least and the largest number that elements may be, where that is seen at once: of what
    had fewer bits, or is a constant instead."""
    made = value.owner
    if made is None or value.type.element[0] != "i":
        return None
    if made.name == "arith.constant":
        number = made.attributes["value"]
        numbers = number.values if isinstance(number, Dense) else (number,)
        known = [int(x) for x in numbers if isinstance(x, int)]
        return (min(known), max(known)) if len(known) == len(numbers) else None
    if made.name in WIDENING:
        bits = int(made.operands[0].type.element[1:])
        return (
            (0, 2**bits - 1)
            if made.name == "arith.extui"
            else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
    if made.name in ("tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans"):
        return range_of(made.operands[0])
    if made.name == "arith.select":
        sides = [range_of(side) for side in made.operands[1:]]
        known_sides = [side for side in sides if side is not None]
        if len(known_sides) == len(sides):
            return min(low for low, _ in known_sides), max(high for _, high in known_sides)
    return None


def is_number(value: Value, number: Scalar) -> bool:
    """Whether a tensor is that number everywhere."""
    made = value.owner
    if made is None or made.name != "arith.constant":
        return False
    found = made.attributes["value"]
    found = found.values[0] if isinstance(found, Dense) and len(found.values) == 1 else found
    return isinstance(found, int | float) and found == number
