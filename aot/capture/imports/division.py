"""Import rows of division: quotients, floors of them, and rests, at the limits of floats too."""

from __future__ import annotations

import math

from aotc.aot.capture.imports.call import Call, Operand, Rows
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node
from aotc.aot.ir.size import Size, proves_at_most
from aotc.aot.ir.types import DTYPES


def _div(call: Call, left: Operand, right: Operand, rounding_mode: str | None = None) -> Node:
    if rounding_mode is None:
        return call.scaled("div", left, right)
    if DTYPES[call.dtype].kind == "float":
        quotient = _quotient(call, left, right)
        if rounding_mode == "floor":
            return build.cast(_floored(call, left, right, quotient), call.dtype)
        # of the quotient as the type holds it
        return build.cast(build.unary("trunc", build.cast(quotient, call.dtype)), call.dtype)
    _check_divisor(call, right)
    floored = call.pointwise("floor_divide", left, right)
    if rounding_mode == "floor":
        return floored
    return floored + build.cast(_is_rounded_down(call, left, right), call.dtype)


def _check_divisor(call: Call, divisor: Operand) -> None:
    """Integers are not divided by 0, where there is anything to divide."""
    if isinstance(divisor, Size) or 0 in call.shape:
        return
    node = call.operand(divisor, call.dtype)
    has_elements = proves_at_most(1, math.prod(call.shape))
    call.check_divisor(node if has_elements else call.fill(node))


def _quotient(call: Call, left: Operand, right: Operand) -> Node:
    """In f64, which holds the quotient of shorter floats to their last bit; `/` in f32 does not."""
    first, second = (build.cast(call.operand(item, call.dtype), "f64") for item in (left, right))
    return call.fill(first / second)


def _floored(call: Call, left: Operand, right: Operand, quotient: Node) -> Node:
    """⌊left / right⌋ of a quotient in f64, as Python's `//` has it at the limits of floats."""
    first, second = (build.cast(call.operand(item, call.dtype), "f64") for item in (left, right))
    floored = build.unary("floor", quotient)
    if call.dtype == "f64":  # where the quotient was rounded up to an integer
        rest = build.pointwise("fma", -floored, second, first)
        is_above = _have_other_signs(rest, second)
        floored = build.where(is_above, floored - 1.0, floored)
    # A quotient that vanishes, by an infinite divisor too, still lies below 0.
    has_vanished = build.equal(quotient, 0.0)
    is_below = has_vanished & _have_other_signs(first, second)
    floored = build.where(is_below, -1.0, floored)
    # An infinite number has no rest, but by 0 it is infinite.
    has_no_rest = build.unary("isinf", first) & build.pointwise("ne", second, 0.0)
    return call.fill(build.where(has_no_rest, math.nan, floored))


def _have_other_signs(left: Node, right: Node) -> Node:
    """Whether one of two numbers is below 0 and the other one above it."""
    below, above = ([build.pointwise(op, x, 0.0) for x in (left, right)] for op in ("lt", "gt"))
    first = below[0] & above[1]
    return first | above[0] & below[1]


def _is_rounded_down(call: Call, left: Operand, right: Operand) -> Node:
    """Where rounding to minus infinity and towards zero differ, for integers."""
    signs = [call.pointwise("lt", item, 0) for item in (left, right)]
    is_inexact = build.pointwise("ne", call.pointwise("remainder", left, right), 0)
    return is_inexact & build.pointwise("logical_xor", *signs)


def _floor_divide(call: Call, left: Operand, right: Operand) -> Node:
    return _div(call, left, right, "floor")


def _fmod(call: Call, left: Operand, right: Operand) -> Node:
    if DTYPES[call.dtype].kind != "float":
        _check_divisor(call, right)
        floored = call.pointwise("remainder", left, right)
        excess = floored - call.operand(right, call.dtype)
        return build.where(_is_rounded_down(call, left, right), excess, floored)
    return call.pointwise("fmod", left, right)


def _remainder(call: Call, left: Operand, right: Operand) -> Node:
    if DTYPES[call.dtype].kind != "float":
        _check_divisor(call, right)
        return call.pointwise("remainder", left, right)
    rest, divisor = call.pointwise("fmod", left, right), call.operand(right, call.dtype)
    is_other = _have_other_signs(rest, divisor)
    return call.fill(build.where(is_other, rest + divisor, rest))


# The most that Euclid's algorithm takes, for neighbouring Fibonacci numbers of the type.
STEPS = {"u8": 12, "i8": 12, "i16": 24, "i32": 46, "i64": 91}


def _divisor(left: Node, right: Node) -> Node:
    """Euclid's algorithm, as many steps as any two numbers of the type need."""
    left, right = abs(left), abs(right)
    for _ in range(STEPS[left.dtype]):
        is_done = build.equal(right, 0)
        rest = left % build.where(is_done, 1, right)
        left, right = build.where(is_done, left, right), rest
    return left


def _gcd(call: Call, left: Operand, right: Operand) -> Node:
    first, second = (call.fill(call.operand(each, call.dtype)) for each in (left, right))
    return _divisor(first, second)


def _lcm(call: Call, left: Operand, right: Operand) -> Node:
    first, second = (call.fill(call.operand(each, call.dtype)) for each in (left, right))
    shared = build.maximum(_divisor(first, second), 1)
    return abs((first // shared) * second)


ROWS: Rows = {
    "gcd": _gcd,
    "lcm": _lcm,
    "div": _div,
    "true_divide": _div,
    "floor_divide": _floor_divide,
    "fmod": _fmod,
    "remainder": _remainder,
}
