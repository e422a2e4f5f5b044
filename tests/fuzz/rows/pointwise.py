"""Pointwise ops: arithmetic, comparisons, bits, conversions between element types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fuzz.draw import Draw
from fuzz.program import ANY, FLOATS, INTEGERS, NUMBERS, SIGNED, Dtype
from fuzz.rows.row import Op

Arguments = Mapping[str, Any]
WHOLE = (*INTEGERS, "bool")
SIGNED_NUMBERS = (*FLOATS, *SIGNED)


def _unary(name: str, text: str, dtypes: Sequence[str], **more: Any) -> Op:
    def draw(d: Draw) -> Arguments:
        return {"x": d.pick(dtypes=dtypes).ref}

    return Op(name, more.pop("family", "pointwise"), text, draw, **more)


def _binary(name: str, text: str, dtypes: Sequence[str], **more: Any) -> Op:
    """Two tensors, of one element type or mixed; now and then a number."""

    def draw(d: Draw) -> Arguments:
        x = d.pick(dtypes=dtypes)
        y = d.matching(x, (x.dtype,) if d.chance(0.5) else dtypes)
        return {"x": x.ref, "y": y.ref}

    return Op(name, more.pop("family", "pointwise"), text, draw, **more)


def _with_number(name: str, text: str, dtypes: Sequence[str], **more: Any) -> Op:
    def draw(d: Draw) -> Arguments:
        x = d.pick(dtypes=dtypes)
        kind = x.dtype if d.chance(0.7) else "f32"
        return {"x": x.ref, "n": d.number(kind)}

    return Op(name, more.pop("family", "pointwise"), text, draw, **more)


def _shift(d: Draw) -> Arguments:
    x = d.pick(dtypes=INTEGERS)
    y = d.matching(x, INTEGERS)
    return {"x": x.ref, "y": y.ref, "most": 7}


def _divide(d: Draw) -> Arguments:
    """Integers by what is not zero."""
    x = d.pick(dtypes=INTEGERS)
    y = d.matching(x, INTEGERS)
    return {"x": x.ref, "y": y.ref}


def _has_quotient(x: torch.Tensor, y: torch.Tensor) -> bool:
    """The smallest integer by -1 has none of its type: eager torch ends the process there."""
    kind = torch.result_type(x, y)
    return not bool(((x.to(kind) == torch.iinfo(kind).min) & ((y | 1) == -1)).any())


def _float_divide(d: Draw) -> Arguments:
    x = d.pick(dtypes=FLOATS)
    y = d.matching(x, FLOATS)
    return {"x": x.ref, "y": y.ref, "mode": d.one_of((None, "floor", "trunc"))}


def _clamp(d: Draw) -> Arguments:
    x = d.pick(dtypes=NUMBERS)
    low = d.integer(0, 2) if x.dtype == "u8" else d.number(x.dtype)
    return {"x": x.ref, "low": low, "high": low + abs(d.number(x.dtype))}


def _convert(d: Draw) -> Arguments:
    x = d.pick()
    return {"x": x.ref, "dtype": Dtype(d.dtype(ANY), is_rounding=True)}


def _convert_integers(d: Draw) -> Arguments:
    """To integers from what fits: the cast of other floats is the processor's affair."""
    x = d.pick(dtypes=FLOATS)
    return {"x": x.ref, "dtype": Dtype(d.one_of(INTEGERS))}


def _convert_whole(d: Draw) -> Arguments:
    x = d.pick(dtypes=WHOLE)
    return {"x": x.ref, "dtype": Dtype(d.dtype(ANY), is_rounding=True)}


def _convert_float(d: Draw) -> Arguments:
    x = d.pick(dtypes=FLOATS)
    return {"x": x.ref, "dtype": Dtype(d.one_of((*FLOATS, "bool")), is_rounding=True)}


def _view_bits(d: Draw) -> Arguments:
    pairs = {"f32": "i32", "i32": "f32", "f16": "i16", "i16": "bf16", "i8": "u8", "u8": "i8"}
    x = d.pick(dtypes=tuple(pairs))
    return {"x": x.ref, "own": Dtype(x.dtype, True), "dtype": Dtype(pairs[x.dtype], True)}


def _power(d: Draw) -> Arguments:
    x = d.pick(dtypes=FLOATS)
    return {"x": x.ref, "n": d.one_of((2, 3, 0.5, -1, -0.5, 4, 0, 1, 1.5))}


def _three(d: Draw) -> Arguments:
    x = d.pick(dtypes=FLOATS)
    y, z = (d.matching(x, (x.dtype,)) for _ in range(2))
    return {"x": x.ref, "y": y.ref, "z": z.ref, "n": d.number()}


def _round(d: Draw) -> Arguments:
    return {"x": d.pick(dtypes=("f64", "f32")).ref, "decimals": d.integer(-1, 2)}


BITS: dict[str, Any] = {"level": "bits"}
VALUES: dict[str, Any] = {"level": "values"}
WHOLE_ONLY: dict[str, Any] = {"level": "integers"}

