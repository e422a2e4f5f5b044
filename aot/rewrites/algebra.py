"""Algebra: identities of arithmetic, casts, comparison and logic that hold for every input."""

from __future__ import annotations

import math

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.match import AnyLiteral, any_node, call
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.rounding import is_rounded, rounded
from aotc.aot.ir.rules import Context, Rule, inexact, rule_for
from aotc.aot.ir.types import Scalar, holds_exactly

x, y, z = any_node("x"), any_node("y"), any_node("z")
c, d = AnyLiteral("c"), AnyLiteral("d")
number = any_node("number", lambda node: node.op == "scalar")
other = any_node("other", lambda node: node.op != "scalar")

_MODERATE = 2.0**20  # the largest factor that is taken for an everyday one
# Results of these are never -0.0, so that adding 0.0 changes nothing.
_NEVER_NEGATIVE_ZERO = frozenset({"abs", "exp", "exp2", "sigmoid"})


def _is_integer(x: Node) -> bool:
    return x.type.kind == "int"


def _has_its_shape(root: Node, x: Node) -> bool:
    return _is_integer(x) and root.shape == x.shape


def _adds_nothing(x: Node, c: Scalar) -> bool:
    is_negative_zero = c == 0 and math.copysign(1, c) < 0
    return c == 0 and (is_negative_zero or _is_integer(x) or x.op in _NEVER_NEGATIVE_ZERO)


def _subtracts_nothing(x: Node, c: Scalar) -> bool:
    return c == 0 and (_is_integer(x) or math.copysign(1, c) > 0)


def _lies_between(c: Scalar, d: Scalar) -> bool:
    """x·c·d neither overflows nor vanishes halfway: |c| lies between 1 and |c·d|."""
    product = abs(c * d)
    return math.isfinite(product) and min(1, product) <= abs(c) <= max(1, product) != 0


def _is_moderate(c: Scalar) -> bool:
    """Whether a factor carries no number that is not at its own limits to those of f32."""
    return bool(1 / _MODERATE <= abs(c) <= _MODERATE)


def _are_moderate(x: Node, c: Scalar, d: Scalar) -> bool:
    return x.type.kind == "float" and x.dtype != "f16" and _is_moderate(c) and _is_moderate(d)


def _is_power_of_two(x: Node, c: Scalar) -> bool:
    if x.type.kind != "float" or not math.isfinite(c) or c == 0:
        return False
    mantissa, exponent = math.frexp(c)
    return abs(mantissa) == 0.5 and -100 < exponent < 100 and x.dtype != "f16"


def _is_not_below_zero(x: Node) -> bool:
    """Whether no element is below zero or -0.0, as far as its own op tells; NaN is neither."""
    if x.op == "scalar":
        return bool(math.copysign(1, x.attr("value")) > 0)
    if x.op in _NEVER_NEGATIVE_ZERO:
        return True
    if x.op == "mul" and x.inputs[0] is x.inputs[1]:
        return True
    is_monotone = x.op in ("add", "mul", "sum", "cast", "reshape", "expand")
    return is_monotone and all(map(_is_not_below_zero, x.inputs))


def _is_positive(x: Node) -> bool:
    """Whether every number is above zero: a mean of squares and an epsilon, for one."""
    is_sum = x.op == "add" and any(
        each.op == "scalar" and each.attr("value") > 0 for each in x.inputs
    )
    return is_sum and _is_not_below_zero(x)


def _is_first_computed(x: Node, context: Context) -> bool:
    """Whether x is no constant, whose sign is folded into its numbers."""
    return not context.is_constant(x)


def _is_second_computed(y: Node, context: Context) -> bool:
    return not context.is_constant(y)


def _commuted(op: str) -> Rule:
    def swap(number: Node, other: Node) -> Node:
        """c ∘ x → x ∘ c"""
        return make(op, (other, number))

    return Rule(f"{op}-literal-second", call(op, number, other), swap)


def _odd(op: str) -> Rule:
    def negate(x: Node) -> Node:
        """f(-x) → -f(x)"""
        return -build.unary(op, x)

    return Rule(f"{op}-neg", call(op, -x), negate)


def _multiply_at_depth_one(root: Node) -> Node | None:
    """a · b → each element of the column times each of the row, which takes no kernel of its own"""
    column, row = root.inputs
    return column * row if column.shape[-1] == 1 else None


