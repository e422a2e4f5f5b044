"""Import rows of pointwise ops. The rows of `OPS` that name their ATen ops need none here."""

from __future__ import annotations

import math
from typing import Any

from aotc.aot.capture.importing import Call, NotSupported, Operand, Row, Rows, wide
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.types import DTYPES


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
        rows |= dict.fromkeys(op.aten, row)
    return rows


def _add(call: Call, left: Operand, right: Operand, alpha: Operand = 1) -> Node:
    if call.dtype == "bool":
        return call.pointwise("logical_or", left, right)
    if alpha != 1:
        right = call.pointwise("mul", right, alpha)
    return call.pointwise("add", left, right)


def _sub(call: Call, left: Operand, right: Operand, alpha: Operand = 1) -> Node:
    if alpha != 1:
        right = call.pointwise("mul", right, alpha)
    return call.pointwise("sub", left, right)


def _rsub(call: Call, left: Operand, right: Operand, alpha: Operand = 1) -> Node:
    return _sub(call, right, left, alpha)


def _mul(call: Call, left: Operand, right: Operand) -> Node:
    return call.pointwise("logical_and" if call.dtype == "bool" else "mul", left, right)


def _div(call: Call, left: Operand, right: Operand, rounding_mode: str | None = None) -> Node:
    if rounding_mode is None:
        return call.pointwise("div", left, right)
    if DTYPES[call.dtype].kind == "float":
        whole = "floor" if rounding_mode == "floor" else "trunc"
        quotient = _quotient(call, left, right)
        if rounding_mode == "trunc":  # of the quotient as the type holds it
            quotient = build.cast(quotient, call.dtype)
        return build.cast(build.unary(whole, quotient), call.dtype)
    floored = call.pointwise("floor_divide", left, right)
    if rounding_mode == "floor":
        return floored
    return build.add(floored, build.cast(_is_rounded_down(call, left, right), call.dtype))


def _quotient(call: Call, left: Operand, right: Operand) -> Node:
    """In f64, which holds the quotient of shorter floats to their last bit; `/` in f32 does not."""
    operands = (call.operand(item, call.dtype) for item in (left, right))
    return call.fill(build.div(*(build.cast(item, "f64") for item in operands)))


def _is_rounded_down(call: Call, left: Operand, right: Operand) -> Node:
    """Where rounding to minus infinity and towards zero differ, for integers."""
    signs = [call.pointwise("lt", item, 0) for item in (left, right)]
    is_inexact = build.pointwise("ne", call.pointwise("remainder", left, right), 0)
    return build.pointwise("logical_and", is_inexact, build.pointwise("logical_xor", *signs))


def _floor_divide(call: Call, left: Operand, right: Operand) -> Node:
    return _div(call, left, right, "floor")


def _fmod(call: Call, left: Operand, right: Operand) -> Node:
    if DTYPES[call.dtype].kind != "float":
        floored = call.pointwise("remainder", left, right)
        excess = build.sub(floored, call.operand(right, call.dtype))
        return build.pointwise("where", _is_rounded_down(call, left, right), excess, floored)
    return build.cast(_rest(call, left, right), call.dtype)


def _rest(call: Call, left: Operand, right: Operand) -> Node:
    """left - trunc(left / right) · right, f64; exact for shorter floats up to quotients of 2²⁹."""
    first, second = (build.cast(call.operand(item, call.dtype), "f64") for item in (left, right))
    whole = build.unary("trunc", build.div(first, second))
    rest = build.sub(first, build.mul(whole, second))
    is_endless = build.pointwise("eq", build.unary("abs", second), math.inf)
    is_finite = build.pointwise("lt", build.unary("abs", first), math.inf)
    is_left_itself = build.pointwise("logical_and", is_endless, is_finite)
    return call.fill(build.pointwise("where", is_left_itself, first, rest))


def _remainder(call: Call, left: Operand, right: Operand) -> Node:
    if DTYPES[call.dtype].kind != "float":
        return call.pointwise("remainder", left, right)
    rest = _rest(call, left, right)
    divisor = build.cast(call.operand(right, call.dtype), "f64")
    signs = [build.pointwise("lt", item, 0.0) for item in (rest, divisor)]
    is_other = build.pointwise("logical_xor", *signs)
    is_inexact = build.pointwise("ne", rest, 0.0)
    moved = build.pointwise(
        "where",
        build.pointwise("logical_and", is_inexact, is_other),
        build.add(rest, divisor),
        rest,
    )
    return build.cast(call.fill(moved), call.dtype)


def _pow(call: Call, base: Operand, exponent: Operand) -> Node:
    if DTYPES[call.dtype].kind == "float":
        return call.pointwise("pow", base, exponent)
    if isinstance(exponent, int) and 1 <= exponent <= 4:
        power = first = call.operand(base, call.dtype)
        for _ in range(exponent - 1):
            power = build.mul(power, first)
        return call.fill(power)
    raise NotSupported("an integer power other than 1 to 4")


def _square(call: Call, data: Node) -> Node:
    return call.pointwise("mul", data, data)


