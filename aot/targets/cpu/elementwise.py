"""Elementwise operations on lane values: one row of a table for each operation of Triton IR."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from aotc.aot.errors import CompileError
from aotc.aot.targets.cpu.lanes import (
    LLVM_TYPES,
    Int,
    Lane,
    Lanes,
    Linear,
    Pointer,
    float_constant,
    integer,
    is_literal,
    is_vector,
    scalar_type,
)
from aotc.aot.targets.cpu.math import FUNCTIONS
from aotc.aot.targets.cpu.math import symbol as math_symbol
from aotc.aot.targets.cpu.ttir import Operation
from aotc.aot.targets.cpu.writer import Operand, constant

Rule: TypeAlias = Callable[[Lanes, Operation, Sequence[Lane]], Lane]

LINEAR_KINDS = ("i32", "i64")
"""Integer types kept as linear forms; the others are plain operands."""

_INTEGER_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_FLOAT_PREDICATES = (
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord",
    "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true",
)  # fmt: skip

_WIDE_MATH = frozenset({"f32", "f64"})


def typed(lanes: Lanes, operand: Operand, kind: str, *, natural: bool = False) -> Lane:
    """An operand as the lane value that its Triton element type asks for."""
    return lanes.atom(operand, kind, natural=natural) if kind in LINEAR_KINDS else operand


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
    bits = lanes.cast("bitcast", operand, "i32")
    odd = lanes.binary("and", lanes.binary("lshr", bits, constant(16, "i32")), constant(1, "i32"))
    rounded = lanes.binary("add", lanes.binary("add", bits, odd), constant(0x7FFF, "i32"))
    half = lanes.cast("trunc", lanes.binary("lshr", rounded, constant(16, "i32")), "i16")
    nan = compare(lanes, "fcmp uno", operand, operand)
    return select(lanes, nan, constant(0x7FC0, "i16"), half)


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


def _match(lanes: Lanes, operands: Sequence[Lane]) -> list[Operand]:
    found = [lanes.operand(x) for x in operands]
    if any(is_vector(x) for x in found):
        found = [lanes.splat(x) for x in found]
    return found


# --------------------------------------------------------------------- integers


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
        made = lanes.binary(
            name, *_match(lanes, operands), can_fault=name.endswith(("div", "rem"))
        )
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
    if mask is not None and mask >= 0 and mask & (mask + 1) == 0 and a.base.natural and a.stride.natural:
        return lanes.divide(a, integer(mask + 1, a.kind), remainder=True)
    return None


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
        x, y = _match(lanes, operands)
        made = lanes.writer.call(f"llvm.{'s' if signed else 'u'}{name[:3]}.{_suffix(x)}", x.type, [x, y])
        return typed(lanes, made, kind, natural=natural)

    return rule


def _suffix(operand: Operand) -> str:
    """Name suffix of an overloaded intrinsic: `<16 x float>` → `v16f32`."""
    names = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}
    kind = scalar_type(operand.type)
    count = f"v{operand.type[1 : operand.type.index(' ')]}" if is_vector(operand) else ""
    return count + names.get(kind, kind)


def _compare_integers(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    predicate = operation.integer("predicate")
    a, b = operands
    if isinstance(a, Int) and isinstance(b, Int):
        difference = lanes.add(a, b, -1)
        if difference.constant is not None and predicate < 6:
            d = difference.constant
            truth = (d == 0, d != 0, d < 0, d <= 0, d > 0, d >= 0)[predicate]
            return constant("true" if truth else "false", "i1")
    return compare(lanes, f"icmp {_INTEGER_PREDICATES[predicate]}", *_match(lanes, operands))


def _multiply_high(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    kind = result_kind(operation)
    bits = int(kind[1:])
    a, b = (lanes.cast("zext", x, f"i{2 * bits}") for x in _match(lanes, operands))
    product = lanes.binary("mul", a, b)
    high = lanes.binary("lshr", product, constant(bits, f"i{2 * bits}"))
    return typed(lanes, lanes.cast("trunc", high, LLVM_TYPES[kind]), kind)


# ----------------------------------------------------------------------- floats


def _in_f32(function: Callable[[Lanes, list[Operand]], Operand]) -> Rule:
    """Computes f16 and bf16 in f32 and rounds once."""

    def rule(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
        kind = result_kind(operation)
        matched = _match(lanes, operands)
        if kind in _WIDE_MATH:
            return function(lanes, matched)
        kinds = [v.type.element for v in operation.operands]
        return from_f32(lanes, function(lanes, [as_f32(lanes, x, k) for x, k in zip(matched, kinds, strict=True)]), kind)

    return rule


def _float(name: str, flags: str = "contract ") -> Rule:
    return _in_f32(lambda lanes, x: lanes.binary(name, x[0], x[1], flags))


def _intrinsic(name: str, flags: str = "") -> Rule:
    return _in_f32(lambda lanes, x: lanes.writer.call(f"llvm.{name}.{_suffix(x[0])}", x[0].type, x, flags))


def call_math(lanes: Lanes, name: str, operands: Sequence[Operand]) -> Operand:
    """Calls one of the vector functions of `math.py`, which exist for 1, 8 and 16 lanes of f32."""
    kind = operands[0].type
    if scalar_type(kind) != "float":
        raise CompileError(message=f"`{name}` of `{kind}` is not supported by the cpu target, expected f32")
    width = int(kind[1 : kind.index(" ")]) if is_vector(operands[0]) else 1
    if width in (1, 8, 16):
        lanes.writer.functions.add((name, width))
        return lanes.writer.call(math_symbol(name, width), kind, operands)
    wide = [_resize(lanes, x, width, 8) for x in operands]
    return _resize(lanes, call_math(lanes, name, wide), 8, width)


def _resize(lanes: Lanes, operand: Operand, width: int, wanted: int) -> Operand:
    picks = ", ".join(f"i32 {i}" if i < width else "i32 poison" for i in range(wanted))
    kind = f"<{wanted} x float>"
    return lanes.writer.emit(
        f"shufflevector {operand}, {operand.type} poison, <{wanted} x i32> <{picks}>", kind, [operand]
    )


def _math(name: str) -> Rule:
    return _in_f32(lambda lanes, x: call_math(lanes, name, x))


def _negate(lanes: Lanes, x: list[Operand]) -> Operand:
    return lanes.writer.emit(f"fneg {x[0]}", x[0].type, x)


def _rsqrt(lanes: Lanes, x: list[Operand]) -> Operand:
    root = lanes.writer.call(f"llvm.sqrt.{_suffix(x[0])}", x[0].type, x)
    one = float_constant(1.0, "f64" if scalar_type(x[0].type) == "double" else "f32")
    return lanes.binary("fdiv", lanes.splat(one) if is_vector(root) else one, root)


def _clamp(lanes: Lanes, x: list[Operand]) -> Operand:
    low = lanes.writer.call(f"llvm.maxnum.{_suffix(x[0])}", x[0].type, x[:2])
    return lanes.writer.call(f"llvm.minnum.{_suffix(x[0])}", x[0].type, [low, x[2]])


def _compare_floats(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    kinds = [v.type.element for v in operation.operands]
    a, b = (as_f32(lanes, x, k) for x, k in zip(_match(lanes, operands), kinds, strict=True))
    return compare(lanes, f"fcmp {_FLOAT_PREDICATES[operation.integer('predicate')]}", a, b)


# ------------------------------------------------------------------ conversions


def _float_to_float(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    source, wanted = operation.operands[0].type.element, result_kind(operation)
    value = as_f32(lanes, lanes.operand(operands[0]), source)
    if source == "f64" and wanted != "f64":
        value = lanes.cast("fptrunc", value, "float")
    if wanted == "f64":
        return value if source == "f64" else lanes.cast("fpext", value, "double")
    return from_f32(lanes, value, wanted)


def _integer_to_float(name: str) -> Rule:
    def rule(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
        wanted = result_kind(operation)
        wide = "double" if wanted == "f64" else "float"
        return from_f32(lanes, lanes.cast(name, lanes.operand(operands[0]), wide), wanted)

    return rule


def _float_to_integer(name: str) -> Rule:
    def rule(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
        kind = result_kind(operation)
        source = operation.operands[0].type.element
        value = as_f32(lanes, lanes.operand(operands[0]), source)
        return typed(lanes, lanes.cast(name, value, LLVM_TYPES[kind]), kind)

    return rule


def _resize_integer(name: str) -> Rule:
    def rule(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
        a = operands[0]
        kind = result_kind(operation)
        if isinstance(a, Int) and kind in LINEAR_KINDS:
            return lanes.extend(a, kind, signed=name != "zext")
        return typed(lanes, lanes.cast(name, lanes.operand(a), LLVM_TYPES[kind]), kind, natural=name == "zext")

    return rule


def _bitcast(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    a, wanted = operands[0], operation.results[0].type
    if isinstance(a, Pointer):
        if a.element == wanted.pointee or {a.element, wanted.pointee} == {"i1", "i8"}:
            return a._replace(element=wanted.pointee)
        if a.offset.is_uniform:
            return Pointer(lanes.operand(a), integer(0, "i64"), wanted.pointee)
        return lanes.operand(a)
    source = operation.operands[0].type.element
    operand = lanes.operand(a)
    if {source, wanted.element} <= {"bf16", "i16"} or wanted.is_pointer:
        return operand
    return typed(lanes, lanes.cast("bitcast", operand, LLVM_TYPES[wanted.element]), wanted.element)


def _pointer_to_integer(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    return lanes.atom(lanes.cast("ptrtoint", lanes.operand(operands[0]), "i64"), "i64")


def _integer_to_pointer(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    made = lanes.cast("inttoptr", lanes.operand(operands[0]), "ptr")
    if is_vector(made):
        return made
    return Pointer(made, integer(0, "i64"), operation.results[0].type.pointee)


def _add_pointer(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    pointer, offset = operands
    assert isinstance(offset, Int)
    if isinstance(pointer, Pointer):
        moved = lanes.add(pointer.offset, lanes.extend(offset, "i64"))
        return pointer._replace(offset=moved)
    amount = lanes.splat(lanes.operand(lanes.extend(offset, "i64")))
    element = LLVM_TYPES[operation.results[0].type.pointee]
    base = lanes.operand(pointer)
    return lanes.writer.emit(f"getelementptr {element}, {base}, {amount}", base.type, [base, amount])


def _select(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    condition, a, b = operands
    test = lanes.operand(condition)
    if test.text in ("true", "false"):
        return a if test.text == "true" else b
    kind = result_kind(operation)
    made = select(lanes, test, lanes.operand(a), lanes.operand(b))
    if isinstance(a, Pointer) and not is_vector(made):
        return Pointer(made, integer(0, "i64"), a.element)
    natural = isinstance(a, Int) and isinstance(b, Int) and all(
        x.base.natural and x.stride.natural for x in (a, b)
    )
    return typed(lanes, made, kind, natural=natural)


# ------------------------------------------------- functions of `libdevice`

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
            return _in_f32(_rsqrt)(lanes, operation, operands)
        if candidate == "fmod":
            return _float("frem", "")(lanes, operation, operands)
        if candidate in _DEVICE_INTRINSICS:
            return _intrinsic(_DEVICE_INTRINSICS[candidate])(lanes, operation, operands)
        if candidate in FUNCTIONS:
            return _math(candidate)(lanes, operation, operands)
    raise CompileError(message=f"device function `{symbol}` is not supported by the cpu target")


def _classify(lanes: Lanes, name: str, operand: Operand) -> Lane:
    magnitude = lanes.writer.call(f"llvm.fabs.{_suffix(operand)}", operand.type, [operand])
    infinity = float_constant(math.inf, "f32")
    test = {"isnan": "fcmp uno", "isinf": "fcmp oeq"}.get(name, "fcmp olt")
    found = compare(lanes, test, magnitude, operand if name == "isnan" else infinity)
    return lanes.atom(lanes.cast("zext", found, "i32"), "i32", natural=True)


RULES: dict[str, Rule] = {
    "arith.addi": _integer("add", lambda lanes, a, b: lanes.add(a, b)),
    "arith.subi": _integer("sub", lambda lanes, a, b: lanes.add(a, b, -1)),
    "arith.muli": _integer("mul", lambda lanes, a, b: lanes.multiply(a, b)),
    "arith.divsi": _integer("sdiv", lambda lanes, a, b: lanes.divide(a, b, remainder=False)),
    "arith.divui": _integer("udiv", lambda lanes, a, b: lanes.divide(a, b, remainder=False, signed=False)),
    "arith.remsi": _integer("srem", lambda lanes, a, b: lanes.divide(a, b, remainder=True)),
    "arith.remui": _integer("urem", lambda lanes, a, b: lanes.divide(a, b, remainder=True, signed=False)),
    "arith.andi": _integer("and", _and),
    "arith.ori": _integer("or"),
    "arith.xori": _integer("xor"),
    "arith.shli": _integer("shl", _shift_left),
    "arith.shrsi": _integer("ashr", _shift_right),
    "arith.shrui": _integer("lshr", _shift_right),
    **{f"arith.{name}": _extreme(name) for name in ("maxsi", "minsi", "maxui", "minui")},
    "arith.cmpi": _compare_integers,
    "arith.addf": _float("fadd"),
    "arith.subf": _float("fsub"),
    "arith.mulf": _float("fmul"),
    "arith.divf": _float("fdiv", ""),
    "tt.precise_divf": _float("fdiv", ""),
    "arith.remf": _float("frem", ""),
    "arith.negf": _in_f32(_negate),
    "arith.cmpf": _compare_floats,
    "arith.maximumf": _intrinsic("maximum"),
    "arith.minimumf": _intrinsic("minimum"),
    "arith.maxnumf": _intrinsic("maxnum"),
    "arith.minnumf": _intrinsic("minnum"),
    "tt.clampf": _in_f32(_clamp),
    "arith.extf": _float_to_float,
    "arith.truncf": _float_to_float,
    "tt.fp_to_fp": _float_to_float,
    "arith.sitofp": _integer_to_float("sitofp"),
    "arith.uitofp": _integer_to_float("uitofp"),
    "arith.fptosi": _float_to_integer("fptosi"),
    "arith.fptoui": _float_to_integer("fptoui"),
    "arith.extsi": _resize_integer("sext"),
    "arith.extui": _resize_integer("zext"),
    "arith.trunci": _resize_integer("trunc"),
    "arith.bitcast": _bitcast,
    "tt.bitcast": _bitcast,
    "tt.ptr_to_int": _pointer_to_integer,
    "tt.int_to_ptr": _integer_to_pointer,
    "tt.addptr": _add_pointer,
    "arith.select": _select,
    "tt.mulhiui": _multiply_high,
    "tt.extern_elementwise": _extern,
    "math.absf": _intrinsic("fabs"),
    "math.ceil": _intrinsic("ceil"),
    "math.floor": _intrinsic("floor"),
    "math.fma": _intrinsic("fma"),
    "math.sqrt": _intrinsic("sqrt"),
    "tt.precise_sqrt": _intrinsic("sqrt"),
    "math.rsqrt": _in_f32(_rsqrt),
    **{f"math.{name}": _math(name) for name in ("exp", "exp2", "log", "log2", "sin", "cos", "erf", "tanh")},
}


def is_natural_zero(lane: Lane) -> bool:
    """The lane value is the literal zero."""
    if isinstance(lane, Int):
        return lane.constant == 0 and lane.stride == Linear()
    return isinstance(lane, Operand) and is_literal(lane) and lane.text in ("0", "0x0000000000000000", "0xH0000")
