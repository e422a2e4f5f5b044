"""The operations: one row each, reductions in `reductions.py`.

The meaning of an op is a function of `reference.py` or, where that has none, what the row says of
numpy, which is imported where graphs are run only; else numpy's function of the op's own name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aotc.aot.errors import TypeRuleError
from aotc.aot.ir import call, checks, infer, native
from aotc.aot.ir.infer import AttrMap, Infer, Types
from aotc.aot.ir.reductions import REDUCTIONS, Reduction
from aotc.aot.ir.types import SHORT_FLOATS, TensorType, round_scalar

FLOAT, NUMBER, INTEGRAL = ("float",), ("float", "int"), ("int", "bool")
ANY = ("float", "int", "bool")


@dataclass(frozen=True, slots=True)
class OpDef:
    """What the compiler knows of one operation."""

    name: str
    kind: str  # pointwise, reduce, view … decides how it is scheduled
    operands: int | None  # number of operands; None: at least `fewest`
    rule: Infer
    attributes: tuple[str, ...] = ()
    # Expression of a kernel: `{0}` is an operand, already bound to a name (it may occur twice).
    triton: str = ""
    approximate: str = ""  # approximate_math.py, for 16-bit results on GPUs
    processor: str = ""  # processor_math.py, for all but f64 on CPUs
    short: str = ""  # processor_math.py, for 16-bit results on CPUs
    double: str = ""  # the same of f64, where the first takes f32 only
    floating: str = ""  # the same of floats, where the first is of integers
    rounded: str = ""  # the same of f32 on GPUs, where the first is not rounded correctly there
    # Its meaning: numpy's function of another name, or a function of numpy and the operands.
    numpy: str | Callable[..., Any] = ""
    cost: float = 1.0  # operations for one element of the result (reduce: of the operand)
    aten: tuple[str, ...] = ()  # core ATen ops that are this op once their operands are aligned
    is_commutative: bool = False
    fewest: int = 1
    is_opaque: bool = False  # never computed at build time, though its operands be constants
    # A small change of an operand may change the result by much: kernels, which compute 16-bit
    # values in f32, round such an operand to its type first. So do conversions, by definition.
    is_discontinuous: bool = False
    is_choice: bool = False  # each element is one of an operand's, perhaps with another sign

    def normalize(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """`attrs` with lists as tuples and literals rounded; raises `TypeRuleError` on names."""
        if set(attrs) != set(self.attributes):
            found, expected = sorted(attrs), sorted(self.attributes)
            raise TypeRuleError(f"attributes are {found}, expected {expected}")
        frozen: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in attrs.items()
        }
        if "value" in frozen and "dtype" in frozen:
            # 16-bit arithmetic is done in f32, so its literals keep f32's precision.
            is_short = frozen["dtype"] in SHORT_FLOATS
            frozen["value"] = round_scalar(frozen["value"], "f32" if is_short else frozen["dtype"])
        return frozen

    def infer(self, types: Types, attrs: AttrMap) -> TensorType:
        """Type of the result; raises `TypeRuleError` when the operands do not fit."""
        expected = self.operands
        if len(types) != expected and (expected is not None or len(types) < self.fewest):
            raise TypeRuleError(f"{len(types)} operands, expected {expected or 'some'}")
        return self.rule(types, attrs)


def _leaf(name: str, rule: Infer, *attributes: str) -> OpDef:
    return OpDef(name, name, 0, rule, attributes, cost=0.0)


def _unary(name: str, kinds: tuple[str, ...], triton: str, cost: float = 1.0, **row: Any) -> OpDef:
    aten = row.pop("aten", (name,))
    rule = row.pop("rule", None) or infer.pointwise(*kinds, result=row.pop("result", ""))
    return OpDef(name, "pointwise", 1, rule, triton=triton, cost=cost, aten=aten, **row)


def _binary(name: str, kinds: tuple[str, ...], triton: str, cost: float = 1.0, **row: Any) -> OpDef:
    aten = row.pop("aten", (name,))
    rule = infer.pointwise(*kinds, result=row.pop("result", ""))
    return OpDef(name, "pointwise", 2, rule, triton=triton, cost=cost, aten=aten, **row)


def _compare(name: str, symbol: str, numpy: str, is_commutative: bool = False) -> OpDef:
    triton, row = f"({{0}} {symbol} {{1}})", {"is_commutative": is_commutative, **_STEPS}
    return _binary(name, ANY, triton, result="bool", numpy=numpy, **row)


def _reduce(row: Reduction) -> OpDef:
    return OpDef(
        row.name,
        "reduce",
        1,
        infer.reduce(*row.kinds, result=row.result),
        ("axes",),
        numpy=row.numpy,
        is_discontinuous=row.is_search,
        is_choice=row.is_choice,
    )


def _view(name: str, rule: Infer, *attributes: str, kind: str = "view") -> OpDef:
    return OpDef(name, kind, 1, rule, attributes, cost=0.0, is_choice=True)


_LEAVES: tuple[OpDef, ...] = (
    _leaf("input", infer.declared, "name", "dtype", "shape"),
    _leaf("constant", infer.declared, "name", "dtype", "shape"),
    _leaf("scalar", infer.scalar, "value", "dtype"),
    _leaf("extent", infer.extent, "extent"),
    _leaf("iota", infer.iota, "shape", "axis"),
)

# Triton divides towards zero, torch towards minus infinity: they differ where this holds.
_IS_ROUNDED_UP = "(({0} % {1} != 0) & (({0} < 0) != ({1} < 0)))"
# Half of what the 13 lowest of 24 bits count, and these cut off; NaN may be all ones.
_ROUND_TF32 = (
    "tl.where({0} == {0}, (({0}.to(tl.int32, bitcast=True) + 4096) & -8192)"
    ".to(tl.float32, bitcast=True), {0})"
)
KEEPS_NAN = "propagate_nan=tl.PropagateNan.ALL"
_STEPS: Mapping[str, Any] = {"is_discontinuous": True}
_CHOOSES: Mapping[str, Any] = {"is_choice": True}

_ARITHMETIC: tuple[OpDef, ...] = (
    _binary("add", NUMBER, "({0} + {1})", is_commutative=True),
    _binary("sub", NUMBER, "({0} - {1})", numpy="subtract"),
    _binary("mul", NUMBER, "({0} * {1})", is_commutative=True, numpy="multiply"),
    _binary(
        "div",
        FLOAT,
        "({0} / {1})",
        4.0,
        numpy="divide",
        rounded="tl.math.div_rn({0}, {1})",
    ),
    _binary(
        "floor_divide",
        ("int",),
        f"({{0}} // {{1}} - {_IS_ROUNDED_UP}.to({{0}}.dtype))",
        6.0,
        **_STEPS,
    ),
    _binary(
        "remainder",
        NUMBER,
        f"({{0}} % {{1}} + tl.where({_IS_ROUNDED_UP}, {{1}}, 0))",
        6.0,
        **_STEPS,
    ),
    _binary(
        "pow",
        FLOAT,
        "libdevice.pow({0}, {1})",
        30.0,
        aten=(),
        numpy="power",
    ),
    _binary(
        "maximum", NUMBER, f"tl.maximum({{0}}, {{1}}, {KEEPS_NAN})", is_commutative=True, **_CHOOSES
    ),
    _binary(
        "minimum", NUMBER, f"tl.minimum({{0}}, {{1}}, {KEEPS_NAN})", is_commutative=True, **_CHOOSES
    ),
    # a·b with a power of two b, which loses no bit: no equation of `mul` takes it apart.
    _binary("scale", FLOAT, "({0} * {1})", numpy="multiply", aten=()),
    # a·b + c, rounded once, whatever else is contracted.
    OpDef("fma", "pointwise", 3, infer.pointwise(*FLOAT), triton="tl.fma({0}, {1}, {2})", cost=2.0),
    # Exact, and signed as the first operand.
    _binary("fmod", FLOAT, "libdevice.fmod({0}, {1})", 12.0, aten=(), **_STEPS),
    _binary("atan2", FLOAT, "libdevice.atan2({0}, {1})", 30.0, numpy="arctan2"),
    # Triton's `-x` is 0 - x, which of 0.0 is 0.0.
    _unary("neg", NUMBER, "(-{0})", floating="({0} * -1.0)", numpy="negative", **_CHOOSES),
    _unary("abs", NUMBER, "tl.abs({0})", **_CHOOSES),
    _unary("sign", NUMBER, "(({0} > 0).to({0}.dtype) - ({0} < 0).to({0}.dtype))", 3.0, **_STEPS),
    _unary("floor", FLOAT, "tl.floor({0})", **_STEPS),
    _unary("ceil", FLOAT, "tl.ceil({0})", **_STEPS),
    _unary("round", FLOAT, "libdevice.rint({0})", numpy="rint", **_STEPS),
    _unary("trunc", FLOAT, "libdevice.trunc({0})", **_STEPS),
    # To the nearest number of TF32, of 11 bits, halves away from zero: PTX's `cvt.rna.tf32.f32`.
    _unary("round_tf32", FLOAT, _ROUND_TF32, 4.0, rule=infer.round_tf32, aten=(), **_STEPS),
)

_FUNCTIONS: tuple[OpDef, ...] = (
    _unary("exp", FLOAT, "tl.exp({0})", 12.0),
    _unary("exp2", FLOAT, "tl.exp2({0})", 10.0),
    _binary(
        "ldexp", FLOAT, "({0} * tl.exp2({1}))", 11.0, numpy=lambda numpy, x, n: x * numpy.exp2(n)
    ),
    _unary("expm1", FLOAT, "libdevice.expm1({0})", 16.0),
    _unary("log", FLOAT, "tl.log({0})", 14.0),
    _unary("log2", FLOAT, "tl.log2({0})", 14.0),
    _unary("log1p", FLOAT, "libdevice.log1p({0})", 18.0),
    _unary("sqrt", FLOAT, "tl.sqrt_rn({0})", 6.0, double="tl.sqrt({0})"),
    _unary("rsqrt", FLOAT, "tl.rsqrt({0})", 6.0),
    _unary("reciprocal", FLOAT, "(1.0 / {0})", 4.0, rounded="tl.math.div_rn(1.0, {0})"),
    _unary("sin", FLOAT, "tl.sin({0})", 20.0),
    _unary("cos", FLOAT, "tl.cos({0})", 20.0),
    _unary("tan", FLOAT, "libdevice.tan({0})", 24.0),
    _unary("asin", FLOAT, "libdevice.asin({0})", 20.0, numpy="arcsin"),
    _unary("acos", FLOAT, "libdevice.acos({0})", 20.0, numpy="arccos"),
    _unary("atan", FLOAT, "libdevice.atan({0})", 20.0, numpy="arctan"),
    _unary("sinh", FLOAT, "libdevice.sinh({0})", 24.0),
    _unary("cosh", FLOAT, "libdevice.cosh({0})", 16.0),
    _unary("tanh", FLOAT, "libdevice.tanh({0})", 16.0),
    _unary("sigmoid", FLOAT, "tl.sigmoid({0})", 16.0),
    _unary("erf", FLOAT, "tl.erf({0})", 18.0),
    _unary("erfc", FLOAT, "libdevice.erfc({0})", 24.0),
    _unary("relu", NUMBER, "tl.where({0} < 0, 0, {0})", **_CHOOSES),
    _unary("silu", FLOAT, "({0} * tl.sigmoid({0}))", 17.0, aten=()),
    _unary(
        "gelu",
        FLOAT,
        "(0.5 * {0} * (1.0 + tl.erf({0} * 0.7071067811865476)))",
        22.0,
        aten=(),
        approximate="gelu_approximate({0})",
        processor="gelu_by_tail({0})",
        short="gelu_by_short_tail({0})",
    ),
    _unary(
        "gelu_tanh",
        FLOAT,
        "(0.5 * {0} * (1.0 + libdevice.tanh(0.7978845608028654 * {0} *"
        " (1.0 + 0.044715 * {0} * {0}))))",
        24.0,
        aten=(),
        approximate="({0} * tl.sigmoid(1.5957691216057308 * {0} * (1.0 + 0.044715 * {0} * {0})))",
    ),
)

_LOGIC: tuple[OpDef, ...] = (
    _compare("eq", "==", "equal", is_commutative=True),
    _compare("ne", "!=", "not_equal", is_commutative=True),
    _compare("lt", "<", "less"),
    _compare("le", "<=", "less_equal"),
    _compare("gt", ">", "greater"),
    _compare("ge", ">=", "greater_equal"),
    _binary("logical_and", ("bool",), "({0} & {1})", is_commutative=True),
    _binary("logical_or", ("bool",), "({0} | {1})", is_commutative=True),
    _binary("logical_xor", ("bool",), "({0} ^ {1})", is_commutative=True),
    _unary("logical_not", ("bool",), "({0} == 0)"),
    _binary("bitwise_and", INTEGRAL, "({0} & {1})", is_commutative=True),
    _binary("bitwise_or", INTEGRAL, "({0} | {1})", is_commutative=True),
    _binary("bitwise_xor", INTEGRAL, "({0} ^ {1})", is_commutative=True),
    _unary("bitwise_not", ("int",), "(~{0})"),
    # By 0 to one less than the bits of the type.
    _binary("shift_left", ("int",), "({0} << {1})", aten=(), numpy="left_shift"),
    _binary("shift_right", ("int",), "({0} >> {1})", aten=(), numpy="right_shift"),
    _unary("isnan", FLOAT, "({0} != {0})", result="bool"),
    _unary("isinf", FLOAT, "(tl.abs({0}) == float('inf'))", result="bool", **_STEPS),
    OpDef("where", "pointwise", 3, infer.where, triton="tl.where({0}, {1}, {2})", **_CHOOSES),
    # `lower/literal.py` writes these two. To a 16-bit type from itself: rounds what
    # the kernel has computed in f32.
    OpDef("cast", "pointwise", 1, infer.cast, ("dtype",), **_STEPS),
    # The bits of an element read as another type.
    OpDef("bitcast", "pointwise", 1, infer.bitcast, ("dtype",), cost=0.0, **_STEPS),
)

_RANDOM: tuple[OpDef, ...] = (
    # 32 random bits of (seed, offset, element): word `word` of Philox 4x32-10 whose key is the seed
    # and whose counter is (element, offset, site). `site` numbers the draws of a program.
    OpDef(
        "philox",
        "pointwise",
        3,
        infer.philox,
        ("site", "word"),
        triton="philox_word({0}.to(tl.int64), {1}.to(tl.int64), {2}.to(tl.int64), {site}, {word})",
        cost=100.0,
    ),
)

_MOVEMENT: tuple[OpDef, ...] = (
    _view("reshape", infer.reshape, "shape"),
    _view("permute", infer.permute, "dims"),
    _view("expand", infer.expand, "shape"),
    _view("slice", infer.slice_, "axis", "start", "stop", "step"),
    _view("flip", infer.flip, "axes"),
    # One of `ranks` equal parts along `axis`, of constants only: which one each rank has is said by
    # the weights program, and no rule may know.
    _view("shard", infer.shard, "axis", "ranks", "rank"),
    _view("pad", infer.pad, "low", "high", "value", kind="pad"),
    _view("window", infer.window, "axes", "sizes", "strides", "dilations", kind="window"),
    OpDef("concat", "concat", None, infer.concat, ("axis",), cost=0.0, is_choice=True),
    OpDef("take", "take", 2, infer.take, ("axis",), cost=0.0, is_choice=True),
    OpDef("gather", "gather", 2, infer.gather, ("axis",), cost=0.0, is_choice=True),
)

_SCORES = ("scale", "causal", "offset", "window")
_ATTENTION = (*_SCORES, "softcap", "has_sinks", "is_safe")
_CONTRACTIONS: tuple[OpDef, ...] = (
    OpDef("matmul", "matmul", 2, infer.matmul),
    # One accumulator takes the products in their order, each with one rounding.
    OpDef("matmul_in_order", "matmul", 2, infer.matmul),
    # Of numbers of TF32, which tensor cores of a GPU multiply exactly; sums are of f32.
    OpDef("matmul_tf32", "matmul", 2, infer.matmul_tf32),
    OpDef("matmul_i8", "matmul", 2, infer.matmul_i8),
    OpDef("matmul_packed", "matmul_packed", 2, infer.matmul_packed, ("n",)),
    OpDef(
        "convolution",
        "convolution",
        2,
        infer.convolution,
        ("stride", "padding", "dilation", "groups"),
    ),
    # The gradient of the weights, of the data and the result's gradient.
    OpDef(
        "convolution_weights",
        "convolution",
        2,
        infer.convolution_weights,
        ("stride", "padding", "dilation", "groups", "kernel"),
    ),
    # softmax(cap(q·kᵀ·scale) + mask)·v, where cap(s) = softcap · tanh(s / softcap), or s where that
    # is 0; with `causal`, row t sees keys up to t + offset, with ends those before its end, of
    # which only the last `window` where that is not 0; a row that sees none is zeros if `is_safe`,
    # else not a number. Where it `has_sinks` the last operand is one more score of each row, whose
    # power is in the sum and weighs no value.
    OpDef("attention", "attention", None, infer.attention, _ATTENTION),
)

# What only kernels on memory compute: `rewrites/memory.py` says where their operands lie.
_ON_MEMORY: tuple[OpDef, ...] = (
    # ln Σ e^score of each row of the attention of the same operands.
    OpDef("attention_log_sum_exp", "memory", None, infer.attention_log_sum_exp, _ATTENTION),
    # The gradient of operand `result` from that of the attention of q, k, v and the mask.
    OpDef(
        "attention_backward",
        "memory",
        None,
        infer.attention_backward,
        (*_SCORES, "result"),
    ),
    # data with rows of a source written along `axis` at the places that an index has, or merged by
    # sum, prod, max or min, one after the other; those outside of the data are left out. Of each
    # `distinct` rows, counted from the first one, no two have one place, nor has one of them that
    # of another number in another such part: those with one number among `distinct` are in order,
    # others need not be.
    OpDef("scatter_rows", "memory", 3, infer.scatter_rows, ("axis", "merge", "distinct")),
    # Products over runs of rows that data decides: group g ends before row ends[g], which never
    # falls. Rows by the matrix of their group, zeros past the last end; or left by right over the
    # rows of each group alone.
    OpDef("grouped_matmul", "memory", 3, infer.grouped_matmul),
    # Places along the last axis of the first `wanted` elements in order; equal ones, as 0.0 and
    # -0.0, stay in the order in which they are, and NaN counts as greatest.
    OpDef("order_rows", "memory", 1, infer.order_rows, ("wanted", "descending")),
    # The same elements, in the order in which they are.
    OpDef("select_rows", "memory", 1, infer.order_rows, ("wanted", "descending")),
    # The place in each row `[.., n]` of the last of the first `wanted` elements in that order, or
    # of that at a rank `[.., 1]`; each rank is below `wanted`.
    OpDef("nth_places", "memory", None, infer.nth_places, ("wanted",)),
    # sum over j of x_j · e^(sign · 2 π i j k / n) along the last axis, for the first `keep` k: its
    # real parts (result 0) or imaginary ones (1). Of e^(sign · 2 π i j / n) for each j as `[2, n]`,
    # in the order of the target's kernel, and x: real parts and, but for real numbers, imaginary
    # ones; of these the first n // 2 + 1 where the others are their conjugates in reverse and only
    # real results are wanted. is_real: only result 0 is read. Of reals the imaginary results at no
    # turn and half a turn are 0.
    OpDef("fourier", "memory", None, infer.fourier, ("sign", "keep", "is_real", "result")),
    # One digit of a sort: eight bits of words i64 `[rows, n]`, from bit `shift` on. How often each
    # digit is in each part of a row, of `length` elements; how often up to the end of each part;
    # and the words stably in the order of the digits, given these sums.
    OpDef("count_digits", "memory", 1, infer.count_digits, ("length", "shift")),
    OpDef("sum_digits", "memory", 1, infer.sum_digits),
    OpDef("order_by_digit", "memory", 2, infer.order_by_digit, ("length", "shift")),
    # Words i64 `[rows, n]`, no two of a row alike: each run of `length` in order, and as many such
    # runs beside each other as `ways` in one order.
    OpDef("sort_runs", "memory", 1, infer.sort_runs, ("length",)),
    OpDef("merge_runs", "memory", 1, infer.sort_runs, ("length", "ways")),
    # Counts i32 `[outer, n]` and how many of the places i32 `[outer, m]` are each; those outside
    # are left out.
    OpDef("count_places", "memory", 2, infer.count_places),
    # Sums of runs of rows: `[outer, m, inner]` at rows i32, of which run i begins at starts[i]
    # and ends before starts[i + 1].
    OpDef("sum_runs", "memory", 3, infer.sum_runs),
    # What the ranks of a program that is split over several GPUs give each other: all do the same
    # on values of their own. Row k of the result is what rank k has in this rank's row, or in its
    # one row: all-to-all, or all-gather. A rank that waited in vain has 1 + the number of the
    # silent rank in the second result, i32, and so has every exchange behind it.
    OpDef("exchange", "memory", 2, infer.exchange, ("ranks", "result"), is_opaque=True),
    # Running results along an axis, the first element's and on, or the last one's and back: `kind`
    # is sum, prod, max, min, log_sum (log Σ e^x), or max_place and min_place (of the last of
    # equals, and of every NaN).
    OpDef("scan", "memory", 1, infer.scan, ("kind", "axis", "is_reversed")),
    # The same within each block of so many elements along the axis, of which the last may have
    # fewer.
    OpDef("scan_blocks", "memory", 1, infer.scan, ("kind", "axis", "block")),
)

# What is wrong with each element of an index or divisor, as `checks.py` says; 0: nothing. Only an
# output of a graph, whose kernel stores into a word of the session where anything is wrong.
_CHECKS: tuple[OpDef, ...] = (
    OpDef("check", "check", 1, infer.check, checks.ATTRIBUTES, cost=3.0, is_opaque=True),
)

_CALLS: tuple[OpDef, ...] = (
    OpDef("call", "call", None, call.infer_call, call.ATTRIBUTES, fewest=0, is_opaque=True),
    OpDef("placed", "call", None, call.infer_placed, call.PLACED_ATTRIBUTES, is_opaque=True),
    OpDef("native", "call", None, native.infer_native, native.ATTRIBUTES, fewest=0, is_opaque=True),
    OpDef(
        "torch", "torch", None, call.infer_torch, call.TORCH_ATTRIBUTES, fewest=0, is_opaque=True
    ),
    # One result of graphs that run as data decides, or several times.
    OpDef("control", "control", None, call.infer_control, call.CONTROL_ATTRIBUTES, is_opaque=True),
    # Memory of its own with the operand's elements, which a call then updates; equal copies with
    # different tags are different memory.
    _unary("copy", ANY, "{0}", 0.0, attributes=("tag",), is_opaque=True, aten=()),
)

OPS: dict[str, OpDef] = {
    row.name: row
    for row in (
        *_LEAVES,
        *_ARITHMETIC,
        *_FUNCTIONS,
        *_LOGIC,
        *_RANDOM,
        *map(_reduce, REDUCTIONS.values()),
        *_MOVEMENT,
        *_CONTRACTIONS,
        *_ON_MEMORY,
        *_CHECKS,
        *_CALLS,
    )
}
