"""Elementwise rules of integers: linear forms where they can be kept, instructions elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aotc.aot.targets.cpu.lanes import (
    Lanes,
    Rule,
    compare,
    intrinsic_suffix,
    matched,
    result_kind,
    select,
    typed,
)
from aotc.aot.targets.cpu.linear import (
    LLVM_TYPES,
    Int,
    Lane,
    integer,
    is_literal,
    is_vector,
    number,
    scalar_type,
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
        made = lanes.binary(name, x, y)
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
    """x & (2ⁿ - 1) = x % 2ⁿ of a natural number."""
    mask = b.constant
    if mask is None or mask < 0 or mask & (mask + 1) or not a.natural:
        return None
    divisor = integer(mask + 1, a.kind)
    return lanes.divide(a, divisor, remainder=True) if divisor.natural else None


def _quotient(*, remainder: bool, signed: bool) -> Callable[[Lanes, Int, Int], Lane]:
    return lambda lanes, a, b: lanes.divide(a, b, remainder=remainder, signed=signed)


def _shift(name: str) -> Rule:
    """Shifts as GPUs do them: by as many bits as there are, or more, nothing is left but signs."""

    def rule(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
        a, b = operands
        kind = result_kind(operation)
        bits = int(kind[1:])
        shift = b.constant if isinstance(b, Int) else None
        if isinstance(a, Int) and shift is not None and 0 <= shift < bits - 1:
            power = integer(1 << shift, kind)
            if name == "shl":
                return lanes.multiply(a, power)
            if a.natural:
                return lanes.divide(a, power, remainder=False)
        x, y = matched(lanes, operands)
        return typed(lanes, _clamped_shift(lanes, name, x, y, bits), kind)

    return rule


def _clamped_shift(lanes: Lanes, name: str, x: Operand, y: Operand, bits: int) -> Operand:
    """LLVM leaves a shift by `bits` or more undefined."""
    limit = _like(lanes, y, bits)
    if is_literal(y) and not is_vector(y) and 0 <= number(y) < bits:
        return lanes.binary(name, x, y)
    fits = compare(lanes, "icmp ult", y, limit)
    within = select(lanes, fits, y, _like(lanes, y, bits - 1))
    made = lanes.binary(name, x, within)
    return made if name == "ashr" else select(lanes, fits, made, _like(lanes, y, 0))


def _like(lanes: Lanes, operand: Operand, value: int) -> Operand:
    """A literal of an operand's type."""
    found = constant(value, scalar_type(operand.type))
    return lanes.splat(found) if is_vector(operand) else found


def _extreme(name: str) -> Rule:
    """min and max of integers; signed ones of natural numbers are natural too."""
    is_max, signed = name.startswith("max"), name.endswith("si")

    def rule(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
        a, b = operands
        kind = result_kind(operation)
        most = None
        if isinstance(a, Int) and isinstance(b, Int) and signed:
            if a.constant is not None and b.constant is not None:
                return integer((max if is_max else min)(a.constant, b.constant), kind)
            if (a.natural or b.natural) if is_max else (a.natural and b.natural):
                most = _most_of_extreme(a, b, is_max)
        x, y = matched(lanes, operands)
        made = lanes.writer.call(
            f"llvm.{'s' if signed else 'u'}{name[:3]}.{intrinsic_suffix(x)}", x.type, [x, y]
        )
        return typed(lanes, made, kind, most=most)

    return rule


def _most_of_extreme(a: Int, b: Int, is_max: bool) -> int:
    """The largest value of a minimum or maximum that is a natural number."""
    largest = (1 << int(a.kind[1:]) - 1) - 1
    known = [largest if x.most is None else x.most for x in (a, b)]
    return max(known) if is_max else min(known)


def _compare_integers(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    predicate = operation.integer("predicate")
    a, b = operands
    if isinstance(a, Int) and isinstance(b, Int):
        truth = _known_order(lanes, a, b, predicate)
        if truth is not None:
            return constant("true" if truth else "false", "i1")
    return compare(lanes, f"icmp {_INTEGER_PREDICATES[predicate]}", *matched(lanes, operands))


def _known_order(lanes: Lanes, a: Int, b: Int, predicate: int) -> bool | None:
    """What a comparison gives, where both sides differ by a number that is known."""
    d = lanes.add(a, b, -1).constant
    if d is None:
        return None
    is_unsigned = predicate >= 6
    if a.constant is not None and b.constant is not None:
        d = a.constant - b.constant
        if is_unsigned:
            mask = (1 << int(a.kind[1:])) - 1
            d = (a.constant & mask) - (b.constant & mask)
    elif predicate > 1 and d and (is_unsigned or not (a.cannot_wrap and b.cannot_wrap)):
        return None
    return (d == 0, d != 0, d < 0, d <= 0, d > 0, d >= 0)[predicate - 4 * is_unsigned]


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
    "arith.shli": _shift("shl"),
    "arith.shrsi": _shift("ashr"),
    "arith.shrui": _shift("lshr"),
    **{f"arith.{name}": _extreme(name) for name in ("maxsi", "minsi", "maxui", "minui")},
    "arith.cmpi": _compare_integers,
    "tt.mulhiui": _multiply_high,
}
