"""Import rows of pointwise ops. The rows of `OPS` that name their ATen ops need none here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from aotc.aot.capture.imports.call import (
    EAGER_RAISES,
    NO_KERNEL,
    Call,
    NotSupported,
    Operand,
    Row,
    Rows,
    wide,
)
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.size import Size, proves_at_most
from aotc.aot.ir.types import DTYPES, round_scalar


def _plain(op: str) -> Row:
    def row(call: Call, *operands: Operand) -> Node:
        return call.pointwise(op, *operands[: OPS[op].operands])

    return row


def _compare(op: str) -> Row:
    def row(call: Call, left: Operand, right: Operand) -> Node:
        return call.pointwise(op, left, right, dtype=call.promoted())

    return row


def _test(op: str) -> Row:
    def row(call: Call, data: Node) -> Node:
        if data.type.kind != "float":
            return call.fill(build.scalar(False, "bool"))
        return call.pointwise(op, data, dtype=data.dtype)

    return row


def _logical(op: str) -> Row:
    def row(call: Call, *operands: Operand) -> Node:
        return call.pointwise(op, *operands, dtype="bool")

    return row


def _bitwise(op: str) -> Row:
    logical = op.replace("bitwise", "logical")

    def row(call: Call, *operands: Operand) -> Node:
        return call.pointwise(logical if call.dtype == "bool" else op, *operands)

    return row


WHOLE = ("floor", "ceil", "round", "trunc")
OF_BOOLS = {"maximum": "logical_or", "minimum": "logical_and"}


def _whole(op: str) -> Row:
    def row(call: Call, data: Node) -> Node:
        return call.pointwise(op, data) if data.type.kind == "float" else data

    return row


def _extreme(op: str) -> Callable[[Call, Operand, Operand], Node]:
    def row(call: Call, left: Operand, right: Operand) -> Node:
        return call.pointwise(OF_BOOLS[op] if call.dtype == "bool" else op, left, right)

    return row


def _round(call: Call, data: Node, decimals: int = 0) -> Node:
    if data.type.kind != "float" or not decimals:
        return _whole("round")(call, data)  # type: ignore[return-value]
    operand, power = wide(data), 10.0 ** abs(decimals)
    if decimals < 0:
        rounded = build.unary("round", operand / power) * power
    else:
        rounded = build.unary("round", operand * power) / power
    return build.cast(rounded, call.dtype)


def _fraction(call: Call, data: Node) -> Node:
    """x - trunc(x): 0 of -0, where torch 2.11's decomposition gives -0."""
    return call.pointwise("sub", data, build.unary("trunc", data))


def _softshrink(call: Call, data: Node, bound: float = 0.5) -> Node:
    """x - b above b, x + b below -b, else +0 as the vectors of eager's kernel give: its last
    elements, and torch's decomposition, give x · 0."""
    x = wide(data)
    limit = round_scalar(float(bound), "f64" if x.dtype == "f64" else "f32")
    inside = build.where(build.equal(x, x), 0.0, x)
    below = build.where(x < -limit, x + limit, inside)
    return build.cast(build.where(x > limit, x - limit, below), call.dtype)


def _generated() -> Rows:
    rows: Rows = {}
    for op in OPS.values():
        if op.kind != "pointwise":
            continue
        row = _plain(op.name)
        if op.name.startswith(("logical_", "bitwise_")):
            row = (_logical if op.name.startswith("logical_") else _bitwise)(op.name)
        elif op.operands == 2 and op.name in ("eq", "ne", "lt", "le", "gt", "ge"):
            row = _compare(op.name)
        elif op.name in ("isnan", "isinf"):
            row = _test(op.name)
        elif op.name in WHOLE:
            row = _whole(op.name)
        elif op.name in OF_BOOLS:
            row = _extreme(op.name)
        rows |= dict.fromkeys(op.aten, row)
    return rows


def _add(call: Call, left: Operand, right: Operand, alpha: Operand = 1) -> Node:
    if call.dtype == "bool":
        return call.pointwise("logical_or", left, right if alpha else False)
    return _sum(call, left, right, alpha)


def _sum(call: Call, start: Operand, left: Operand, right: Operand) -> Node:
    """start + left · right, of floats rounded once: so torch's own kernels compute it.

    Rounded twice, a product is infinite of which the sum is a number.
    """
    if _is_one(right):
        return call.pointwise("add", start, left)
    if DTYPES[call.dtype].kind == "float":
        return call.pointwise("fma", left, right, start)
    return call.pointwise("add", start, _scaled(call, left, right))


def _is_one(value: Operand) -> bool:
    return isinstance(value, int | float) and value == 1


def _scaled(call: Call, right: Operand, alpha: Operand) -> Operand:
    return right if _is_one(alpha) else call.pointwise("mul", right, call.fitting(alpha))


