"""Constructors of common nodes, with the trivial cases left out; what importer and rules write."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aotc.aot.ir.graph import Node, Number, make, number
from aotc.aot.ir.infer import MOST_DEPTH_I8
from aotc.aot.ir.reductions import REDUCTIONS
from aotc.aot.ir.size import Extent, Shape, Size, fixed, is_static, proves_at_most
from aotc.aot.ir.types import DTYPES, SHORT_FLOATS, Scalar, TensorType, round_scalar

STORED_TAG = "stored"  # of a copy that the schedule gives a buffer
LAID_OUT_TAG = "laid out"  # of one whose buffer has the order of its dims


LOWEST = {"f32": -3.4028234663852886e38, "f64": -1.7976931348623157e308}  # finite numbers


def scalar(value: Scalar, dtype: str) -> Node:
    """A rank-0 literal."""
    return make("scalar", (), {"value": value, "dtype": dtype})


def constant(name: str, kind: TensorType) -> Node:
    """The node that reads the graph's constant `name`."""
    return make("constant", (), {"name": name, "dtype": kind.dtype, "shape": kind.shape})


def cast(data: Node, dtype: str) -> Node:
    """`data` as `dtype`; conversion to bool asks whether an element differs from zero."""
    if data.dtype == dtype:
        return data
    if data.op == "scalar" and not (dtype == "bool" or _loses_range(data, dtype)):
        return scalar(_converted(data.attr("value"), data.dtype, dtype), dtype)
    if dtype == "bool":
        return make("ne", (data, scalar(0, data.dtype)))
    return make("cast", (data,), {"dtype": dtype})


def _converted(value: Scalar, *dtypes: str) -> Scalar:
    """A number as the types have it, one after the other."""
    for dtype in dtypes:
        value = round_scalar(value, dtype) if dtype in SHORT_FLOATS else value
    return value


def _loses_range(data: Node, dtype: str) -> bool:
    return data.type.kind == "float" and DTYPES[dtype].kind != "float"


def reshape(data: Node, shape: Sequence[Extent]) -> Node:
    """Row-major elements of `data` under `shape`."""
    if data.shape == tuple(shape):
        return data
    if data.op == "reshape":
        data = data.inputs[0]
        if data.shape == tuple(shape):
            return data
    return make("reshape", (data,), {"shape": tuple(shape)})


def permute(data: Node, dims: Sequence[int]) -> Node:
    """Result dim i is dim `dims[i]`."""
    if tuple(dims) == tuple(range(data.type.rank)):
        return data
    return make("permute", (data,), {"dims": tuple(dims)})


def move_axis(data: Node, source: int, target: int) -> Node:
    """One axis elsewhere, the others in their order."""
    order = [axis for axis in range(data.type.rank) if axis != source]
    order.insert(target, source)
    return permute(data, order)


def transpose(data: Node) -> Node:
    """The last two dims exchanged."""
    rank = data.type.rank
    dims = (*range(rank - 2), rank - 1, rank - 2)
    if data.op == "permute" and data.attr("dims") == dims:
        return data.inputs[0]
    return permute(data, dims)


def expand(data: Node, shape: Sequence[Extent]) -> Node:
    """`data` repeated to `shape`, whose rank may be larger."""
    aligned = align(data, len(shape))
    if aligned.shape == tuple(shape):
        return aligned
    return make("expand", (aligned,), {"shape": tuple(shape)})


def align(data: Node, rank: int) -> Node:
    """`data` with leading dims of 1 up to `rank`."""
    return reshape(data, (*[1] * (rank - data.type.rank), *data.shape))


def slice_axis(data: Node, axis: int, start: Extent, stop: Extent, step: int = 1) -> Node:
    """Elements start:stop:step along `axis`."""
    if (start, stop, step) == (0, data.shape[axis], 1):
        return data
    return make("slice", (data,), {"axis": axis, "start": start, "stop": stop, "step": step})


def pad(data: Node, low: Sequence[Extent], high: Sequence[Extent], value: Scalar) -> Node:
    """Constant padding; `value` becomes an element of the type of `data`."""
    if not any((*low, *high)):
        return data
    if data.type.kind != "float":
        value = round_scalar(value, data.dtype)  # a kernel with the text 0.0 would be one of floats
    if not data.type.numel:
        widths = zip(low, data.shape, high, strict=True)
        return expand(scalar(value, data.dtype), [sum(each) for each in widths])
    return make("pad", (data,), {"low": tuple(low), "high": tuple(high), "value": value})


