"""Complex numbers as pairs of real tensors: rows of ATen ops that take or give complex tensors.

No type of ours is complex. Inside an import a complex tensor is a `Complex`, two nodes of its
component type; a row here makes real arithmetic of an op on such pairs. Inputs and outputs of a
program are real: the parts lie side by side along a last dim, as torch has them in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotc.aot.capture.imports.call import COMPONENTS, Call, NotSupported, Operand, Row, Rows
from aotc.aot.capture.imports.fourier import fourier, hermitian, real_ends
from aotc.aot.capture.imports.table import COMPLEX, COPIED_VIEWS, refusing
from aotc.aot.capture.imports.table import ROWS as REAL_ROWS
from aotc.aot.ir import build
from aotc.aot.ir import complex_pairs as pairs
from aotc.aot.ir.graph import Node, make, number
from aotc.aot.ir.size import fixed


@dataclass(frozen=True, slots=True, eq=False)
class Complex:
    """A complex tensor; both parts have its shape."""

    re: Node
    im: Node


Value = Complex | Operand | complex
POWERS_LIMIT = 16  # whole powers up to this are products


def is_complex(node: torch.fx.Node) -> bool:
    """Whether a node of a torch graph takes or gives complex tensors."""
    values = (node.meta.get("val"), *(each.meta.get("val") for each in node.all_input_nodes))
    return any(
        isinstance(item, torch.Tensor) and item.is_complex()
        for value in values
        for item in (value if isinstance(value, list | tuple) else (value,))
    )


def complex_row(name: str, is_known: bool) -> Row:
    """The row of an op on complex tensors; it raises `NotSupported` where there is none, and where
    complex numbers are not known."""
    return (COMPLEX_ROWS.get(name) if is_known else None) or refusing(COMPLEX)


def constant_of(tensor: torch.Tensor, make_constant: Callable[[str, torch.Tensor], Node]) -> Any:
    """A complex weight as two real constants, named after their parts."""
    parts = {"real": tensor.real, "imag": tensor.imag}
    made = [make_constant(name, part.contiguous()) for name, part in parts.items()]
    return Complex(*made)


def _parts(call: Call, value: Value) -> tuple[Node, pairs.Part]:
    if isinstance(value, Complex):
        return call.operand(value.re, call.dtype), call.operand(value.im, call.dtype)
    if isinstance(value, complex):
        return build.scalar(value.real, call.dtype), build.scalar(value.imag, call.dtype)
    return call.operand(value, call.dtype), None


def _whole(call: Call, re: pairs.Part, im: pairs.Part) -> Complex:
    """Parts that fill the result's shape."""
    zero = build.scalar(0.0, call.dtype)
    return Complex(call.fill(zero if re is None else re), call.fill(zero if im is None else im))


def _mul(call: Call, left: Value, right: Value) -> Complex:
    return _whole(call, *pairs.multiplied(_parts(call, left), _parts(call, right)))


def _div(call: Call, left: Value, right: Value, *, rounding_mode: Any = None) -> Complex:
    return _whole(call, *pairs.divided(_parts(call, left), _parts(call, right)))


def _sgn(call: Call, value: Complex) -> Complex:
    """z / |z|; 0 of 0."""
    length = pairs.absolute(value.re, value.im)
    divisor = build.where(build.equal(length, 0.0), 1.0, length)
    return _whole(call, value.re / divisor, value.im / divisor)


def _complex_of(call: Call, value: Value) -> Complex:
    """A complex tensor as it is; of a real one, or of a number, the same with parts."""
    if isinstance(value, Complex):
        return value
    if isinstance(value, Node):
        re = build.cast(value, call.dtype)
        return Complex(re, build.expand(build.scalar(0.0, call.dtype), re.shape))
    parts = complex(value)  # type: ignore[arg-type]
    return Complex(build.scalar(parts.real, call.dtype), build.scalar(parts.imag, call.dtype))


