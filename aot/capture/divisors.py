"""Import rows of common divisors and multiples."""

from __future__ import annotations

from aotc.aot.capture.importing import Call, Operand, Rows
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node

# The most that Euclid's algorithm takes, for neighbouring Fibonacci numbers of the type.
STEPS = {"u8": 12, "i8": 12, "i16": 24, "i32": 46, "i64": 91}


def _divisor(left: Node, right: Node) -> Node:
    """Euclid's algorithm, as many steps as any two numbers of the type need."""
    left, right = build.unary("abs", left), build.unary("abs", right)
    for _ in range(STEPS[left.dtype]):
        is_done = build.pointwise("eq", right, 0)
        rest = build.pointwise("remainder", left, build.pointwise("where", is_done, 1, right))
        left, right = build.pointwise("where", is_done, left, right), rest
    return left


def _gcd(call: Call, left: Operand, right: Operand) -> Node:
    first, second = (call.fill(call.operand(each, call.dtype)) for each in (left, right))
    return _divisor(first, second)


def _lcm(call: Call, left: Operand, right: Operand) -> Node:
    first, second = (call.fill(call.operand(each, call.dtype)) for each in (left, right))
    shared = build.pointwise("maximum", _divisor(first, second), 1)
    return build.unary("abs", build.mul(build.pointwise("floor_divide", first, shared), second))


ROWS: Rows = {"gcd": _gcd, "lcm": _lcm}