def bordered(data: Node, axis: int, low: Extent, high: Extent) -> Node:
    """The axis with zeros before and behind, or with so many elements fewer where negative."""
    extent = data.shape[axis]
    if is_static([extent, low, high]) and max(0, -fixed(low)) + max(0, -fixed(high)) >= extent:
        shape = (*data.shape[:axis], low + extent + high, *data.shape[axis + 1 :])
        return expand(scalar(0, data.dtype), shape)
    data = slice_axis(data, axis, max(0, -low), extent - max(0, -high))
    zeros = [0] * data.type.rank
    before, behind = ([*zeros[:axis], max(0, width), *zeros[axis + 1 :]] for width in (low, high))
    return pad(data, before, behind, 0)


def stored(data: Node) -> Node:
    """`data` laid out in memory once, where many read it."""
    return make("copy", (data,), {"tag": STORED_TAG})


def laid_out(data: Node) -> Node:
    """The same in the order of its dims: no rule moves a change of that order behind the copy."""
    return make("copy", (data,), {"tag": LAID_OUT_TAG})


def is_stored(node: Node) -> bool:
    """Whether a node is such a copy."""
    return node.op == "copy" and node.attr("tag") in (STORED_TAG, LAID_OUT_TAG)


def is_laid_out(node: Node) -> bool:
    """Whether a node is a copy in the order of its dims."""
    return node.op == "copy" and node.attr("tag") == LAID_OUT_TAG


def empty(kind: TensorType) -> Node:
    """A tensor without elements: a literal repeated no times, whatever would have computed it."""
    return expand(scalar(0, kind.dtype), kind.shape)


def concat(parts: Sequence[Node], axis: int) -> Node:
    """`parts` joined along `axis`."""
    parts = [part for part in parts if part.shape[axis]] or list(parts[:1])
    return parts[0] if len(parts) == 1 else make("concat", tuple(parts), {"axis": axis})


def reduce(op: str, data: Node, axes: Sequence[int]) -> Node:
    """Reduction over `axes`, which stay as dims of 1; of no elements it is what changes nothing."""
    row = REDUCTIONS[op]
    if not data.type.numel and row.is_defined_of_nothing:
        shape = [1 if axis in axes else dim for axis, dim in enumerate(data.shape)]
        return expand(scalar(row.identity(data.dtype), row.result or data.dtype), shape)
    return make(op, (data,), {"axes": tuple(sorted(axes))})


def extreme(op: str, data: Node, axes: Sequence[int]) -> Node:
    """The reduction over `axes`, which stay; `max` and `min` are NaN where an element is.

    A kernel's own reduction passes NaN over, which softmax and the like need not care about.
    """
    found = reduce(op, data, axes)
    if data.type.kind != "float" or not REDUCTIONS[op].is_choice:
        return found
    return where(_has_nan(data, axes), float("nan"), found)


def index_of_extreme(op: str, data: Node, axes: Sequence[int]) -> Node:
    """i64 place of the first `argmax` or `argmin` over `axes`, which stay; that of the first NaN
    where there is one."""
    keys = ordered_bits(data, op == "argmax") if data.type.kind == "float" else data
    return reduce(op, keys, axes)


def ordered_bits(data: Node, is_nan_greatest: bool) -> Node:
    """Floats as integers that compare as they do: 0.0 and -0.0 are equal, NaN is at an end.

    The bits of floats above zero are in order; those below zero are in the opposite one.
    """
    data = data if data.dtype == "f64" else cast(data, "f32")
    integer, most = ("i64", 2**63 - 1) if data.dtype == "f64" else ("i32", 2**31 - 1)
    bits = make("bitcast", (data,), {"dtype": integer})
    keys = where(bits < 0, make("bitwise_xor", (bits, scalar(most, integer))), bits)
    keys = where(equal(data, 0.0), 0, keys)
    return where(unary("isnan", data), most if is_nan_greatest else -most - 1, keys)


def _has_nan(data: Node, axes: Sequence[int]) -> Node:
    return reduce("any", unary("isnan", data), axes)


def drop(data: Node, axes: Sequence[int]) -> Node:
    """`data` without the dims `axes`, each of extent 1."""
    return reshape(data, [dim for axis, dim in enumerate(data.shape) if axis not in axes])