def _of_pair(compute: Callable[..., tuple[Node, pairs.Part]]) -> Row:
    """A function of one complex tensor."""

    def row(call: Call, value: Value) -> Complex:
        value = _complex_of(call, value)
        return _whole(call, *compute(value.re, value.im))

    return row


def _polar(call: Call, length: Node, angle: Node) -> Complex:
    return _whole(call, *pairs.from_polar(*call.operands(length, angle)))


def _pow(call: Call, base: Value, exponent: Value) -> Complex:
    """z^n by products for a small whole n, by roots for ±1/2; else e^(w log z), and 0 where z is 0
    and w.re > 0."""
    is_number = isinstance(exponent, int | float) and not isinstance(exponent, bool)
    if is_number and abs(exponent) == 0.5 and isinstance(base, Complex):  # type: ignore[arg-type]
        root = pairs.square_root(base.re, base.im)
        return _whole(call, *(root if exponent > 0 else pairs.reciprocal(*root)))  # type: ignore[operator]
    if is_number and float(exponent).is_integer() and abs(exponent) <= POWERS_LIMIT:  # type: ignore[arg-type]
        return _whole(call, *pairs.whole_power(_parts(call, base), int(exponent)))  # type: ignore[arg-type]
    (re, im), powers = _parts(call, base), _parts(call, exponent)
    found = pairs.exponential(*pairs.multiplied(pairs.logarithm(re, im), powers))
    is_zero = build.equal(re, 0.0) if im is None else build.equal(pairs.absolute(re, im), 0.0)
    is_zero = make("logical_and", (is_zero, powers[0] > 0.0))
    return _whole(call, *(build.where(is_zero, 0.0, part) for part in found))  # type: ignore[arg-type]


def _conjugate(call: Call, value: Value) -> Complex:
    """Also of a number: gradients of products with one have it."""
    value = _complex_of(call, value)
    return Complex(value.re, -value.im)


def _equal(call: Call, left: Value, right: Value) -> Node:
    dtype = COMPONENTS[torch.result_type(*call.operand_values[:2])]
    operands = []
    for value in (left, right):
        value = complex(value) if isinstance(value, int | float | complex) else value
        if isinstance(value, complex):
            operands.append((value.real, value.imag))
        elif isinstance(value, Complex):
            operands.append((value.re, value.im))
        else:
            operands.append((value, 0.0))  # type: ignore[arg-type]
    parts = [call.pointwise("eq", *each, dtype=dtype) for each in zip(*operands, strict=True)]
    return make("logical_and", tuple(parts))


def joined_parts(data: Node) -> Complex:
    """A complex tensor whose parts lie side by side, along the last dim of `data`."""
    axis = data.type.rank - 1
    parts = (build.slice_axis(data, axis, place, place + 1) for place in (0, 1))
    return Complex(*(build.drop(part, (axis,)) for part in parts))


def parts_beside(data: Complex) -> Node:
    """A real tensor with one more dim, of the two parts."""
    parts = [build.reshape(part, (*part.shape, 1)) for part in (data.re, data.im)]
    return build.concat(parts, data.re.type.rank)


def _to_copy(call: Call, data: Value, *rest: Any) -> Complex | Node:
    """To another component type; a real result has the real part, but truth is that of both."""
    if not isinstance(data, Complex):
        return _whole(call, build.cast(data, call.dtype), None)  # type: ignore[arg-type]
    if call.dtype == "bool":
        return _is_other_than_zero(data)
    re, im = build.cast(data.re, call.dtype), build.cast(data.im, call.dtype)
    return Complex(re, im) if call.is_complex else re


def _copy(call: Call, data: Value, source: Value, *rest: Any) -> Complex | Node:
    """What is written over all of `data`, which may be real."""
    found = _to_copy(call, source)
    return _whole(call, found.re, found.im) if isinstance(found, Complex) else call.fill(found)


