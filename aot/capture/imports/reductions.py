"""Import rows of reductions, softmax and normalizations; the latter become arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from aotc.aot.capture.imports.call import Call, NotSupported, Operand, Row, Rows, axes_of, wide
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make, number
from aotc.aot.ir.reductions import REDUCTIONS
from aotc.aot.ir.size import Extent, Size
from aotc.aot.ir.types import DTYPES

Dims = Sequence[int] | int | None

# What distances are divided by at least, where all are near 0: its reciprocal is finite.
LEAST_MEASURE = {"f32": 2.0**-126, "f64": 2.0**-1022}


def _finish(call: Call, reduced: Node, dtype: str = "") -> Node:
    """The reduced dims dropped when torch drops them, in the result's element type."""
    return build.reshape(build.cast(reduced, dtype or call.dtype), call.shape)


def _reduction(op: str) -> Row:
    """In the element type of the result, or of the only kind that the reduction takes."""

    def row(call: Call, data: Node, dims: Dims = None, *rest: Any) -> Node:
        found = REDUCTIONS[op]
        operand = build.cast(data, "bool" if found.kinds == ("bool",) else call.dtype)
        name = found.of_bools if operand.dtype == "bool" else ""
        return _finish(call, build.extreme(name or op, operand, axes_of(dims, data.type.rank)))

    return row


def _sum(call: Call, data: Node, *rest: Any) -> Node | Sequence[Node | None]:
    is_count = data.dtype == "bool" and call.dtype == "i64"
    return _reduction("count" if is_count else "sum")(call, data, *rest)


def _mean(call: Call, data: Node, dims: Dims = None, *rest: Any) -> Node:
    operand = wide(build.cast(data, call.dtype))
    return _finish(call, build.mean(operand, axes_of(dims, data.type.rank)))


def _extreme_with_index(op: str) -> Row:
    def row(call: Call, data: Node, *rest: Any) -> Node | tuple[Node, Node]:
        if len(call.results) == 1:
            return _reduction(op)(call, data)  # type: ignore[return-value]
        axes = axes_of(rest[0], data.type.rank)
        index = _index_of_extreme(f"arg{op}", data, axes)
        return _reduction(op)(call, data, axes), build.reshape(index, call.shape)  # type: ignore[return-value]

    return row


def _index_of(op: str) -> Row:
    def row(call: Call, data: Node, dim: int | None = None, *rest: Any) -> Node:
        return _finish(call, _index_of_extreme(op, data, axes_of(dim, data.type.rank)))

    return row


def _index_of_extreme(op: str, data: Node, axes: tuple[int, ...]) -> Node:
    """Place of an extreme over axes, which stay; bools are compared as numbers."""
    if not axes:
        return build.expand(build.scalar(0, "i64"), data.shape)
    operand = build.cast(data, "i32") if data.dtype == "bool" else data
    return build.index_of_extreme(op, operand, axes)


def _variance(data: Node, dims: Dims, correction: float | None) -> tuple[Node, Node]:
    """Variance and mean over `dims`, dims kept, in f32 or wider."""
    axes = axes_of(dims, data.type.rank)
    operand = wide(data)
    average = build.scaled_mean(operand, axes, 1.0)
    centered = operand - average
    count = build.count_of(data, axes)
    scale = _spread(count, 1 if correction is None else correction, operand.dtype)
    squares = build.reduce("sum", centered * centered, axes)
    return squares * scale, average


def _spread(count: Extent, correction: float, dtype: str) -> Node | float:
    """1 / max(count - correction, 0)."""
    if isinstance(count, Size):
        left = number(count, dtype) - float(correction)
        return build.unary("reciprocal", build.maximum(left, 0.0))
    return 1.0 / (count - correction) if count > correction else math.inf


