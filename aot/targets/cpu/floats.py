"""Elementwise rules of floats; f16 and bf16 are computed in f32 and rounded once."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence

from aotc.aot.errors import CompileError
from aotc.aot.targets.cpu.lanes import (
    Lanes,
    Rule,
    as_f32,
    compare,
    from_f32,
    intrinsic_suffix,
    matched,
    result_kind,
    select,
    typed,
)
from aotc.aot.targets.cpu.linear import Lane, float_constant, is_literal, is_vector, scalar_type
from aotc.aot.targets.cpu.math import FUNCTIONS, WIDTHS
from aotc.aot.targets.cpu.math import symbol as math_symbol
from aotc.aot.targets.cpu.ttir import Operation
from aotc.aot.targets.cpu.writer import Operand

_FLOAT_PREDICATES = (
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord",
    "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true",
)  # fmt: skip
_LITERAL_LANE = re.compile(r"0x[0-9A-F]{16}")
LARGEST_SHIFT = 60  # of a divisor's exponent, within which its inverse is far from the limits
_COMPUTED_AS_THEY_ARE = frozenset({"f32", "f64"})


def in_f32(function: Callable[[Lanes, list[Operand]], Operand]) -> Rule:
    """Computes f16 and bf16 in f32 and rounds once."""

    def rule(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
        kind = result_kind(operation)
        given = matched(lanes, operands)
        if kind in _COMPUTED_AS_THEY_ARE:
            return function(lanes, given)
        kinds = [v.type.element for v in operation.operands]
        return from_f32(
            lanes,
            function(lanes, [as_f32(lanes, x, k) for x, k in zip(given, kinds, strict=True)]),
            kind,
        )

    return rule


def _float(name: str, flags: str = "") -> Rule:
    return in_f32(lambda lanes, x: lanes.binary(name, x[0], x[1], flags))


def _add(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    """a + b, not in one with a product: LLVM's `contract` makes multiply-adds of products without
    that flag too, where they are negated, and a value in two places would have two roundings.

    But where a reduction sums its elements.
    """
    is_of_sum = operation.parent is not None and operation.parent.name == "tt.reduce"
    return _float("fadd", "contract " if is_of_sum else "")(lanes, operation, operands)


def _multiply(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    """a · b, never part of a fused multiply-add: a value in two places has one rounding there.

    But where it is a summand alone and a factor a power of two: then it has no rounding.
    """
    is_power = any(_is_power_of_two(lanes.operand(x)) for x in operands)
    is_free = is_power and all(map(_is_sum, operation.results[0].uses))
    return _float("fmul", "contract " if is_free else "")(lanes, operation, operands)


def _is_sum(user: Operation) -> bool:
    """Whether the operation sums its operand along a dimension, as it is or where a mask holds."""
    if user.name == "arith.select":
        return all(map(_is_sum, user.results[0].uses))
    return user.name == "tt.reduce" and user.body.operations[0].name == "arith.addf"


def _is_power_of_two(operand: Operand) -> bool:
    value = _literal_value(operand)
    return value is not None and abs(math.frexp(value)[0]) == 0.5


def _divide(lanes: Lanes, x: list[Operand]) -> Operand:
    """a / b; by one divisor for all lanes, as a · (1 / b), rounded as the quotient is.

    Within an ulp where a or it is near the subnormal numbers, or where all bits of b are ones.
    """
    a, b = x
    known = _literal_divisor(b)
    if known is not None:
        inverse, opposite = (float_constant(each, "f32") for each in (1.0 / known, -known))
        return _divide_by(lanes, a, lanes.splat(inverse), lanes.splat(opposite))
    divisor = lanes.uniform_source(b)
    if divisor is None or is_literal(divisor) or not is_vector(a):
        return lanes.binary("fdiv", a, b)
    scale = _scale(lanes, divisor)
    one = float_constant(1.0, "f64" if divisor.type == "double" else "f32")
    tame = lanes.binary("fmul", divisor, scale)
    inverse = lanes.splat(lanes.binary("fdiv", one, tame))
    opposite = lanes.splat(lanes.writer.emit(f"fneg {tame}", tame.type, [tame]))
    quotient = _divide_by(lanes, a, inverse, opposite)
    return lanes.binary("fmul", quotient, lanes.splat(scale))


def _scale(lanes: Lanes, divisor: Operand) -> Operand:
    """A power of 2 that brings a divisor near the limits to where its inverse is normal."""
    kind = "f64" if divisor.type == "double" else "f32"
    limit, step = (2.0**900, 2.0**200) if kind == "f64" else (2.0**100, 2.0**64)
    size = lanes.writer.call(f"llvm.fabs.{intrinsic_suffix(divisor)}", divisor.type, [divisor])
    is_small = compare(lanes, "fcmp olt", size, float_constant(1 / limit, kind))
    is_large = compare(lanes, "fcmp ogt", size, float_constant(limit, kind))
    one = float_constant(1.0, kind)
    lowered = select(lanes, is_large, float_constant(1 / step, kind), one)
    return select(lanes, is_small, float_constant(step, kind), lowered)


def _literal_value(operand: Operand) -> float | None:
    """The f32 or f64 in all lanes of a literal."""
    lanes = set(_LITERAL_LANE.findall(operand.text)) if is_literal(operand) else set()
    if len(lanes) != 1:
        return None
    (value,) = struct.unpack("<d", bytes.fromhex(lanes.pop()[2:])[::-1])
    return float(value)


def _literal_divisor(operand: Operand) -> float | None:
    """The f32 in all lanes of a literal vector, if dividing by it is worth more than one `fdiv`."""
    value = _literal_value(operand)
    if value is None or scalar_type(operand.type) != "float" or not is_vector(operand):
        return None
    fraction = abs(math.frexp(value)[0])
    is_special = fraction in (0.5, 1 - 2.0**-24)  # LLVM's own; all ones, which Markstein excepts
    is_tame = 2.0**-LARGEST_SHIFT <= abs(value) <= 2.0**LARGEST_SHIFT
    return value if is_tame and not is_special else None


def _divide_by(lanes: Lanes, a: Operand, inverse: Operand, opposite: Operand) -> Operand:
    """a / b rounded as a division is, by its remainder, of 1 / b and -b.

    P. Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor",
    IBM J. Res. Dev. 34 (1990). Zeros and infinities leave no remainder, or one that makes NaN.
    """
    fused = f"llvm.fma.{intrinsic_suffix(a)}"
    near = lanes.binary("fmul", a, inverse)
    rest = lanes.writer.call(fused, a.type, [near, opposite, a])
    exact = lanes.writer.call(fused, a.type, [rest, inverse, near])
    zero = float_constant(0.0, "f64" if scalar_type(a.type) == "double" else "f32")
    has_rest = compare(lanes, "fcmp one", rest, lanes.splat(zero))
    is_number = compare(lanes, "fcmp ord", exact, exact)
    return select(lanes, is_number, select(lanes, has_rest, exact, near), near)


def intrinsic(name: str, flags: str = "") -> Rule:
    return in_f32(
        lambda lanes, x: lanes.writer.call(
            f"llvm.{name}.{intrinsic_suffix(x[0])}", x[0].type, x, flags
        )
    )


def call_math(lanes: Lanes, name: str, operands: Sequence[Operand]) -> Operand:
    """Calls one of the vector functions of `math.py`, which exist for some lanes."""
    kind = operands[0].type
    element = scalar_type(kind)
    if name not in FUNCTIONS.get(element, ()):
        raise CompileError(
            message=f"`{name}` of `{kind}` is not supported by the cpu target, expected f32 or f64"
        )
    width = int(kind[1 : kind.index(" ")]) if is_vector(operands[0]) else 1
    if width in WIDTHS:
        lanes.writer.functions.add((element, name, width))
        return lanes.writer.call(math_symbol(name, width, element), kind, operands)
    wide = [_resize(lanes, x, width, 8) for x in operands]
    return _resize(lanes, call_math(lanes, name, wide), 8, width)


def _resize(lanes: Lanes, operand: Operand, width: int, wanted: int) -> Operand:
    picks = ", ".join(f"i32 {i}" if i < width else "i32 poison" for i in range(wanted))
    kind = f"<{wanted} x {scalar_type(operand.type)}>"
    return lanes.writer.emit(
        f"shufflevector {operand}, {operand.type} poison, <{wanted} x i32> <{picks}>",
        kind,
        [operand],
    )


def _math(name: str) -> Rule:
    return in_f32(lambda lanes, x: call_math(lanes, name, x))


def _negate(lanes: Lanes, x: list[Operand]) -> Operand:
    return lanes.writer.emit(f"fneg {x[0]}", x[0].type, x)


def _rsqrt(lanes: Lanes, x: list[Operand]) -> Operand:
    root = lanes.writer.call(f"llvm.sqrt.{intrinsic_suffix(x[0])}", x[0].type, x)
    one = float_constant(1.0, "f64" if scalar_type(x[0].type) == "double" else "f32")
    return lanes.binary("fdiv", lanes.splat(one) if is_vector(root) else one, root)


PROPAGATE_NAN = 0xFFFF


def _clamp(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    """min(max(x, low), high); of NaN it is NaN where the kernel asks for that, else `low`."""
    keeps_nan = operation.integer("propagateNan") & 0xFFFF == PROPAGATE_NAN
    ends = ("maximum", "minimum") if keeps_nan else ("maxnum", "minnum")

    def clamp(lanes: Lanes, x: list[Operand]) -> Operand:
        suffix = intrinsic_suffix(x[0])
        low = lanes.writer.call(f"llvm.{ends[0]}.{suffix}", x[0].type, x[:2])
        return lanes.writer.call(f"llvm.{ends[1]}.{suffix}", x[0].type, [low, x[2]])

    return in_f32(clamp)(lanes, operation, operands)


def _compare_floats(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    kinds = [v.type.element for v in operation.operands]
    a, b = (as_f32(lanes, x, k) for x, k in zip(matched(lanes, operands), kinds, strict=True))
    return compare(lanes, f"fcmp {_FLOAT_PREDICATES[operation.integer('predicate')]}", a, b)


_DEVICE_INTRINSICS = {
    "fabs": "fabs", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "sqrt": "sqrt",
    "rint": "roundeven", "nearbyint": "roundeven", "round": "round", "copysign": "copysign",
    "fmax": "maxnum", "fmin": "minnum", "fma": "fma",
}  # fmt: skip


def _extern(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    """`__nv_<name>f` as the front end writes libdevice calls for f32."""
    symbol = str(operation.attributes.get("symbol", ""))
    name = symbol.removeprefix("__nv_")
    base = name.removesuffix("f") if operation.operands[0].type.element != "f64" else name
    for candidate in (base, name):
        if candidate in ("isnan", "isinf", "finite", "isfinited"):
            return _classify(lanes, candidate, lanes.operand(operands[0]))
        if candidate == "rsqrt":
            return in_f32(_rsqrt)(lanes, operation, operands)
        if candidate == "fast_fdivide":
            return in_f32(_divide)(lanes, operation, operands)
        if candidate in _DEVICE_INTRINSICS:
            return intrinsic(_DEVICE_INTRINSICS[candidate])(lanes, operation, operands)
        if candidate in FUNCTIONS["float"]:
            return _math(candidate)(lanes, operation, operands)
    raise CompileError(message=f"device function `{symbol}` is not supported by the cpu target")


def _classify(lanes: Lanes, name: str, operand: Operand) -> Lane:
    magnitude = lanes.writer.call(f"llvm.fabs.{intrinsic_suffix(operand)}", operand.type, [operand])
    infinity = float_constant(math.inf, "f32")
    test = {"isnan": "fcmp uno", "isinf": "fcmp oeq"}.get(name, "fcmp olt")
    found = compare(lanes, test, magnitude, operand if name == "isnan" else infinity)
    return typed(lanes, lanes.cast("zext", found, "i32"), "i32", most=1)


RULES: dict[str, Rule] = {
    "arith.addf": _add,
    "arith.subf": _float("fsub"),
    "arith.mulf": _multiply,
    "arith.divf": in_f32(_divide),
    "tt.precise_divf": _float("fdiv"),
    "arith.remf": _math("fmod"),
    "arith.negf": in_f32(_negate),
    "arith.cmpf": _compare_floats,
    "arith.maximumf": intrinsic("maximum"),
    "arith.minimumf": intrinsic("minimum"),
    "arith.maxnumf": intrinsic("maxnum"),
    "arith.minnumf": intrinsic("minnum"),
    "tt.clampf": _clamp,
    "tt.extern_elementwise": _extern,
    "math.absf": intrinsic("fabs"),
    "math.ceil": intrinsic("ceil"),
    "math.floor": intrinsic("floor"),
    "math.fma": intrinsic("fma"),
    "math.sqrt": intrinsic("sqrt"),
    "tt.precise_sqrt": intrinsic("sqrt"),
    "math.rsqrt": in_f32(_rsqrt),
    **{
        f"math.{name}": _math(name)
        for name in ("exp", "exp2", "log", "log2", "sin", "cos", "erf", "tanh")
    },
}