def _view(call: Call, data: Value, *rest: Any) -> Complex | Node:
    """Under another shape, or the parts read as real elements, or such elements as parts."""
    row = REAL_ROWS["view"]
    if not call.is_complex:
        return row(call, parts_beside(data))  # type: ignore[arg-type,return-value]
    dtype = data.re.dtype if isinstance(data, Complex) else data.dtype  # type: ignore[union-attr]
    if dtype != call.dtype:
        raise NotSupported(f"the bits of {dtype} read as parts of {call.dtype}: convert by value")
    if isinstance(data, Complex):
        return Complex(row(call, data.re), row(call, data.im))  # type: ignore[arg-type]
    return joined_parts(build.reshape(data, (*call.shape, 2)))  # type: ignore[arg-type]


def _filled(value: complex) -> Row:
    def row(call: Call, *rest: Any) -> Complex:
        return _full(call, (), value)

    return row


def _full(call: Call, size: Sequence[int], value: Any, *rest: Any) -> Complex:
    number = complex(value)
    parts = (build.scalar(part, call.dtype) for part in (number.real, number.imag))
    return _whole(call, *parts)


def _product(call: Call, left: Value, right: Value, name: str = "matmul") -> Complex:
    """A matrix product of complex operands as those of their parts."""
    row = REAL_ROWS[name]

    def product(first: pairs.Part, second: pairs.Part) -> pairs.Part:
        return None if first is None or second is None else row(call, first, second)  # type: ignore[return-value]

    def parts(value: Any) -> tuple[Node, pairs.Part]:
        return (value.re, value.im) if isinstance(value, Complex) else (value, None)

    (a, b), (c, d) = parts(left), parts(right)
    return _whole(
        call, pairs.minus(product(a, c), product(b, d)), pairs.plus(product(a, d), product(b, c))
    )


def _matrix(name: str) -> Row:
    def row(call: Call, left: Value, right: Value) -> Complex:
        return _product(call, left, right, name)

    return row


def _scaled(call: Call, value: Value, factor: Any) -> Value:
    return value if factor == 1 else _mul(call, value, factor)


def _addmm(
    call: Call, bias: Value, left: Value, right: Value, beta: Any = 1, alpha: Any = 1
) -> Complex:
    product = _scaled(call, _product(call, left, right), alpha)
    return _add(call, product, _scaled(call, bias, beta))


def _linear(call: Call, data: Value, weight: Value, bias: Value | None = None) -> Complex:
    product = _product(call, data, weight, "linear")
    return product if bias is None else _add(call, product, bias)


def _add(call: Call, left: Value, right: Value, alpha: Any = 1) -> Complex:
    (a, b), (c, d) = _parts(call, left), _parts(call, _scaled(call, right, alpha))
    return _whole(call, pairs.plus(a, c), pairs.plus(b, d))


def _addcmul(call: Call, data: Value, left: Value, right: Value, value: Any = 1) -> Complex:
    return _add(call, data, _mul(call, _scaled(call, left, value), right))


def _lerp(call: Call, start: Value, end: Value, weight: Any) -> Complex:
    return _add(call, start, _mul(call, _sub(call, end, start), weight))


def _sub(call: Call, left: Value, right: Value, alpha: Any = 1) -> Complex:
    (a, b), (c, d) = _parts(call, left), _parts(call, _scaled(call, right, alpha))
    return _whole(call, pairs.minus(a, c), pairs.minus(b, d))


def _where(call: Call, condition: Node, left: Value, right: Value) -> Complex:
    (a, b), (c, d) = _parts(call, left), _parts(call, right)
    zero = build.scalar(0.0, call.dtype)
    choices = ((a, c), (b or zero, d or zero))
    chosen = (call.operand(condition, "bool"),)
    return _whole(call, *(make("where", (*chosen, *pair)) for pair in choices))