def iota(shape: Sequence[Extent], axis: int) -> Node:
    """i64 that counts along `axis`."""
    return make("iota", (), {"shape": tuple(shape), "axis": axis})


def column(rank: int, axis: int, extent: Extent) -> Shape:
    """The shape of `extent` elements along one axis, with 1 along the others."""
    return tuple(extent if each == axis else 1 for each in range(rank))


def counter(rank: int, axis: int, extent: Extent) -> Node:
    """i64 that counts along one axis of a rank, with 1 along the others."""
    return iota(column(rank, axis, extent), axis)


def scan(kind: str, data: Node, axis: int) -> Node:
    """Running results of a kind of `scan` along an axis."""
    return make("scan", (data,), {"kind": kind, "axis": axis, "is_reversed": False})


def pointwise(op: str, *operands: Node | Number) -> Node:
    """`op(*operands)`; Python numbers take the element type of the last node."""
    dtype = [item.dtype for item in operands if isinstance(item, Node)][-1]
    nodes = [item if isinstance(item, Node) else number(item, dtype) for item in operands]
    return make(op, tuple(nodes))


def where(condition: Node, chosen: Node | Number, other: Node | Number) -> Node:
    """`chosen` where the condition holds, else `other`."""
    return pointwise("where", condition, chosen, other)


def equal(left: Node | Number, right: Node | Number) -> Node:
    """left = right, element by element."""
    return pointwise("eq", left, right)


def maximum(left: Node | Number, right: Node | Number) -> Node:
    """The larger of two elements; NaN where one is."""
    return pointwise("maximum", left, right)


def minimum(left: Node | Number, right: Node | Number) -> Node:
    """The smaller of two elements; NaN where one is."""
    return pointwise("minimum", left, right)


def unary(op: str, data: Node) -> Node:
    """`op(data)`."""
    return make(op, (data,))


def scale(data: Node, power: float) -> Node:
    """data · power, a power of two."""
    return pointwise("scale", data, power)


def mean(data: Node, axes: Sequence[int]) -> Node:
    """Mean over `axes` as a sum and one multiplication."""
    return reduce("sum", data, axes) * share(count_of(data, axes), data.dtype)


def count_of(data: Node, axes: Sequence[int]) -> Extent:
    """Number of elements along `axes` together."""
    return math.prod(data.shape[axis] for axis in axes)


def share(count: Extent, dtype: str) -> Node | Scalar:
    """1 / count; NaN for a count of nothing."""
    if isinstance(count, Size):
        return unary("reciprocal", number(count, dtype))
    return 1.0 / count if count else float("nan")


def softmax(data: Node, axes: Sequence[int]) -> Node:
    """e^(x - max) · (1 / sum): the canonical form that the schedule knows as one row kernel."""
    shifted = data - reduce("max", data, axes)
    exponential = unary("exp", shifted)
    return exponential * unary("reciprocal", reduce("sum", exponential, axes))


def safe_softmax(data: Node, axes: Sequence[int]) -> Node:
    """Softmax whose rows of -inf give zeros, as torch's `_safe_softmax` does; of f32 or f64."""
    # Finite: -inf less that stays -inf, so that e^… is 0 and not NaN. A mask may hold it, too.
    peak = maximum(reduce("max", data, axes), LOWEST[data.dtype])
    exponential = unary("exp", data - peak)
    total = maximum(reduce("sum", exponential, axes), 1e-30)
    return exponential * unary("reciprocal", total)


def log_softmax(data: Node, axes: Sequence[int]) -> Node:
    """(x - max) - log(sum e^(x - max))."""
    shifted = data - reduce("max", data, axes)
    total = reduce("sum", unary("exp", shifted), axes)
    return shifted - unary("log", total)


def scaled_mean(data: Node, axes: Sequence[int], factor: float) -> Node:
    """factor · mean over `axes`, which is finite wherever it and the elements are.

    sum(x · p) · factor/(n·p), p the largest power of two up to 1/n: no sum passes the largest
    element, and the bits are those of sum(x) · factor/n, as powers of two round nothing. A number n
    of elements that is dynamic is divided by before the sum.
    """
    count = count_of(data, axes)
    if isinstance(count, Size):
        return reduce("sum", data * (share(count, data.dtype) * factor), axes)
    power = power_within_share(count)
    scaled = scale(data, power) if power != 1 else data
    return reduce("sum", scaled, axes) * (factor / (count * power) if count else float("nan"))


