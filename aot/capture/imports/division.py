"""Import rows of division: quotients, floors of them, and rests, at the limits of floats too."""

from __future__ import annotations

import math

from aotc.aot.capture.imports.call import Call, Operand, Rows
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
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
    return build.add(floored, build.cast(_is_rounded_down(call, left, right), call.dtype))


def _check_divisor(call: Call, divisor: Operand) -> None:
    """Integers are not divided by 0, where there is anything to divide."""
    if isinstance(divisor, Size) or 0 in call.shape:
        return
    node = call.operand(divisor, call.dtype)
    has_elements = proves_at_most(1, math.prod(call.shape))
    call.check_divisor(node if has_elements else call.fill(node))


def _quotient(call: Call, left: Operand, right: Operand) -> Node:
    """In f64, which holds the quotient of shorter floats to their last bit; `/` in f32 does not."""
    operands = (call.operand(item, call.dtype) for item in (left, right))
    return call.fill(build.div(*(build.cast(item, "f64") for item in operands)))


def _floored(call: Call, left: Operand, right: Operand, quotient: Node) -> Node:
    """⌊left / right⌋ of a quotient in f64, as Python's `//` has it at the limits of floats."""
    first, second = (build.cast(call.operand(item, call.dtype), "f64") for item in (left, right))
    floored = build.unary("floor", quotient)
    if call.dtype == "f64":  # where the quotient was rounded up to an integer
        rest = build.pointwise("fma", build.unary("neg", floored), second, first)
        is_above = _have_other_signs(rest, second)
        floored = build.pointwise("where", is_above, build.sub(floored, 1.0), floored)
    # A quotient that vanishes, by an infinite divisor too, still lies below 0.
    has_vanished = build.pointwise("eq", quotient, 0.0)
    is_below = build.pointwise("logical_and", has_vanished, _have_other_signs(first, second))
    floored = build.pointwise("where", is_below, -1.0, floored)
    # An infinite number has no rest, but by 0 it is infinite.
    has_no_rest = build.pointwise(
        "logical_and", build.unary("isinf", first), build.pointwise("ne", second, 0.0)
    )
    return call.fill(build.pointwise("where", has_no_rest, math.nan, floored))


def _have_other_signs(left: Node, right: Node) -> Node:
    """Whether one of two numbers is below 0 and the other one above it."""
    below, above = ([build.pointwise(op, x, 0.0) for x in (left, right)] for op in ("lt", "gt"))
    first = build.pointwise("logical_and", below[0], above[1])
    return build.pointwise("logical_or", first, build.pointwise("logical_and", above[0], below[1]))


def _is_rounded_down(call: Call, left: Operand, right: Operand) -> Node:
    """Where rounding to minus infinity and towards zero differ, for integers."""
    signs = [call.pointwise("lt", item, 0) for item in (left, right)]
    is_inexact = build.pointwise("ne", call.pointwise("remainder", left, right), 0)
    return build.pointwise("logical_and", is_inexact, build.pointwise("logical_xor", *signs))


def _floor_divide(call: Call, left: Operand, right: Operand) -> Node:
    return _div(call, left, right, "floor")


def _fmod(call: Call, left: Operand, right: Operand) -> Node:
    if DTYPES[call.dtype].kind != "float":
        _check_divisor(call, right)
        floored = call.pointwise("remainder", left, right)
        excess = build.sub(floored, call.operand(right, call.dtype))
        return build.pointwise("where", _is_rounded_down(call, left, right), excess, floored)
    return build.cast(_rest(call, left, right), call.dtype)


def _rest(call: Call, left: Operand, right: Operand) -> Node:
    """left - trunc(left / right) · right in f64, exact and signed as `left`.

    NaN where `left` is infinite or `right` is 0; `left` itself where only `right` is infinite.
    """
    first, second = (build.cast(call.operand(item, call.dtype), "f64") for item in (left, right))
    size, divisor = build.unary("abs", first), build.unary("abs", second)
    rest = (
        _rest_of_doubles(size, divisor)
        if call.dtype == "f64"
        else _rest_by_steps(size, divisor, _STEPS[call.dtype])
    )
    signed = build.pointwise(
        "where", build.pointwise("lt", first, 0.0), build.unary("neg", rest), rest
    )
    signed = build.pointwise("where", build.pointwise("lt", size, divisor), first, signed)
    # zeros have the sign of `left`
    signed = build.pointwise(
        "where", build.pointwise("eq", signed, 0.0), build.mul(first, 0.0), signed
    )
    is_number = build.pointwise(
        "logical_and",
        build.pointwise("lt", size, math.inf),
        build.pointwise("gt", divisor, 0.0),  # not of NaN either
    )
    return call.fill(build.pointwise("where", is_number, signed, math.nan))


_STEPS = {"f16": 1, "bf16": 6, "f32": 6}
"""Of 53 bits each: quotients of f16 are below 2⁴¹, those of f32 and bf16 below 2²⁷⁸."""