def _by_parts(name: str) -> Row:
    """An op that treats both parts alike: the row of real tensors, once for each."""
    row = REAL_ROWS[name]

    def by_parts(call: Call, *arguments: Any) -> Any:
        if isinstance(arguments[0], Node):  # of reals, to a complex type: sums and means
            arguments = (_complex_of(call, arguments[0]), *arguments[1:])
        re, im = (row(call, *(_part(each, place) for each in arguments)) for place in ("re", "im"))
        if isinstance(re, list | tuple):
            return [Complex(*pair) for pair in zip(re, im, strict=True)]  # type: ignore[arg-type]
        return Complex(re, im)  # type: ignore[arg-type]

    return by_parts


def _with_fill(name: str, at: int) -> Row:
    """An op by parts, one argument of which may be a number of the result: its own part each."""
    row = REAL_ROWS[name]

    def filled(call: Call, *arguments: Any) -> Complex:
        first, fill, rest = arguments[:at], [*arguments[at:], 0.0][0], arguments[at + 1 :]
        is_number = isinstance(fill, int | float | complex)
        fill = complex(fill) if is_number else fill
        parts = []
        for place in ("re", "im"):
            given = [_part(each, place) for each in (*first, fill, *rest)]
            if isinstance(fill, Node):  # of a real tensor: its imaginary part is 0
                given[at] = _part_of_list(fill, place, call.dtype)
            parts.append(row(call, *given))
        return Complex(*parts)  # type: ignore[arg-type]

    return filled


def _index_add(
    call: Call, data: Complex, dim: int, index: Node, source: Value, alpha: Any = 1
) -> Any:
    add = _with_fill("index_add", 3)
    if not isinstance(alpha, complex):
        return add(call, data, dim, index, source, alpha)
    parts = (build.scalar(part, call.dtype) for part in (alpha.real, alpha.imag))
    added = _complex_of(call, source)
    scaled = pairs.multiplied((added.re, added.im), tuple(parts))  # type: ignore[arg-type]
    return add(call, data, dim, index, Complex(*scaled))  # type: ignore[arg-type]


def _part(value: Any, place: str) -> Any:
    """One part of an argument; a list that holds complex tensors has zeros for the others'."""
    if isinstance(value, Complex):
        return getattr(value, place)
    if isinstance(value, list | tuple) and any(isinstance(each, Complex) for each in value):
        kind = next(each for each in value if isinstance(each, Complex)).re.dtype
        return [_part_of_list(each, place, kind) for each in value]
    if isinstance(value, complex):
        return value.real if place == "re" else value.imag
    return value


def _part_of_list(value: Any, place: str, dtype: str) -> Node:
    if isinstance(value, Complex):
        return getattr(value, place)  # type: ignore[no-any-return]
    if place == "re":
        return build.cast(value, dtype)
    return build.expand(build.scalar(0.0, dtype), value.shape)


def _scaled_logarithm(base: float) -> Row:
    """The logarithm to a base."""

    def row(call: Call, value: Complex) -> Complex:
        found = pairs.logarithm(value.re, value.im)
        return _whole(call, *(part * (1 / math.log(base)) for part in found))

    return row


def _power_of_two(call: Call, value: Complex) -> Complex:
    scaled = (value.re * math.log(2), value.im * math.log(2))
    return _whole(call, *pairs.exponential(*scaled))


def _inverse_root(call: Call, value: Complex) -> Complex:
    return _whole(call, *pairs.reciprocal(*pairs.square_root(value.re, value.im)))


def _of_either(name: str, joined: str) -> Row:
    """A question of both parts, `isnan` of one or of the other."""

    def row(call: Call, value: Complex) -> Node:
        return make(joined, (build.unary(name, value.re), build.unary(name, value.im)))

    return row


def _is_other_than_zero(value: Any) -> Node:
    if not isinstance(value, Complex):
        return ~build.equal(value, 0)
    parts = (~build.equal(value.re, 0.0), ~build.equal(value.im, 0.0))
    return make("logical_or", parts)


def _logical(name: str) -> Row:
    """A logical op on whether numbers are 0."""

    def row(call: Call, *values: Value) -> Node:
        return call.fill(call.pointwise(name, *map(_is_other_than_zero, values), dtype="bool"))

    return row