def _deviation(data: Node, dims: Dims, correction: float | None) -> tuple[Node, Node]:
    """√variance and mean over `dims`, dims kept, in f32 or wider.

    2·m · √(sum((h · 1/m)²) / n) with h = (x - mean) / 2 and m = max|h|: finite also where the
    variance is not, and above 0 where the variance is below every number.
    """
    axes = axes_of(dims, data.type.rank)
    if not build.count_of(data, axes):
        return _variance(data, dims, correction)
    operand = wide(data)
    half = build.half_centered(operand, axes)
    largest = build.reduce("max", abs(half), axes)
    measure = build.maximum(largest, LEAST_MEASURE[operand.dtype])
    apart = half * build.unary("reciprocal", measure)
    squares = build.reduce("sum", apart * apart, axes)
    correction = 1 if correction is None else correction
    share = _spread(build.count_of(data, axes), correction, operand.dtype)
    root = build.unary("sqrt", squares * share)
    return build.scale(root, 2.0) * measure, build.scaled_mean(operand, axes, 1.0)


def _moments_row(function: Callable[..., tuple[Node, Node]], has_mean: bool = False) -> Row:
    def row(
        call: Call, data: Node, dims: Dims = None, correction: float | None = None, *rest: Any
    ) -> Node | tuple[Node, Node]:
        moment, average = function(data, dims, correction)
        found = _finish(call, moment)
        return (found, _finish(call, average)) if has_mean else found

    return row


def _along(function: Callable[[Node, Sequence[int]], Node]) -> Row:
    """Softmax or its logarithm; a number is a row of one element."""

    def row(call: Call, data: Node, dim: int, *rest: Any) -> Node:
        data = wide(build.cast(data, call.dtype) if data.type.kind != "float" else data)
        column = build.align(data, max(data.type.rank, 1))
        found = function(column, (dim % column.type.rank,))
        return build.cast(build.reshape(found, data.shape), call.dtype)

    return row


def _affine(data: Node, weight: Node | None, bias: Node | None, shape: Sequence[int]) -> Node:
    """data · weight + bias, the parameters as of the last dims `shape`, in the type of `data`."""
    shape = (*[1] * (data.type.rank - len(shape)), *shape)
    if weight is not None:
        data = data * build.cast(build.reshape(weight, shape), data.dtype)
    if bias is not None:
        data = data + build.cast(build.reshape(bias, shape), data.dtype)
    return data


def _last(data: Node, shape: Sequence[int]) -> tuple[int, ...]:
    """The last axes, which are those of `shape`."""
    return tuple(range(data.type.rank - len(shape), data.type.rank))


def _layer_norm(
    call: Call,
    data: Node,
    shape: Sequence[int],
    weight: Node | None = None,
    bias: Node | None = None,
    epsilon: float = 1e-5,
    *rest: Any,
) -> Node:
    axes = _last(data, shape)
    normal = build.standardize(wide(data), axes, epsilon)
    return build.cast(_affine(normal, weight, bias, shape), call.dtype)


def _native_layer_norm(
    call: Call,
    data: Node,
    shape: Sequence[int],
    weight: Node | None,
    bias: Node | None,
    epsilon: float,
) -> tuple[Node, Node, Node]:
    axes = _last(data, shape)
    normal = _layer_norm(call, data, shape, weight, bias, epsilon)
    return normal, *_statistics(call, wide(data), axes, epsilon)


def _statistics(call: Call, data: Node, axes: tuple[int, ...], epsilon: float) -> tuple[Node, Node]:
    """Mean and 1 / √(variance + epsilon) as torch's second and third results."""
    pairs = zip(build.deviation(data, axes, epsilon)[::2], call.results[1:], strict=False)
    first, second = (
        build.reshape(build.cast(made, kind.dtype), kind.shape) for made, kind in pairs
    )
    return first, second


def _rms_norm(
    call: Call,
    data: Node,
    shape: Sequence[int],
    weight: Node | None = None,
    epsilon: float | None = None,
) -> Node:
    axes = _last(data, shape)
    if epsilon is None:
        epsilon = 2.0 ** (1 - DTYPES[wide(data).dtype].significand_bits)
    normal = build.root_mean_square_norm(wide(data), axes, epsilon)
    return build.cast(_affine(normal, weight, None, shape), call.dtype)