EXACT = (
    _unary("neg", "-{x}", NUMBERS, **BITS),
    _unary("abs", "{x}.abs()", NUMBERS, **BITS),
    _unary("sign", "{x}.sign()", NUMBERS, **VALUES),
    _unary("floor", "{x}.floor()", NUMBERS, **BITS),
    _unary("ceil", "{x}.ceil()", NUMBERS, **BITS),
    _unary("trunc", "{x}.trunc()", NUMBERS, **BITS),
    _unary("round", "{x}.round()", NUMBERS, **BITS),
    _unary("relu", "{x}.relu()", NUMBERS, **VALUES),
    _unary("isnan", "{x}.isnan()", NUMBERS, **BITS),
    _unary("isinf", "{x}.isinf()", NUMBERS, weight=0.5, **BITS),
    _unary("isfinite", "{x}.isfinite()", NUMBERS, weight=0.5, **BITS),
    _unary("signbit", "torch.signbit({x}.nan_to_num(0.5))", NUMBERS, weight=0.5, **BITS),
    _unary("logical_not", "{x}.logical_not()", ANY, **BITS),
    _unary("bitwise_not", "~{x}", WHOLE, **BITS),
    _binary("maximum", "torch.maximum({x}, {y})", ANY, **VALUES),
    _binary("minimum", "torch.minimum({x}, {y})", ANY, **VALUES),
    _binary("fmax", "torch.fmax({x}, {y})", NUMBERS, weight=0.5, **VALUES),
    _binary("copysign", "torch.copysign({x}, {y}.nan_to_num(0.5))", FLOATS, weight=0.5, **BITS),
    _binary("less", "{x} < {y}", ANY, **BITS),
    _binary("at least", "{x} >= {y}", ANY, **BITS),
    _binary("equal", "{x} == {y}", ANY, **BITS),
    _binary("not equal", "{x} != {y}", ANY, **BITS),
    _with_number("greater than a number", "{x} > {n}", ANY, **BITS),
    _binary("logical_and", "torch.logical_and({x}, {y})", ANY, **BITS),
    _binary("logical_or", "torch.logical_or({x}, {y})", ANY, weight=0.5, **BITS),
    _binary("logical_xor", "torch.logical_xor({x}, {y})", ANY, weight=0.5, **BITS),
    _binary("and", "{x} & {y}", WHOLE, **BITS),
    _binary("or", "{x} | {y}", WHOLE, **BITS),
    _binary("xor", "{x} ^ {y}", WHOLE, **BITS),
    Op("shift left", "pointwise", "{x} << ({y} & {most})", _shift, **BITS),
    Op("shift right", "pointwise", "{x} >> ({y} & {most})", _shift, **BITS),
    Op("clamp", "pointwise", "{x}.clamp({low}, {high})", _clamp, **VALUES),
    Op("floor_divide", "pointwise", "{x} // ({y} | 1)", _divide, **BITS),
    Op("remainder", "pointwise", "{x} % ({y} | 1)", _divide, **BITS),
    Op("fmod", "pointwise", "torch.fmod({x}, {y} | 1)", _divide, **BITS),
    Op(
        "div trunc",
        "pointwise",
        "torch.div({x}, {y} | 1, rounding_mode='trunc')",
        _divide,
        is_legal=_has_quotient,
        **BITS,
    ),
)

CANCELLING = frozenset(
    {"gelu", "gelu by tanh", "mish", "softplus", "logsigmoid", "asinh", "lgamma", "digamma", "acos"}
)
SATURATING = frozenset(
    {"tanh", "sigmoid", "gelu", "gelu by tanh", "silu", "mish", "softplus", "logsigmoid"}
)