def _reduced_to_truth(name: str) -> Row:
    """Whether any number, or each, is other than 0."""

    def row(call: Call, value: Complex, *how: Any) -> Any:
        return REAL_ROWS[name](call, _is_other_than_zero(value), *how)

    return row


def _variance(call: Call, value: Complex, *how: Any) -> Any:
    """The mean of |z - mean|²: the sum of both parts' variances."""
    return REAL_ROWS["var"](call, value.re, *how) + REAL_ROWS["var"](call, value.im, *how)  # type: ignore[operator]


def _deviation(call: Call, value: Complex, *how: Any) -> Any:
    return build.unary("sqrt", _variance(call, value, *how))


def _with_mean(spread: Row) -> Row:
    def row(call: Call, value: Complex, dims: Any = None, *rest: Any) -> Any:
        keeps = bool(rest[1]) if len(rest) > 1 else False
        mean = (REAL_ROWS["mean"](call, part, dims, keeps) for part in (value.re, value.im))
        return spread(call, value, dims, *rest), Complex(*mean)  # type: ignore[arg-type]

    return row


def _sigmoid(call: Call, value: Complex) -> Complex:
    """1 / (1 + e^-z)."""
    re, im = pairs.exponential(-value.re, -value.im)
    return _whole(call, *pairs.reciprocal(re + 1.0, im))


def _silu(call: Call, value: Complex) -> Complex:
    return _mul(call, value, _sigmoid(call, value))


def _logarithm_of_one_more(call: Call, value: Complex) -> Complex:
    """log(1 + z), of a small z by what |1 + z|² is more than 1."""
    re, im = value.re, value.im
    far, angle = pairs.logarithm(re + 1.0, im)
    near = build.unary("log1p", re * (re + 2.0) + im * im) * 0.5
    is_near = build.maximum(abs(re), abs(im)) < 0.5
    return _whole(call, build.where(is_near, near, far), angle)


def _multiplied_up(call: Call, value: Value, dim: int | None = None, *rest: Any) -> Complex:
    """The product along a dim, or of all: of halves, as long as there are two."""
    value = _complex_of(call, value)
    keeps = bool(rest) and rest[0] is True
    parts = call.operand(value.re, call.dtype), call.operand(value.im, call.dtype)
    if dim is None or isinstance(dim, torch.dtype):
        parts = tuple(build.reshape(part, (part.type.numel,)) for part in parts)  # type: ignore[assignment]
        dim, keeps = 0, False
    if not parts[0].type.rank:
        return Complex(*parts)
    axis = dim % parts[0].type.rank
    count = fixed(parts[0].shape[axis])
    if not count:
        return _full(call, (), 1)
    re, im = parts
    while count > 1:
        half, rest_of = count // 2, count % 2
        cut = [
            [build.slice_axis(part, axis, begin, end) for part in (re, im)]
            for begin, end in ((0, half), (half, 2 * half), (count - rest_of, count))
        ]
        found = pairs.multiplied(tuple(cut[0]), tuple(cut[1]))  # type: ignore[arg-type]
        re, im = (
            build.concat([part, last], axis) if rest_of else part
            for part, last in zip(found, cut[2], strict=True)
        )  # type: ignore[assignment]
        count = half + rest_of
    if not keeps:
        re, im = build.drop(re, (axis,)), build.drop(im, (axis,))
    return Complex(re, im)


def _multiplied_along(call: Call, value: Value, dim: int, *rest: Any) -> Complex:
    """Products of all numbers up to each: with those 1, 2, 4 … places before, which begin as 1."""
    value = _complex_of(call, value)
    re, im = call.operand(value.re, call.dtype), call.operand(value.im, call.dtype)
    if not re.type.rank:
        return Complex(re, im)
    axis, step = dim % re.type.rank, 1
    count = fixed(re.shape[axis])
    low, high = [0] * re.type.rank, [0] * re.type.rank
    while step < count:
        low[axis] = step
        before = [
            build.pad(build.slice_axis(part, axis, 0, count - step), low, high, fill)
            for part, fill in ((re, 1.0), (im, 0.0))
        ]
        re, im = pairs.multiplied((re, im), tuple(before))  # type: ignore[arg-type,assignment]
        step *= 2
    return Complex(re, im)