def _rest_by_steps(size: Node, divisor: Node, steps: int) -> Node:
    """size mod divisor of numbers that are not below 0.

    Product and difference are rounded once, so that each rest is exact, though larger than the
    divisor where the quotient was rounded: each takes off 53 bits.
    """
    rest = size
    for _ in range(steps):
        whole = build.unary("trunc", build.div(rest, divisor))
        rest = build.pointwise("fma", build.unary("neg", whole), divisor, rest)
    is_below = build.pointwise("lt", rest, 0.0)
    return build.pointwise("where", is_below, build.add(rest, divisor), rest)


_SQUARINGS = 6  # (2⁵¹)^(2⁶) is above 2²⁰⁹⁸, the largest quotient of f64


def _rest_of_doubles(size: Node, divisor: Node) -> Node:
    """m 2ᵏ mod n, as (m mod n) · (2^⌊k / 64⌋)^64 · 2^(k mod 64) mod n, of whole numbers m and n.

    They are the significands, from 2⁵² to 2⁵³ - 1, and k ≥ 0 is the difference of exponents.
    """
    (m, high), (n, low) = _parts(size), _parts(divisor)
    k = build.pointwise("maximum", build.sub(high, low), 0)
    power = _power_of_2(build.pointwise("shift_right", k, _SQUARINGS))
    for _ in range(_SQUARINGS):
        power = _product_modulo(power, power, n)
    last = build.pointwise("bitwise_and", k, 2**_SQUARINGS - 1)
    half = build.pointwise("shift_right", last, 1)
    rest = _nearest_rest(_nearest_rest(m, n), n)
    for factor in (_power_of_2(half), _power_of_2(build.sub(last, half)), power):
        rest = _product_modulo(rest, factor, n)
    rest = build.pointwise("where", build.pointwise("lt", rest, 0.0), build.add(rest, n), rest)
    # in two factors, neither of which vanishes
    first = build.pointwise("shift_right", low, 1)
    scaled = build.mul(rest, _power_of_2(first))
    return build.mul(scaled, _power_of_2(build.sub(low, first)))


def _parts(size: Node) -> tuple[Node, Node]:
    """The significand of a number as a whole number, and the power of 2 it is multiplied by."""
    is_subnormal = build.pointwise("lt", size, 2.0**-1022)
    normal = build.pointwise("where", is_subnormal, build.mul(size, 2.0**54), size)
    bits = make("bitcast", (normal,), {"dtype": "i64"})
    exponent = build.sub(build.pointwise("shift_right", bits, 52), 1075)
    fraction = build.pointwise("bitwise_and", bits, 2**52 - 1)
    number = make("bitcast", (build.add(fraction, 1075 << 52),), {"dtype": "f64"})
    return number, build.pointwise("where", is_subnormal, build.sub(exponent, 54), exponent)


def _power_of_2(exponent: Node) -> Node:
    bits = build.pointwise("shift_left", build.add(exponent, 1023), 52)
    return make("bitcast", (bits,), {"dtype": "f64"})


def _product_modulo(x: Node, y: Node, n: Node) -> Node:
    """x y mod n from -n / 2 to n / 2, as x and y are; whole numbers with 2⁵² ≤ n < 2⁵³.

    With the product as high + low, the quotient is below 2⁵¹, so that high - quotient · n is at
    most 3n / 4 and low at most n / 4: no step but the product's is rounded.
    """
    high = build.mul(x, y)
    low = build.pointwise("fma", x, y, build.unary("neg", high))
    quotient = build.unary("round", build.div(high, n))
    rest = build.pointwise("fma", build.unary("neg", quotient), n, high)
    return _nearest_rest(build.add(rest, low), n)


def _nearest_rest(x: Node, n: Node) -> Node:
    """x, of at most 3n / 2, moved by n towards 0 where it is beyond n / 2."""
    half = build.mul(n, 0.5)
    is_above = build.pointwise("gt", x, half)
    is_below = build.pointwise("lt", x, build.unary("neg", half))
    raised = build.pointwise("where", is_below, build.add(x, n), x)
    return build.pointwise("where", is_above, build.sub(x, n), raised)


def _remainder(call: Call, left: Operand, right: Operand) -> Node:
    if DTYPES[call.dtype].kind != "float":
        _check_divisor(call, right)
        return call.pointwise("remainder", left, right)
    rest = _rest(call, left, right)
    divisor = build.cast(call.operand(right, call.dtype), "f64")
    is_other = _have_other_signs(rest, divisor)
    moved = build.pointwise("where", is_other, build.add(rest, divisor), rest)
    return build.cast(call.fill(moved), call.dtype)


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


ROWS: Rows = {
    "gcd": _gcd,
    "lcm": _lcm,
    "div": _div,
    "true_divide": _div,
    "floor_divide": _floor_divide,
    "fmod": _fmod,
    "remainder": _remainder,
}