ARITHMETIC: tuple[Rule, ...] = (
    # a · b → a[m, 0] × b[0, n] for a column a and a row b
    rule_for(("matmul", "matmul_in_order"), "matmul-depth-one", _multiply_at_depth_one),
    # c ∘ x → x ∘ c
    *(_commuted(op.name) for op in OPS.values() if op.is_commutative),
    # x + 0 → x, where the sign of a zero survives
    Rule("add-zero", x + c, lambda x: x, _adds_nothing),
    # x - 0 → x
    Rule("sub-zero", x - c, lambda x: x, _subtracts_nothing),
    # x · 1 → x
    Rule("mul-one", call("mul", x, c), lambda x: x, lambda c: c == 1),
    # x / 1 → x
    Rule("div-one", x / 1.0, lambda x: x),
    # x · -1 → -x
    Rule("mul-minus-one", call("mul", x, c), lambda x: -x, lambda c: c == -1),
    # -(-x) → x
    Rule("neg-neg", call("neg", -x), lambda x: x),
    # x + (-y) → x - y
    Rule("add-neg", x + -y, lambda x, y: make("sub", (x, y)), _is_second_computed),
    # x - (-y) → x + y
    Rule("sub-neg", x - -y, lambda x, y: make("add", (x, y))),
    # (x + y) - y → x, of integers, which wrap around
    Rule("add-sub-same", (x + y) - y, lambda x: x, _has_its_shape),
    # (-x) + y → y - x
    Rule("neg-add", -x + y, lambda x, y: make("sub", (y, x)), _is_first_computed),
    # (-x) · y → -(x · y): signs move outwards, where they meet an add, or another sign
    Rule("mul-neg-first", -x * y, lambda x, y: -(x * y), _is_first_computed),
    # x · (-y) → -(x · y)
    Rule("mul-neg-second", x * -y, lambda x, y: -(x * y), _is_second_computed),
    # (-x) / y → -(x / y)
    Rule("div-neg-first", -x / y, lambda x, y: -(x / y), _is_first_computed),
    # x / (-y) → -(x / y)
    Rule("div-neg-second", x / -y, lambda x, y: -(x / y), _is_second_computed),
    # f(-x) → -f(x) for odd f
    *(_odd(op) for op in ("erf", "tanh", "sin", "reciprocal")),
    # cos(-x) → cos(x)
    Rule("cos-neg", call("cos", -x), lambda x: build.unary("cos", x)),
    # (x · c) · d → x · (c·d)
    inexact(
        "mul-mul-literals",
        call("mul", x * c, d),
        lambda x, c, d: x * (c * d),
        lambda x, c, d: _are_moderate(x, c, d) or (x.type.kind == "float" and _lies_between(c, d)),
    ),
    # (x · c) / d → x · (c/d)
    inexact("mul-div-literals", call("div", x * c, d), lambda x, c, d: x * (c / d), _are_moderate),
    # (x / c) · d → x · (d/c)
    inexact("div-mul-literals", call("mul", x / c, d), lambda x, c, d: x * (d / c), _are_moderate),
    # (x / c) / d → x / (c·d)
    inexact("div-div-literals", call("div", x / c, d), lambda x, c, d: x / (c * d), _are_moderate),
    # (x + c) + d → x + (c+d) for integers
    Rule(
        "add-add-literals",
        call("add", x + c, d),
        lambda x, c, d: x + (c + d),
        lambda x: x.dtype in ("i32", "i64"),
    ),
    # x / c → x · (1/c) for powers of two
    Rule("div-power-of-two", x / c, lambda x, c: x * (1.0 / c), _is_power_of_two),
    # 1 / x → reciprocal(x)
    Rule("reciprocal", 1.0 / x, lambda x: build.unary("reciprocal", x)),
    # reciprocal(sqrt(x)) → rsqrt(x)
    inexact(
        "reciprocal-sqrt", call("reciprocal", call("sqrt", x)), lambda x: build.unary("rsqrt", x)
    ),
    # x / sqrt(y) → x · rsqrt(y)
    inexact(
        "div-sqrt",
        x / call("sqrt", y),
        lambda x, y: x * build.unary("rsqrt", y),
        lambda x: x.type.rank > 0,
    ),
    # x^1 → x
    Rule("pow-one", call("pow", x, 1.0), lambda x: x),
    # x^2 → x · x
    inexact("pow-two", call("pow", x, 2.0), lambda x: x * x),
    # x^3 → (x · x) · x
    inexact("pow-three", call("pow", x, 3.0), lambda x: x * x * x),
    # x^-1 → reciprocal(x)
    inexact("pow-minus-one", call("pow", x, -1.0), lambda x: build.unary("reciprocal", x)),
    # x^½ → sqrt(x) for x > 0
    inexact("pow-half", call("pow", x, 0.5), lambda x: build.unary("sqrt", x), _is_positive),
    # x^-½ → rsqrt(x) for x > 0
    inexact(
        "pow-minus-half", call("pow", x, -0.5), lambda x: build.unary("rsqrt", x), _is_positive
    ),
    # |(-x)| → |x| where x has a sign: of a byte, -x is 256 - x
    Rule("abs-neg", call("abs", -x), lambda x: abs(x), lambda x: x.dtype != "u8"),
    # ||x|| → |x|
    Rule("abs-abs", call("abs", call("abs", x)), lambda x: abs(x)),
    # max(x, 0) → relu(x)
    Rule("maximum-zero", call("maximum", x, c), lambda x: build.unary("relu", x), lambda c: c == 0),
    # relu(relu(x)) → relu(x)
    Rule("relu-relu", call("relu", call("relu", x)), lambda x: build.unary("relu", x)),
)