def _addmv(
    call: Call, bias: Value, left: Value, right: Value, beta: Any = 1, alpha: Any = 1
) -> Complex:
    product = _scaled(call, _product(call, left, right, "mv"), alpha)
    return _add(call, product, _scaled(call, bias, beta))


def _norm(call: Call, value: Complex, *how: Any) -> Any:
    return REAL_ROWS["linalg_vector_norm"](call, pairs.absolute(value.re, value.im), *how)


def _pair(value: Value) -> pairs.Pair:
    return (value.re, value.im) if isinstance(value, Complex) else (value, None)  # type: ignore[return-value]


def _fft_of_reals(
    call: Call, data: Node, dims: Sequence[int], normalization: int, is_onesided: bool
) -> Complex:
    axes = [dim % data.type.rank for dim in dims]
    last = call.shape[axes[-1]] if is_onesided else None
    re, im = fourier((data, None), axes[-1:], -1, call.table, keep=last)
    if is_onesided:
        im = real_ends(im, axes[-1], data.shape[axes[-1]])
    found = fourier((re, im), axes[:-1], -1, call.table)
    count = build.count_of(data, axes)
    return Complex(*(_normalized(part, normalization, count) for part in found))


def _fft(
    call: Call, data: Complex, dims: Sequence[int], normalization: int, is_forward: bool
) -> Complex:
    axes = [dim % data.re.type.rank for dim in dims]
    found = fourier(_pair(data), axes, -1 if is_forward else 1, call.table)
    count = build.count_of(data.re, axes)
    return Complex(*(_normalized(part, normalization, count) for part in found))


def _fft_to_reals(
    call: Call, data: Complex, dims: Sequence[int], normalization: int, last_size: int
) -> Node:
    axes = [dim % data.re.type.rank for dim in dims]
    pair = fourier(_pair(data), axes[:-1], 1, call.table)
    whole = hermitian(pair, axes[-1], last_size)
    re, _ = fourier(whole, axes[-1:], 1, call.table, is_real=True)
    return _normalized(re, normalization, build.count_of(re, axes))


def _normalized(data: Node, normalization: int, count: Any) -> Node:
    """By torch's `fft_norm_mode`: 0 leaves it, 1 divides by sqrt(count), 2 by count."""
    if not normalization:
        return data
    divisor = number(count, data.dtype)
    return data / (build.unary("sqrt", divisor) if normalization == 1 else divisor)


_BY_PARTS = (
    "alias", "as_strided", "cat", "clone", "cumsum", "detach", "diagonal", "expand",
    "flip", "gather", "index", "index_select", "lift_fresh_copy", "mean", "neg", "permute",
    "repeat", "reshape", "roll", "select", "slice", "split",
    "split_with_sizes", "squeeze", "stack", "sum", "t", "transpose", "unbind", "unfold",
    "unsqueeze", "_unsafe_index", "_unsafe_view", "_neg_view", "unflatten", "flatten",
    "embedding", "narrow_copy", "take", "tril", "triu",
)  # fmt: skip
# Ops by parts → the place of what they write or fill, a number or a tensor that may be real.
_FILLED = {
    "as_strided_scatter": 1, "constant_pad_nd": 2, "fill": 1, "index_copy": 3, "index_fill": 3,
    "index_put": 2, "masked_fill": 2, "masked_scatter": 2, "scatter": 3, "scatter_add": 3,
    "select_scatter": 1, "slice_scatter": 1,
}  # fmt: skip