ARITHMETIC = (
    _binary("add", "{x} + {y}", ANY, weight=3, **WHOLE_ONLY),
    _binary("sub", "{x} - {y}", NUMBERS, weight=3, **WHOLE_ONLY),
    _binary("mul", "{x} * {y}", ANY, weight=3, **WHOLE_ONLY),
    _with_number("add a number", "{x} + {n}", ANY, weight=2, **WHOLE_ONLY),
    _with_number("mul by a number", "{x} * {n}", ANY, weight=2, **WHOLE_ONLY),
    _with_number("rsub", "{n} - {x}", NUMBERS, **WHOLE_ONLY),
    _binary("div", "{x} / ({y}.abs() + 0.5)", FLOATS),
    _binary("true_divide", "{x} / ({y} | 1)", INTEGERS, weight=0.5),
    _with_number("div by a number", "{x} / ({n} or 1)", NUMBERS),
    Op("div with a mode", "pointwise", "torch.div({x}, {y}, rounding_mode={mode})", _float_divide),
    _binary("remainder of floats", "torch.remainder({x}, {y})", FLOATS, weight=0.5),
    _binary("fmod of floats", "torch.fmod({x}, {y})", FLOATS, weight=0.3),
    _binary("atan2", "torch.atan2({x}, {y})", FLOATS, weight=0.5),
    _binary("hypot", "torch.hypot({x}, {y})", FLOATS, weight=0.3),
    _binary("pow of two", "torch.pow({x}.abs() + 0.1, {y}.clamp(-3, 3))", FLOATS, weight=0.5),
    _binary("logaddexp", "torch.logaddexp({x}, {y})", FLOATS, weight=0.5, cancels=True),
    Op("pow", "pointwise", "torch.pow({x}, {n})", _power),
    Op("addcmul", "pointwise", "torch.addcmul({x}, {y}, {z}, value={n})", _three),
    Op("lerp", "pointwise", "torch.lerp({x}, {y}, 0.25)", _three, weight=0.5),
    Op(
        "round to decimals",
        "pointwise",
        "torch.round({x}, decimals={decimals})",
        _round,
        weight=0.3,
    ),
    *(
        _unary(
            name,
            text,
            FLOATS,
            weight=weight,
            cancels=name in CANCELLING,
            slope_cancels=name in SATURATING,
        )
        for name, text, weight in (
            ("exp", "{x}.clamp(-8, 8).exp()", 1),
            ("exp of anything", "{x}.exp()", 0.3),
            ("exp2", "torch.exp2({x}.clamp(-8, 8))", 0.3),
            ("expm1", "torch.expm1({x}.clamp(-8, 8))", 0.5),
            ("log", "({x}.abs() + 1e-3).log()", 1),
            ("log of anything", "{x}.log()", 0.2),
            ("log1p", "{x}.abs().log1p()", 0.5),
            ("log2", "({x}.abs() + 0.1).log2()", 0.3),
            ("sqrt", "{x}.abs().sqrt()", 1),
            ("rsqrt", "({x}.abs() + 0.1).rsqrt()", 1),
            ("reciprocal", "({x}.abs() + 0.2).reciprocal()", 1),
            ("sin", "{x}.sin()", 1),
            ("cos", "{x}.cos()", 1),
            ("tan", "{x}.clamp(-1, 1).tan()", 0.3),
            ("tanh", "{x}.tanh()", 2),
            ("sigmoid", "{x}.sigmoid()", 2),
            ("erf", "torch.erf({x})", 1),
            ("asin", "torch.asin({x}.clamp(-1, 1))", 0.3),
            ("acos", "torch.acos({x}.clamp(-0.9, 0.9))", 0.3),
            ("atan", "torch.atan({x})", 0.5),
            ("sinh", "torch.sinh({x}.clamp(-4, 4))", 0.3),
            ("cosh", "torch.cosh({x}.clamp(-4, 4))", 0.3),
            ("asinh", "torch.asinh({x})", 0.3),
            ("lgamma", "torch.lgamma({x}.abs() + 0.3)", 0.2),
            ("digamma", "torch.digamma({x}.abs() + 0.3)", 0.2),
            ("gelu", "F.gelu({x})", 1),
            ("gelu by tanh", "F.gelu({x}, approximate='tanh')", 0.5),
            ("silu", "F.silu({x})", 1),
            ("softplus", "F.softplus({x})", 0.5),
            ("mish", "F.mish({x})", 0.3),
            ("elu", "F.elu({x})", 0.5),
            ("leaky_relu", "F.leaky_relu({x}, 0.1)", 0.5),
            ("hardswish", "F.hardswish({x})", 0.5),
            ("hardtanh", "F.hardtanh({x})", 0.3),
            ("hardsigmoid", "F.hardsigmoid({x})", 0.2),
            ("hardshrink", "F.hardshrink({x})", 0.2),
            ("softshrink", "F.softshrink({x})", 0.2),
            ("threshold", "F.threshold({x}, 0.5, 2.0)", 0.2),
            ("selu", "F.selu({x})", 0.2),
            ("celu", "F.celu({x}, 2.0)", 0.2),
            ("logsigmoid", "F.logsigmoid({x})", 0.5),
            ("softsign", "F.softsign({x})", 0.3),
            ("frac", "{x}.frac()", 0.3),
            ("square", "{x}.square()", 1),
            ("nan_to_num", "torch.nan_to_num({x}, 0.5, 2.0, -2.0)", 0.5),
        )
    ),
)

CONVERSIONS = (
    Op("convert", "types", "{x}.to({dtype})", _convert_float, level="bits", weight=3),
    Op("convert integers", "types", "{x}.to({dtype})", _convert_whole, level="bits", weight=3),
    Op("convert to integers", "types", "{x}.nan_to_num(0.0).clamp(0, 100).to({dtype})",
       _convert_integers, level="bits", weight=2),
    Op("view as another type", "types", "{x}.to({own}).nan_to_num(0.5).view({dtype})",
       _view_bits, level="bits", weight=0.3),
    _unary("float", "{x}.float()", WHOLE, family="types", level="bits"),
    _unary("long", "{x}.long()", WHOLE, family="types", level="bits"),
    _unary("bool", "{x}.bool()", ANY, family="types", level="bits"),
)  # fmt: skip

ROWS = (*EXACT, *ARITHMETIC, *CONVERSIONS)