def _sub(call: Call, left: Operand, right: Operand, alpha: Operand = 1) -> Node:
    if DTYPES[call.dtype].kind == "float" and not _is_one(alpha):
        return _sum(call, left, right, -alpha)
    return call.pointwise("sub", left, _scaled(call, right, alpha))


def _mul(call: Call, left: Operand, right: Operand) -> Node:
    op = "logical_and" if call.dtype == "bool" else "mul"
    return call.scaled(op, left, right)


def _pow(call: Call, base: Operand, exponent: Operand) -> Node:
    if DTYPES[call.dtype].kind == "float":
        root = ROOTS.get(exponent) if isinstance(exponent, float) else None
        return call.pointwise(root, base) if root else call.pointwise("pow", base, exponent)
    if isinstance(exponent, int) and not isinstance(exponent, bool) and exponent < 0:
        raise NotSupported(f"an integer to the power {exponent}, {EAGER_RAISES}")
    value = call.operand(base, call.dtype)
    if isinstance(exponent, int) and call.fitting(exponent) == exponent >= 0:
        return call.fill(_constant_power(value, exponent))
    return call.fill(_integer_power(value, call.operand(exponent, call.dtype)))


# As torch has it, for the limits of roots and powers differ: (-∞)^½ is ∞, √-∞ is not a number.
ROOTS = {0.5: "sqrt", -0.5: "rsqrt"}


def _constant_power(base: Node, exponent: int) -> Node:
    result: Node | None = None
    while exponent:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        base = base * base if exponent else base
    return build.expand(build.scalar(1, base.dtype), base.shape) if result is None else result


def _integer_power(base: Node, exponent: Node) -> Node:
    """By squaring, bit by bit; below 0, what 1 / power is rounded to."""
    bits = DTYPES[base.dtype].itemsize_bytes * 8 - (base.dtype != "u8")
    power, result = base, build.where(build.equal(base, base), 1, base)
    for bit in range(bits):
        is_set = build.pointwise("ne", build.pointwise("bitwise_and", exponent, 1 << bit), 0)
        result = build.where(is_set, result * power, result)
        power = power * power
    if base.dtype == "u8":
        return result
    is_odd = build.pointwise("ne", build.pointwise("bitwise_and", exponent, 1), 0)
    of_minus_one = build.where(is_odd, base, 1)
    is_unit = build.equal(abs(base), 1)
    below = build.where(is_unit, of_minus_one, 0)
    below = build.where(build.equal(base, 1), 1, below)
    return build.where(exponent < 0, below, result)


def _clamp(call: Call, data: Node, low: Operand | None = None, high: Operand | None = None) -> Node:
    result: Node = data
    if low is not None:
        result = _extreme("maximum")(call, result, call.fitting(low))
    return result if high is None else _extreme("minimum")(call, result, call.fitting(high))


def _leaky_relu(call: Call, data: Node, slope: Operand = 0.01) -> Node:
    scaled = call.pointwise("mul", data, slope)
    return build.where(call.pointwise("gt", data, 0, dtype=data.dtype), data, scaled)