def _group_norm(
    call: Call,
    data: Node,
    groups: int,
    weight: Node | None = None,
    bias: Node | None = None,
    epsilon: float = 1e-5,
    *rest: Any,
) -> Node:
    samples, channels = data.shape[:2]
    grouped = (samples, groups, channels // groups, *data.shape[2:])
    axes = tuple(range(2, len(grouped)))
    normal = build.standardize(build.reshape(wide(data), grouped), axes, epsilon)
    column = (1, channels, *[1] * (data.type.rank - 2))
    affine = _affine(build.reshape(normal, data.shape), weight, bias, column)
    return build.cast(affine, call.dtype)


def _native_group_norm(
    call: Call,
    data: Node,
    weight: Node | None,
    bias: Node | None,
    samples: int,
    channels: int,
    extent: int,
    groups: int,
    epsilon: float,
) -> tuple[Node, Node, Node]:
    normal = _group_norm(call, data, groups, weight, bias, epsilon)
    rows = build.reshape(wide(data), (samples, groups, channels // groups * extent))
    return normal, *_statistics(call, rows, (2,), epsilon)


def _batch_norm(
    call: Call,
    data: Node,
    weight: Node | None,
    bias: Node | None,
    average: Node,
    variance: Node,
    momentum: Operand,
    epsilon: float,
) -> tuple[Node, None, None]:
    # One scale and one shift a channel, all of constants: folding leaves x·scale + shift.
    scale = build.unary("rsqrt", wide(variance) + epsilon)
    if weight is not None:
        scale = scale * build.cast(weight, scale.dtype)
    shift = -(wide(average) * scale)
    if bias is not None:
        shift = shift + build.cast(bias, shift.dtype)
    column = (1, data.shape[1], *[1] * (data.type.rank - 2))
    return build.cast(_affine(wide(data), scale, shift, column), call.dtype), None, None


def _batch_norm_of_samples(
    call: Call,
    data: Node,
    weight: Node | None,
    bias: Node | None,
    is_training: bool,
    momentum: Operand,
    epsilon: Operand,
    *rest: Any,
) -> tuple[Node, Node, Node]:
    if rest or isinstance(epsilon, Node) or not isinstance(epsilon, float):
        raise NotSupported("batch norm that trains its running statistics")
    axes = (0, *range(2, data.type.rank))
    column = (1, data.shape[1], *[1] * (data.type.rank - 2))
    x = wide(data)
    normal = _affine(build.standardize(x, axes, epsilon), weight, bias, column)
    return build.cast(normal, call.dtype), *_statistics(call, x, axes, epsilon)


def _batch_norm_with_statistics(
    call: Call,
    data: Node,
    weight: Node | None,
    bias: Node | None,
    average: Node,
    variance: Node,
    is_training: bool,
    momentum: float,
    epsilon: float,
) -> tuple[Node | None, ...]:
    """The result, the batch's mean and 1 / deviation, and the running statistics after it."""
    if not is_training:
        normed = _batch_norm(call, data, weight, bias, average, variance, momentum, epsilon)
        return (*normed, average, variance)
    axes = (0, *range(2, data.type.rank))
    column = (1, data.shape[1], *[1] * (data.type.rank - 2))
    x = wide(data)
    mean, spread, scale = build.deviation(x, axes, epsilon)
    normal = _affine(build.standardize(x, axes, epsilon), weight, bias, column)
    result = build.cast(normal, call.dtype)

    def moved(old: Node, new: Node) -> Node:
        kept = wide(old) * (1.0 - momentum)
        return kept + build.drop(new, axes) * momentum

    count = build.count_of(x, axes)
    times = number(count, x.dtype) if isinstance(count, Size) else float(count)
    unbiased = spread * times * _spread(count, 1, x.dtype)
    running = moved(average, mean), moved(variance, unbiased)
    kept = (build.drop(mean, axes), build.drop(scale, axes), *running)
    # Types of torch's own, which differ between its releases and from those that it computes.
    types = zip(kept, call.results[1:], strict=False)
    return (result, *(build.cast(node, said.dtype) for node, said in types))


# -- norms and distances ---------------------------------------------------------------------------


def norm(data: Node, order: float, axes: Sequence[int]) -> Node:
    """The vector norm of an order over axes, which stay; in f32 or wider."""
    size = abs(wide(data))
    if order == 2:
        return build.unary("sqrt", build.reduce("sum", size * size, axes))
    if math.isinf(order):
        if not axes:
            return size
        return build.extreme("max" if order > 0 else "min", size, axes)
    if order == 0:
        different = build.cast(build.pointwise("ne", size, 0.0), size.dtype)
        return build.reduce("sum", different, axes)
    if order == 1:
        return build.reduce("sum", size, axes)
    total = build.reduce("sum", build.pointwise("pow", size, order), axes)
    return build.pointwise("pow", total, 1.0 / order)


def _vector_norm(
    call: Call, data: Node, order: float = 2, dims: Sequence[int] | None = None, *rest: Any
) -> Node:
    operand, axes = build.cast(data, call.dtype), axes_of(dims, data.type.rank)
    if order and all(data.shape[axis] == 1 for axis in axes):
        found = abs(operand)  # (x²)^½ would lose what is very large or small
    else:
        found = norm(operand, float(order), axes)
    return build.reshape(build.cast(found, call.dtype), call.shape)


def _pairwise(call: Call, left: Node, right: Node, order: float = 2.0, *rest: Any) -> Node:
    rank = max(left.type.rank, right.type.rank)
    first, second = build.align(left, rank), build.align(right, rank)
    apart = build.reshape(first, (*first.shape[:-1], 1, first.shape[-1])) - build.reshape(
        second, (*second.shape[:-2], 1, *second.shape[-2:])
    )
    found = build.reshape(norm(apart, float(order), (rank,)), call.shape)
    return build.cast(found, call.dtype)


def _condensed(call: Call, data: Node, order: float = 2.0) -> Node:
    # The pairs i < j of rows, in order.
    first, second = numpy.triu_indices(data.shape[0], 1)
    left, right = (
        make("take", (data, call.table(at, "i64")), {"axis": 0}) for at in (first, second)
    )
    found = norm(left - right, float(order), (1,))
    return build.cast(build.reshape(found, call.shape), call.dtype)


ROWS: Rows = {
    "sum": _sum,
    "prod": _reduction("prod"),
    "mean": _mean,
    "amax": _reduction("max"),
    "amin": _reduction("min"),
    "max": _extreme_with_index("max"),
    "min": _extreme_with_index("min"),
    "argmax": _index_of("argmax"),
    "argmin": _index_of("argmin"),
    "any": _reduction("any"),
    "all": _reduction("all"),
    "_is_any_true": _reduction("any"),
    "_is_all_true": _reduction("all"),
    "var": _moments_row(_variance),
    "var_mean": _moments_row(_variance, has_mean=True),
    "std": _moments_row(_deviation),
    "std_mean": _moments_row(_deviation, has_mean=True),
    "softmax": _along(build.softmax),
    "_softmax": _along(build.softmax),
    "log_softmax": _along(build.log_softmax),
    "_log_softmax": _along(build.log_softmax),
    "layer_norm": _layer_norm,
    "native_layer_norm": _native_layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "native_group_norm": _native_group_norm,
    "_native_batch_norm_legit": _batch_norm_of_samples,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_native_batch_norm_legit_functional": _batch_norm_with_statistics,
    "linalg_vector_norm": _vector_norm,
    "_cdist_forward": _pairwise,
    "_pdist_forward": _condensed,
}
