"""Elementwise operations on lane values: one row of a table for each operation of Triton IR.

Integers keep linear forms where they can, and are instructions elsewhere; f16 and bf16 are computed
in f32 and rounded once.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator, Sequence

from aotc.aot.targets.cpu.lanes import (
    LINEAR_KINDS,
    Lanes,
    Rule,
    as_f32,
    compare,
    fenced,
    from_f32,
    intrinsic_suffix,
    matched,
    narrowed,
    result_kind,
    select,
    shuffled,
    typed,
)
from aotc.aot.targets.cpu.linear import (
    EIGHT_BITS,
    LLVM_TYPES,
    Int,
    Lane,
    Pointer,
    float_constant,
    integer,
    is_literal,
    is_vector,
    number,
    scalar_type,
)
from aotc.aot.targets.cpu.math import DEVICE_FUNCTION, WIDTHS
from aotc.aot.targets.cpu.math import symbol as math_symbol
from aotc.aot.targets.cpu.math.device import DEVICE
from aotc.aot.targets.cpu.math.functions import FUNCTIONS
from aotc.aot.targets.cpu.ttir import Operation, unsupported
from aotc.aot.targets.cpu.writer import Operand, constant

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
        raise unsupported(f"`{name}` of `{kind}`", ", expected f32 or f64")
    width = int(kind[1 : kind.index(" ")]) if is_vector(operands[0]) else 1
    if width > lanes.function_lanes:
        return _by_halves(lanes, operands, width, lambda rows: call_math(lanes, name, rows))
    if width in WIDTHS:
        lanes.writer.functions.add((element, name, width))
        return lanes.writer.call(math_symbol(name, width, element), kind, operands)
    wide = [_resize(lanes, x, width, 8) for x in operands]
    return _resize(lanes, call_math(lanes, name, wide), 8, width)


def _by_halves(
    lanes: Lanes,
    operands: Sequence[Operand],
    width: int,
    call: Callable[[list[Operand]], Operand],
) -> Operand:
    """A function of more lanes than it has a form for."""
    halves = range(width // 2), range(width // 2, width)
    found = [call([shuffled(lanes.writer, [x], half) for x in operands]) for half in halves]
    return shuffled(lanes.writer, found, range(width))


def _resize(lanes: Lanes, operand: Operand, width: int, wanted: int) -> Operand:
    places = [place if place < width else -1 for place in range(wanted)]
    return shuffled(lanes.writer, [operand], places)


def _math(name: str) -> Rule:
    return in_f32(lambda lanes, x: call_math(lanes, name, x))


def _rsqrt(lanes: Lanes, x: list[Operand]) -> Operand:
    root = lanes.writer.call(f"llvm.sqrt.{intrinsic_suffix(x[0])}", x[0].type, x)
    one = float_constant(1.0, "f64" if scalar_type(x[0].type) == "double" else "f32")
    return lanes.binary("fdiv", lanes.splat(one) if is_vector(root) else one, root)


PROPAGATE_NAN = 0xFFFF
TOWARDS_ZERO = 0


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


# Of both types: intrinsics of LLVM and rules that know more than the operands' values.
_OF_BOTH_TYPES: dict[str, Rule] = {
    **{name: intrinsic(name) for name in ("fabs", "floor", "ceil", "trunc", "sqrt", "round")},
    **{name: intrinsic("roundeven") for name in ("rint", "nearbyint")},
    **{name: intrinsic(name) for name in ("copysign", "fma")},
    **{name: intrinsic(f"{name[1:]}num") for name in ("fmax", "fmin")},
    "rsqrt": in_f32(_rsqrt),
}
_FAST = ("sin", "cos", "tan", "exp", "log", "log2", "pow")


def _device_rules() -> Iterator[tuple[str, Rule]]:
    """Functions of devices by their names without `__nv_`, those of `DEVICE` aside."""
    for name in FUNCTIONS["float"]:
        yield name, _math(name)
        yield f"{name}f", _math(name)
    for name, rule in _OF_BOTH_TYPES.items():
        yield name, rule
        yield f"{name}f", rule
    for name in _FAST:
        yield f"fast_{name}f", _math(name)
    yield "fast_fdividef", in_f32(_divide)


_DEVICE_RULES = dict(_device_rules())


def _extern(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    """`__nv_<name>`, as the front end writes calls of libdevice's functions.

    Raises CompileError where the name, or the types that it is called with, are in no table.
    """
    symbol = str(operation.attributes.get("symbol", ""))
    name = symbol.removeprefix("__nv_")
    if name in _DEVICE_RULES:
        return _DEVICE_RULES[name](lanes, operation, operands)
    row, kind = DEVICE.get(name), result_kind(operation)
    given = tuple(LLVM_TYPES[value.type.element] for value in operation.operands)
    if row is None or row.operands != given:
        of = f" of {', '.join(given)}" if row else ""
        raise unsupported(f"device function `{symbol}`{of}")
    return typed(lanes, _call_device(lanes, name, matched(lanes, operands), kind), kind)


def _call_device(lanes: Lanes, name: str, operands: list[Operand], kind: str) -> Operand:
    """Calls a function of `DEVICE`; of a number of lanes that it has no form for, with more."""
    width = int(operands[0].type[1:].split(" ")[0]) if is_vector(operands[0]) else 1
    if width > lanes.function_lanes:
        return _by_halves(
            lanes, operands, width, lambda rows: _call_device(lanes, name, rows, kind)
        )
    wanted = next(each for each in WIDTHS if each >= width)
    if wanted > width:
        operands = [_resize(lanes, x, width, wanted) for x in operands]
    element = LLVM_TYPES[kind]
    result = element if wanted == 1 else f"<{wanted} x {element}>"
    lanes.writer.functions.add((DEVICE_FUNCTION, name, wanted))
    found = lanes.writer.call(math_symbol(name, wanted, DEVICE_FUNCTION), result, operands)
    return _resize(lanes, found, wanted, width) if wanted > width else found


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
        truths = _known_orders(lanes, a, b, predicate)
        if len(set(truths)) == 1:
            return constant("true" if truths[0] else "false", "i1")
        if truths:
            texts = ["true" if each else "false" for each in truths]
            return Operand(lanes.literal(texts, "i1"), lanes.vector_type("i1"))
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


def _known_orders(lanes: Lanes, a: Int, b: Int, predicate: int) -> list[bool]:
    """The same lane by lane, of numbers that are the same at every place; empty where they are not.

    Each is known where both sides are lanes of small known numbers alone."""
    left, right = lanes.steps_of(a), lanes.steps_of(b)
    if left is None or right is None or predicate >= 6:
        return []
    if left[0].terms or right[0].terms or not (a.cannot_wrap and b.cannot_wrap):
        return []
    differences = (
        left[0].constant + one - right[0].constant - other
        for one, other in zip(left[1], right[1], strict=True)
    )
    return [(d == 0, d != 0, d < 0, d <= 0, d > 0, d >= 0)[predicate] for d in differences]


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


def _float_to_float(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    source, wanted = operation.operands[0].type.element, result_kind(operation)
    value = as_f32(lanes, lanes.operand(operands[0]), source)
    if source == "f64" and wanted != "f64":
        value = fenced(lanes, lanes.cast("fptrunc", value, "float"))
    if wanted == "f64":
        return value if source == "f64" else lanes.cast("fpext", value, "double")
    if wanted in EIGHT_BITS:
        is_cut = operation.attributes.get("rounding") == TOWARDS_ZERO
        return narrowed(lanes, value, EIGHT_BITS[wanted], towards_zero=is_cut)
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
            return lanes.convert(a, kind, signed=name != "zext")
        source = int(operation.operands[0].type.element[1:])
        return typed(
            lanes,
            lanes.cast(name, lanes.operand(a), LLVM_TYPES[kind]),
            kind,
            most=(1 << source) - 1 if name == "zext" else None,
        )

    return rule


def _bitcast(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    a, wanted = operands[0], operation.results[0].type
    if isinstance(a, Pointer):
        if a.element == wanted.pointee or {a.element, wanted.pointee} == {"i1", "i8"}:
            return a._replace(element=wanted.pointee)
        if a.offset.is_uniform:
            return Pointer(lanes.operand(a), integer(0, "i64"), wanted.pointee)
        return lanes.values(a)
    source = operation.operands[0].type.element
    operand = lanes.operand(a)
    if wanted.is_pointer:
        return operand
    if LLVM_TYPES[source] == LLVM_TYPES[wanted.element]:
        return typed(lanes, operand, wanted.element)
    return typed(lanes, lanes.cast("bitcast", operand, LLVM_TYPES[wanted.element]), wanted.element)


def _integer_to_pointer(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    made = lanes.cast("inttoptr", lanes.operand(operands[0]), "ptr")
    if is_vector(made):
        return made
    return Pointer(made, integer(0, "i64"), operation.results[0].type.pointee)


def _add_pointer(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    pointer, offset = operands
    if not isinstance(offset, Int):
        wide = lanes.cast("sext", lanes.operand(offset), "i64")
        if is_vector(wide):
            return _moved_by_lanes(lanes, operation, pointer, wide)
        offset = lanes.atom(wide, "i64")
    if isinstance(pointer, Pointer):
        moved = pointer.at(lanes.add(pointer.offset, lanes.extend(offset, "i64")))
        is_whole = offset.kind == "i32" and pointer.offset == integer(0, "i64")
        return moved._replace(narrow=offset) if is_whole else moved
    amount = lanes.splat(lanes.operand(lanes.extend(offset, "i64")))
    return _moved_by_lanes(lanes, operation, pointer, amount)


def _moved_by_lanes(lanes: Lanes, operation: Operation, pointer: Lane, amount: Operand) -> Operand:
    base = lanes.splat(lanes.values(pointer))
    return lanes.moved(base, amount, operation.results[0].type.pointee)


def _select(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    condition, a, b = operands
    test = lanes.operand(condition)
    if test.text in ("true", "false"):
        return a if test.text == "true" else b
    kind = result_kind(operation)
    made = select(lanes, test, lanes.values(a), lanes.values(b))
    if isinstance(a, Pointer) and not is_vector(made):
        return Pointer(made, integer(0, "i64"), a.element)
    most = None
    if isinstance(a, Int) and isinstance(b, Int) and a.natural and b.natural:
        most = _most_of_extreme(a, b, is_max=True)
    return typed(lanes, made, kind, most=most)


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
    "arith.addf": _add,
    "arith.subf": _float("fsub"),
    "arith.mulf": _multiply,
    "arith.divf": in_f32(_divide),
    "tt.precise_divf": _float("fdiv"),
    "arith.remf": _math("fmod"),
    "arith.negf": in_f32(lambda lanes, x: lanes.writer.emit(f"fneg {x[0]}", x[0].type, x)),
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
    "tt.ptr_to_int": lambda lanes, operation, x: lanes.atom(
        lanes.cast("ptrtoint", lanes.values(x[0]), "i64"), "i64"
    ),
    "tt.int_to_ptr": _integer_to_pointer,
    "tt.addptr": _add_pointer,
    "arith.select": _select,
}