COMPLEX_ROWS: Rows = {
    **{name: _by_parts(name) for name in _BY_PARTS if name in REAL_ROWS},
    **{name: _with_fill(name, at) for name, at in _FILLED.items() if name in REAL_ROWS},
    **{
        name: _logical(name) for name in ("logical_and", "logical_not", "logical_or", "logical_xor")
    },
    **{name: _matrix(name) for name in ("matmul", "mm", "bmm", "mv", "dot")},
    "_conj": _conjugate,
    "_conj_physical": _conjugate,
    "conj_physical": _conjugate,
    "resolve_conj": lambda call, value: value,
    "resolve_neg": lambda call, value: value,
    "_fft_c2c": _fft,
    "_fft_c2r": _fft_to_reals,
    "_fft_r2c": _fft_of_reals,
    "_to_copy": _to_copy,
    "abs": lambda call, value: call.fill(pairs.absolute(value.re, value.im)),
    "add": _add,
    "addcmul": _addcmul,
    "addmm": _addmm,
    "addmv": _addmv,
    "all": _reduced_to_truth("all"),
    "any": _reduced_to_truth("any"),
    "angle": lambda call, value: call.fill(build.pointwise("atan2", value.im, value.re)),
    "baddbmm": _addmm,
    "copy": _copy,
    "complex": lambda call, re, im: Complex(*map(call.fill, call.operands(re, im))),
    "cos": _of_pair(pairs.cosine),
    "cosh": _of_pair(pairs.hyperbolic_cosine),
    "cumprod": _multiplied_along,
    "div": _div,
    "empty": _filled(0),
    "empty_like": _filled(0),
    "eq": _equal,
    "exp": _of_pair(pairs.exponential),
    "exp2": _power_of_two,
    "expm1": _of_pair(pairs.less_one),
    "full": _full,
    "full_like": _full,
    "index_add": _index_add,
    "isfinite": _of_either("isfinite", "logical_and"),
    "isinf": _of_either("isinf", "logical_or"),
    "isnan": _of_either("isnan", "logical_or"),
    "lerp": _lerp,
    "linalg_vector_norm": _norm,
    "linear": _linear,
    "log": _of_pair(pairs.logarithm),
    "log10": _scaled_logarithm(10),
    "log1p": _logarithm_of_one_more,
    "log2": _scaled_logarithm(2),
    "mul": _mul,
    "ne": lambda call, left, right: ~_equal(call, left, right),
    "ones": _filled(1),
    "ones_like": _filled(1),
    "polar": _polar,
    "pow": _pow,
    "prod": _multiplied_up,
    "reciprocal": lambda call, value: _whole(call, *pairs.reciprocal(*_parts(call, value))),
    "rsqrt": _inverse_root,
    "rsub": lambda call, left, right, alpha=1: _sub(call, right, left, alpha),
    "scalar_tensor": lambda call, value, *rest: _full(call, (), value),
    "sgn": _sgn,
    "sigmoid": _sigmoid,
    "silu": _silu,
    "sin": _of_pair(pairs.sine),
    "sinh": _of_pair(pairs.hyperbolic_sine),
    "std": _deviation,
    "std_mean": _with_mean(_deviation),
    "sqrt": _of_pair(pairs.square_root),
    "sub": _sub,
    "tan": _of_pair(pairs.tangent),
    "tanh": _of_pair(pairs.hyperbolic_tangent),
    "var": _variance,
    "var_mean": _with_mean(_variance),
    "view": _view,
    "view_as_complex": lambda call, data: joined_parts(data),
    "view_as_real": lambda call, data: parts_beside(data),
    "where": _where,
    "zeros": _filled(0),
    "zeros_like": _filled(0),
    **dict.fromkeys(("empty_permuted", "empty_strided", "new_empty_strided"), _filled(0)),
}  # type: ignore[dict-item]
COMPLEX_ROWS |= {
    f"{name}_copy": COMPLEX_ROWS[name] for name in COPIED_VIEWS if name in COMPLEX_ROWS
}