def _elu(
    call: Call, data: Node, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Node:
    below = build.unary("expm1", data * input_scale) * (alpha * scale)
    return build.where(data > 0.0, data * scale, below)


def _softplus(call: Call, data: Node, beta: float = 1.0, threshold: float = 20.0) -> Node:
    scaled = data * beta
    soft = build.unary("log1p", build.unary("exp", scaled)) * (1.0 / beta)
    return build.where(scaled > threshold, data, soft)


def _gelu(call: Call, data: Node, approximate: str = "none") -> Node:
    return build.unary("gelu" if approximate == "none" else "gelu_tanh", data)


def _where(call: Call, condition: Node, chosen: Operand, other: Operand) -> Node:
    picked = [call.operand(value, call.dtype) for value in (chosen, other)]
    return call.fill(build.pointwise("where", call.operand(condition, "bool"), *picked))


def _to_copy(call: Call, data: Operand, *rest: Any) -> Node:
    """A conversion; traces of `vmap` have some of numbers."""
    return call.operand(data, call.dtype)


def _same(call: Call, data: Node, *rest: Any) -> Node:
    return data


def _addcmul(call: Call, data: Node, left: Node, right: Node, value: Operand = 1) -> Node:
    return _sum(call, data, _scaled(call, left, value), right)


def _addcdiv(call: Call, data: Node, left: Node, right: Node, value: Operand = 1) -> Node:
    return call.pointwise("add", data, call.pointwise("div", _scaled(call, left, value), right))


def _lerp(call: Call, start: Node, end: Node, weight: Operand) -> Node:
    """From the nearer end: start + w (end - start), or end + (w - 1) (end - start)."""
    away = call.pointwise("sub", end, start)
    if isinstance(weight, int | float):
        share = round_scalar(float(weight), "f64" if call.dtype == "f64" else "f32")
        is_nearer_end = abs(share) >= 0.5
        return _sum(call, *((end, share - 1.0) if is_nearer_end else (start, share)), away)
    share = call.operand(weight, call.dtype)
    is_nearer_end = abs(share) >= 0.5
    factor = build.where(is_nearer_end, share - 1.0, share)
    return _sum(call, _where(call, is_nearer_end, end, start), factor, away)


def _ndtr(call: Call, data: Node) -> Node:
    """½ erfc(-x / √2), which is precise in both tails."""
    place = call.operand(data, call.dtype) * -math.sqrt(0.5)
    return build.unary("erfc", place) * 0.5


def _log10(call: Call, data: Node) -> Node:
    return build.unary("log", call.operand(data, call.dtype)) * (1 / math.log(10))


def _log_sigmoid(call: Call, data: Node) -> tuple[Node, None]:
    # min(x, 0) - log1p(e^-|x|): exact on both sides.
    fading = build.unary("exp", -abs(wide(data)))
    low = build.minimum(wide(data), 0.0)
    return build.cast(low - build.unary("log1p", fading), data.dtype), None


def _angle(call: Call, data: Node) -> Node:
    """π below 0, 0 from -0 on, NaN of NaN; of a complex number see `complexes`."""
    zero = build.scalar(0.0, call.dtype)
    if data.type.kind == "bool" or data.dtype == "u8":
        return call.fill(zero)
    below = data < build.scalar(0, data.dtype)
    found = build.where(below, build.scalar(math.pi, call.dtype), zero)
    if data.type.kind != "float":
        return call.fill(found)
    return build.where(build.pointwise("ne", data, data), data, call.fill(found))


def _is_finite(call: Call, data: Node) -> Node:
    if data.type.kind != "float":
        return call.fill(build.scalar(True, "bool"))
    return abs(data) < math.inf


IDENTITIES = ("clone", "alias", "detach", "contiguous", "lift_fresh_copy", "lift_fresh")


# -- division --------------------------------------------------------------------------------------


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
    first, second = (build.cast(each, "f64") for each in call.operands(left, right))
    return call.fill(first / second)


def _floored(call: Call, left: Operand, right: Operand, quotient: Node) -> Node:
    """⌊left / right⌋ of a quotient in f64, as Python's `//` has it at the limits of floats."""
    first, second = (build.cast(each, "f64") for each in call.operands(left, right))
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


def _whole_numbers(call: Call, *values: Operand) -> tuple[Node, ...]:
    if DTYPES[call.dtype].kind != "int":
        raise NotSupported(f"{NO_KERNEL} for {call.dtype}")
    return tuple(call.fill(call.operand(each, call.dtype)) for each in values)


def _gcd(call: Call, left: Operand, right: Operand) -> Node:
    return _divisor(*_whole_numbers(call, left, right))


def _lcm(call: Call, left: Operand, right: Operand) -> Node:
    first, second = _whole_numbers(call, left, right)
    shared = build.maximum(_divisor(first, second), 1)
    return abs((first // shared) * second)


ROWS: Rows = {
    **_generated(),
    **dict.fromkeys(IDENTITIES, _same),
    "_neg_view": lambda call, data: -data,
    "round": _round,
    "frac": _fraction,
    "softshrink": _softshrink,
    "sign": lambda call, data: data if data.dtype == "bool" else call.pointwise("sign", data),
    "add": _add,
    "sub": _sub,
    "rsub": lambda call, left, right, alpha=1: _sub(call, right, left, alpha),
    "mul": _mul,
    "pow": _pow,
    "square": lambda call, data: call.pointwise("mul", data, data),
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": lambda call, data, high: _clamp(call, data, None, high),
    "hardtanh": lambda call, data, low=-1.0, high=1.0: _clamp(call, data, low, high),
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "softplus": _softplus,
    "silu": _plain("silu"),
    "gelu": _gelu,
    "where": _where,
    "masked_fill": lambda call, data, mask, value: _where(call, mask, value, data),
    "_to_copy": _to_copy,
    "prims::convert_element_type": _to_copy,  # what torch writes for numbers of a call
    # Product and sum rounded once, as optimisers are written in by torch.
    "prims::fma": lambda call, left, right, start: call.pointwise("fma", left, right, start),
    "prims::copy_strided": _same,  # how its result lies is said by its value
    "copy": lambda call, data, source, *rest: call.fill(build.cast(source, call.dtype)),
    "fill": lambda call, data, value: call.fill(call.operand(value, call.dtype)),
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "lerp": _lerp,
    "special_ndtr": _ndtr,
    "log10": _log10,
    "log_sigmoid_forward": _log_sigmoid,
    "isfinite": _is_finite,
    "angle": _angle,
    "gcd": _gcd,
    "lcm": _lcm,
    "div": _div,
    "true_divide": _div,
    "floor_divide": lambda call, left, right: _div(call, left, right, "floor"),
    "fmod": _fmod,
    "remainder": _remainder,
}
