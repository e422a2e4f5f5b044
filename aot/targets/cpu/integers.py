"""Elementwise rules of integers: linear forms where they can be kept, instructions elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aotc.aot.targets.cpu.lanes import LLVM_TYPES, Int, Lane, Lanes, integer
from aotc.aot.targets.cpu.operands import (
    Rule,
    compare,
    intrinsic_suffix,
    matched,
    result_kind,
    typed,
)
from aotc.aot.targets.cpu.ttir import Operation
from aotc.aot.targets.cpu.writer import Operand, constant

_INTEGER_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


def _integer(name: str, linear: Callable[[Lanes, Int, Int], Lane | None] | None = None) -> Rule:
    def rule(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
        a, b = operands
        kind = result_kind(operation)
        if isinstance(a, Int) and isinstance(b, Int) and linear is not None:
            found = linear(lanes, a, b)
            if found is not None:
                return found
        if kind == "i1":
            folded = _fold_bool(name, lanes.operand(a), lanes.operand(b))
            if folded is not None:
                return folded
        x, y = matched(lanes, operands)
        made = lanes.binary(name, x, y, can_fault=name.endswith(("div", "rem")))
        return typed(lanes, made, kind)

    return rule


def _fold_bool(name: str, a: Operand, b: Operand) -> Operand | None:
    for one, other in ((a, b), (b, a)):
        if name == "and" and one.text in ("true", "false"):
            return other if one.text == "true" else one
        if name == "or" and one.text in ("true", "false"):
            return one if one.text == "true" else other
    return None


def _and(lanes: Lanes, a: Int, b: Int) -> Lane | None:
    mask = b.constant
    if (
        mask is not None
        and mask >= 0
        and mask & (mask + 1) == 0
        and a.base.natural
        and a.stride.natural
    ):
        return lanes.divide(a, integer(mask + 1, a.kind), remainder=True)
    return None


def _quotient(*, remainder: bool, signed: bool) -> Callable[[Lanes, Int, Int], Lane]:
    return lambda lanes, a, b: lanes.divide(a, b, remainder=remainder, signed=signed)


def _shift_left(lanes: Lanes, a: Int, b: Int) -> Lane | None:
    shift = b.constant
    return None if shift is None else lanes.multiply(a, integer(1 << shift, a.kind))


def _shift_right(lanes: Lanes, a: Int, b: Int) -> Lane | None:
    shift = b.constant
    if shift is None or not (a.base.natural and a.stride.natural):
        return None
    return lanes.divide(a, integer(1 << shift, a.kind), remainder=False)


def _extreme(name: str) -> Rule:
    """min and max of integers; on natural numbers the result is one too."""
    is_max, signed = name.startswith("max"), name.endswith("si")

    def rule(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
        a, b = operands
        kind = result_kind(operation)
        natural = False
        if isinstance(a, Int) and isinstance(b, Int):
            if a.constant is not None and b.constant is not None and signed:
                return integer((max if is_max else min)(a.constant, b.constant), kind)
            both = [x.base.natural and x.stride.natural for x in (a, b)]
            natural = any(both) if is_max else all(both)
        x, y = matched(lanes, operands)
        made = lanes.writer.call(
            f"llvm.{'s' if signed else 'u'}{name[:3]}.{intrinsic_suffix(x)}", x.type, [x, y]
        )
        return typed(lanes, made, kind, natural=natural)

    return rule


def _compare_integers(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    predicate = operation.integer("predicate")
    a, b = operands
    if isinstance(a, Int) and isinstance(b, Int):
        difference = lanes.add(a, b, -1)
        if difference.constant is not None and predicate < 6:
            d = difference.constant
            truth = (d == 0, d != 0, d < 0, d <= 0, d > 0, d >= 0)[predicate]
            return constant("true" if truth else "false", "i1")
    return compare(lanes, f"icmp {_INTEGER_PREDICATES[predicate]}", *matched(lanes, operands))


def _multiply_high(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    kind = result_kind(operation)
    bits = int(kind[1:])
    a, b = (lanes.cast("zext", x, f"i{2 * bits}") for x in matched(lanes, operands))
    product = lanes.binary("mul", a, b)
    high = lanes.binary("lshr", product, constant(bits, f"i{2 * bits}"))
    return typed(lanes, lanes.cast("trunc", high, LLVM_TYPES[kind]), kind)


def _absolute(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    value = lanes.operand(operands[0])
    flag = constant("false", "i1")  # the smallest integer stays as it is
    made = lanes.writer.call(f"llvm.abs.{intrinsic_suffix(value)}", value.type, [value, flag])
    return typed(lanes, made, result_kind(operation))


RULES: dict[str, Rule] = {
    "math.absi": _absolute,
    "arith.addi": _integer("add", lambda lanes, a, b: lanes.add(a, b)),
    "arith.subi": _integer("sub", lambda lanes, a, b: lanes.add(a, b, -1)),
    "arith.muli": _integer("mul", lambda lanes, a, b: lanes.multiply(a, b)),
    "arith.divsi": _integer("sdiv", _quotient(remainder=False, signed=True)),
    "arith.divui": _integer("udiv", _quotient(remainder=False, signed=False)),
    "arith.remsi": _integer("srem", _quotient(remainder=True, signed=True)),
    "arith.remui": _integer("urem", _quotient(remainder=True, signed=False)),
    "arith.andi": _integer("and", _and),
    "arith.ori": _integer("or"),
    "arith.xori": _integer("xor"),
    "arith.shli": _integer("shl", _shift_left),
    "arith.shrsi": _integer("ashr", _shift_right),
    "arith.shrui": _integer("lshr", _shift_right),
    **{f"arith.{name}": _extreme(name) for name in ("maxsi", "minsi", "maxui", "minui")},
    "arith.cmpi": _compare_integers,
    "tt.mulhiui": _multiply_high,
}