def _clamp(call: Call, data: Node, low: Operand | None = None, high: Operand | None = None) -> Node:
    result: Node = data
    if low is not None:
        result = call.pointwise("maximum", result, low)
    return result if high is None else call.pointwise("minimum", result, high)


def _clamp_max(call: Call, data: Node, high: Operand) -> Node:
    return _clamp(call, data, None, high)


def _hardtanh(call: Call, data: Node, low: Operand = -1.0, high: Operand = 1.0) -> Node:
    return _clamp(call, data, low, high)


def _leaky_relu(call: Call, data: Node, slope: Operand = 0.01) -> Node:
    scaled = call.pointwise("mul", data, slope)
    return build.pointwise("where", call.pointwise("gt", data, 0, dtype=data.dtype), data, scaled)


def _elu(
    call: Call, data: Node, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Node:
    below = build.mul(build.unary("expm1", build.mul(data, input_scale)), alpha * scale)
    return build.pointwise("where", build.pointwise("gt", data, 0.0), build.mul(data, scale), below)


def _softplus(call: Call, data: Node, beta: float = 1.0, threshold: float = 20.0) -> Node:
    scaled = build.mul(data, beta)
    soft = build.mul(build.unary("log1p", build.unary("exp", scaled)), 1.0 / beta)
    return build.pointwise("where", build.pointwise("gt", scaled, threshold), data, soft)


def _gelu(call: Call, data: Node, approximate: str = "none") -> Node:
    return build.unary("gelu" if approximate == "none" else "gelu_tanh", data)


def _where(call: Call, condition: Node, chosen: Operand, other: Operand) -> Node:
    picked = [call.operand(value, call.dtype) for value in (chosen, other)]
    return call.fill(build.pointwise("where", call.operand(condition, "bool"), *picked))


def _masked_fill(call: Call, data: Node, mask: Node, value: Operand) -> Node:
    return _where(call, mask, value, data)


def _to_copy(call: Call, data: Node, *rest: Any) -> Node:
    return build.cast(data, call.dtype)


def _same(call: Call, data: Node, *rest: Any) -> Node:
    return data


def _copy(call: Call, data: Node, source: Node, *rest: Any) -> Node:
    return call.fill(build.cast(source, call.dtype))


def _fill(call: Call, data: Node, value: Operand) -> Node:
    return call.fill(call.operand(value, call.dtype))


def _addcmul(call: Call, data: Node, left: Node, right: Node, value: Operand = 1) -> Node:
    product = call.pointwise("mul", left, right)
    return _add(call, data, product, value)


def _addcdiv(call: Call, data: Node, left: Node, right: Node, value: Operand = 1) -> Node:
    return _add(call, data, call.pointwise("div", left, right), value)


def _lerp(call: Call, start: Node, end: Node, weight: Operand) -> Node:
    return call.pointwise(
        "add", start, call.pointwise("mul", weight, call.pointwise("sub", end, start))
    )


def _erfc(call: Call, data: Node) -> Node:
    return build.sub(1.0, build.unary("erf", call.operand(data, call.dtype)))


def _ndtr(call: Call, data: Node) -> Node:
    half = build.unary("erf", build.mul(call.operand(data, call.dtype), math.sqrt(0.5)))
    return build.mul(build.add(half, 1.0), 0.5)


def _log10(call: Call, data: Node) -> Node:
    return build.mul(build.unary("log", call.operand(data, call.dtype)), 1 / math.log(10))


def _log_sigmoid(call: Call, data: Node) -> tuple[Node, None]:
    # min(x, 0) - log1p(e^-|x|): exact on both sides.
    fading = build.unary("exp", build.unary("neg", build.unary("abs", wide(data))))
    low = build.pointwise("minimum", wide(data), 0.0)
    return build.cast(build.sub(low, build.unary("log1p", fading)), data.dtype), None


def _is_finite(call: Call, data: Node) -> Node:
    if data.type.kind != "float":
        return call.fill(build.scalar(True, "bool"))
    return build.pointwise("lt", build.unary("abs", data), math.inf)


_IDENTITIES = ("clone", "alias", "detach", "contiguous", "lift_fresh_copy", "lift_fresh")

ROWS: Rows = {
    **_generated(),
    **dict.fromkeys(_IDENTITIES, _same),
    "add": _add,
    "sub": _sub,
    "rsub": _rsub,
    "mul": _mul,
    "div": _div,
    "floor_divide": _floor_divide,
    "fmod": _fmod,
    "remainder": _remainder,
    "pow": _pow,
    "square": _square,
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp_max,
    "hardtanh": _hardtanh,
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "softplus": _softplus,
    "silu": _plain("silu"),
    "gelu": _gelu,
    "where": _where,
    "masked_fill": _masked_fill,
    "_to_copy": _to_copy,
    "copy": _copy,
    "fill": _fill,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "lerp": _lerp,
    "erfc": _erfc,
    "special_ndtr": _ndtr,
    "log10": _log10,
    "log_sigmoid_forward": _log_sigmoid,
    "isfinite": _is_finite,
}