def power_within_share(count: int) -> float:
    """The largest power of two up to 1 / count; 1 for a count of nothing."""
    return 2.0 ** -(max(count, 1) - 1).bit_length()


def half_centered(data: Node, axes: Sequence[int]) -> Node:
    """(x - mean) / 2 over `axes`: finite also where the distance from the mean is not."""
    return scale(data, 0.5) - scaled_mean(data, axes, 0.5)


def deviation(data: Node, axes: Sequence[int], epsilon: float) -> tuple[Node, Node, Node]:
    """Mean, variance and 1 / √(variance + epsilon) over `axes`, which stay."""
    average = scaled_mean(data, axes, 1.0)
    centered = data - average
    variance = mean(centered * centered, axes)
    return average, variance, unary("rsqrt", variance + epsilon)


def standardize(data: Node, axes: Sequence[int], epsilon: float) -> Node:
    """(x - mean) · rsqrt(variance + epsilon) over `axes`: one mean, one variance.

    Elements of a row whose variance is not finite give 0, as their distance from the mean times 0
    would if it were finite: that distance is not taken from the mean but from 0.
    """
    average, _, scale = deviation(data, axes, epsilon)
    center = where(equal(scale, 0.0), 0.0, average)
    return (data - center) * scale


def root_mean_square_norm(data: Node, axes: Sequence[int], epsilon: float) -> Node:
    """x · rsqrt(mean(x²) + epsilon) over `axes`."""
    return data * unary("rsqrt", mean(data * data, axes) + epsilon)


def matmul(left: Node, right: Node, op: str = "matmul") -> Node:
    """Product over the last dims; a right operand without batch takes `left` as rows."""
    if not left.shape[-1]:
        batch = left.shape[:-2] if left.type.rank >= right.type.rank else right.shape[:-2]
        return expand(scalar(0, left.dtype), (*batch, left.shape[-2], right.shape[-1]))
    if right.type.rank == 2 and left.type.rank > 2:
        rows = reshape(left, (math.prod(left.shape[:-1]), left.shape[-1]))
        return reshape(make(op, (rows, right)), (*left.shape[:-1], right.shape[-1]))
    rank = max(left.type.rank, right.type.rank)
    return make(op, (align(left, rank), align(right, rank)))


def sums_of_products(left: Node, right: Node) -> Node:
    """The product of two matrices as sums of products, which wrap around as torch's do."""
    rank = max(left.type.rank, right.type.rank)
    rows, columns = align(left, rank), align(right, rank)
    pairs = reshape(rows, (*rows.shape[:-1], 1, rows.shape[-1])) * reshape(
        transpose(columns), (*columns.shape[:-2], 1, *columns.shape[:-3:-1])
    )
    return drop(reduce("sum", pairs, (rank,)), (rank,))


def is_matmul_i8(left: Node, right: Node) -> bool:
    """Whether `matmul_i8` takes two operands."""
    is_short = proves_at_most(left.shape[-1], MOST_DEPTH_I8)
    return left.dtype == right.dtype == "i8" and is_short and left.shape[-1] != 0


EXACT_DEPTH_I8 = 1024  # products of two i8 that f32 adds up without a rounding: 2²⁴ / 2¹⁴


def matmul_of_bytes(left: Node, right: Node) -> Node:
    """The product of two matrices of 8-bit integers in i32, by products of f32: whole numbers, of
    which each part of the inner dimension has sums below 2²⁴."""
    depth, rank = left.shape[-1], left.type.rank
    if not isinstance(depth, int) or not depth:
        return sums_of_products(cast(left, "i32"), cast(right, "i32"))
    # u8 · i8 reaches twice as far as i8 · i8.
    step = EXACT_DEPTH_I8 // 2 if "u8" in (left.dtype, right.dtype) else EXACT_DEPTH_I8
    total: Node | None = None
    for start in range(0, depth, step):
        end = min(start + step, depth)
        rows = slice_axis(left, rank - 1, start, end)
        columns = slice_axis(right, rank - 2, start, end)
        part = cast(make("matmul", (cast(rows, "f32"), cast(columns, "f32"))), "i32")
        total = part if total is None else total + part
    assert total is not None
    return total