def _narrow_through(root: Node) -> Node | None:
    """cast(f(cast(x, wide)), narrow) → rounded(f(rounded(x))) for an x of the narrow type"""
    function = root.inputs[0]
    if root.dtype not in ("f16", "bf16") or function.kind != "pointwise" or function.op == "cast":
        return None
    if len(function.inputs) != 1 or function.inputs[0].op != "cast" or function.attrs:
        return None
    (narrow,) = function.inputs[0].inputs
    is_wide = function.dtype == function.inputs[0].dtype == "f32"
    if not is_wide or narrow.dtype != root.dtype:
        return None
    return rounded(make(function.op, (rounded(narrow),)))


def _cast_through(root: Node) -> Node | None:
    """cast(cast(x, wider), t) → cast(x, t), which rounds an x of type t that is not rounded yet"""
    (middle,) = root.inputs
    if middle.op != "cast" or not holds_exactly(middle.inputs[0].dtype, middle.dtype):
        return None
    data = middle.inputs[0]
    return rounded(data) if data.dtype == root.dtype else build.cast(data, root.dtype)


def _cast_same(root: Node) -> Node | None:
    """cast(x, its own type) → x where x is rounded to it"""
    (data,) = root.inputs
    return data if data.dtype == root.dtype and is_rounded(data) else None


CASTS: tuple[Rule, ...] = (
    # cast(x, its own type) → x where x is rounded to it
    rule_for(("cast",), "cast-same", _cast_same),
    # cast(cast(x, wider), t) → cast(x, t)
    rule_for(("cast",), "cast-cast", _cast_through),
    # cast(f(cast(x, f32)), t) → rounded(f(x)) for a rounded x of a 16-bit type t: f is computed in
    # f32 anyway
    rule_for(("cast",), "cast-function", _narrow_through),
    # cast(b, t) ≠ 0 → b for a bool b
    Rule(
        "cast-bool-nonzero",
        call("ne", call("cast", x), c),
        lambda x: x,
        lambda x, c: c == 0 and x.dtype == "bool",
    ),
    # cast(b, t) = 0 → not b for a bool b
    Rule(
        "cast-bool-zero",
        call("eq", call("cast", x), c),
        lambda x: ~x,
        lambda x, c: c == 0 and x.dtype == "bool",
    ),
)


def _opposite(name: str, op: str, negated: str, kinds: tuple[str, ...]) -> Rule:
    def negate(x: Node, y: Node) -> Node:
        """not (x ∘ y) → the opposite comparison of x and y"""
        return make(negated, (x, y))

    def guard(x: Node) -> bool:
        return x.type.kind in kinds

    return Rule(name, call("logical_not", call(op, x, y)), negate, guard)


_TOTAL = ("int", "bool")  # kinds without NaN, whose order is total
_ALL = ("float", *_TOTAL)

LOGIC: tuple[Rule, ...] = (
    # not not b → b
    Rule("not-not", call("logical_not", call("logical_not", x)), lambda x: x),
    # b and true → b
    Rule("and-true", call("logical_and", x, True), lambda x: x),
    # b or false → b
    Rule("or-false", call("logical_or", x, False), lambda x: x),
    # b and b → b
    Rule("and-same", call("logical_and", x, x), lambda x: x),
    # b or b → b
    Rule("or-same", call("logical_or", x, x), lambda x: x),
    # not (x = y) → x ≠ y and so on; an order only where there is no NaN
    _opposite("not-eq", "eq", "ne", _ALL),
    _opposite("not-ne", "ne", "eq", _ALL),
    _opposite("not-lt", "lt", "ge", _TOTAL),
    _opposite("not-ge", "ge", "lt", _TOTAL),
    _opposite("not-le", "le", "gt", _TOTAL),
    _opposite("not-gt", "gt", "le", _TOTAL),
    # where(b, x, x) → x
    Rule("where-same", call("where", y, x, x), lambda x: x),
    # where(true, x, y) → x
    Rule("where-true", call("where", True, x, y), lambda x: x),
    # where(false, x, y) → y
    Rule("where-false", call("where", False, x, y), lambda y: y),
    # where(not b, x, y) → where(b, y, x)
    Rule(
        "where-not",
        call("where", call("logical_not", z), x, y),
        lambda x, y, z: make("where", (z, y, x)),
    ),
)

RULES: tuple[Rule, ...] = (*ARITHMETIC, *CASTS, *LOGIC)
