"""Small graphs that between them use every part of the lowering."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from case_graphs import layer_norm, op, operand, softmax, weight

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import Node, make

CASES: dict[str, Callable[[], Sequence[Node]]] = {}


def case(function: Callable[[], Sequence[Node]]) -> Callable[[], Sequence[Node]]:
    """Register a function that builds the outputs of a graph."""
    CASES[function.__name__] = function
    return function


# -- rows ------------------------------------------------------------------------------------------


@case
def softmax_of_odd_rows():
    return [softmax(operand("x", 37, 197), 1)]


@case
def softmax_over_the_first_axis():
    return [softmax(operand("x", 33, 5, 40), 0)]


@case
def softmax_over_the_middle_axis():
    return [softmax(operand("x", 3, 33, 40), 1)]


@case
def softmax_in_chunks():
    return [softmax(operand("x", 2, 70001), 1)]


@case
def layer_norm_in_chunks():
    x = operand("x", 1, 100003)
    return [op("gelu", op("add", layer_norm(x), weight("shift", 1, 100003)))]


@case
def sum_of_a_million():
    return [b.reduce("sum", operand("x", 1000003), [0])]


@case
def mean_over_several_axes():
    x = operand("x", 3, 11, 4, 50)
    return [op("mul", b.reduce("sum", x, [0, 2]), 1 / 12), b.reduce("max", x, [1, 3])]


@case
def residual_sum_and_its_norm():
    total = op("add", operand("x", 16, 96), op("tanh", operand("y", 16, 96)))
    return [layer_norm(total), op("mul", total, 2.0)]


@case
def searches():
    x = operand("x", 19, 130)
    return [b.reduce("argmax", x, [1]), b.reduce("argmin", x, [0])]


@case
def search_in_chunks():
    return [b.reduce("argmax", operand("x", 2, 70001), [1])]


@case
def bytes_in_chunks():
    """Triton reduces integers shorter than i32 as i32."""
    x, y = operand("x", 2, 40001, dtype="u8"), operand("y", 2, 40001, dtype="i16")
    return [b.reduce("max", x, [1]), b.reduce("argmin", x, [1]), b.reduce("min", y, [1])]


@case
def largest_byte_wraps_around():
    most = b.reduce("max", operand("x", 9, 77, dtype="u8"), [1])
    return [op("lt", op("add", most, 252), most)]


@case
def other_reductions():
    x, flags = operand("x", 9, 77), operand("flags", 9, 77, dtype="bool")
    counts = operand("counts", 9, 77, dtype="i64")
    return [
        b.reduce("prod", x, [1]),
        b.reduce("min", x, [1]),
        b.reduce("any", flags, [1]),
        b.reduce("all", flags, [1]),
        b.reduce("sum", counts, [1]),
        b.reduce("max", counts, [1]),
    ]


@case
def any_in_chunks():
    flags = operand("flags", 1, 70001, dtype="bool")
    return [b.reduce("all", flags, [1]), b.reduce("any", flags, [1])]


@case
def reduction_of_repeated_rows():
    x = operand("x", 7, 1)
    return [softmax(b.expand(x, (7, 60)), 1)]


@case
def norm_without_kept_axes():
    return [layer_norm(operand("x", 300))]


# -- movement --------------------------------------------------------------------------------------


@case
def pad_concat_slice_flip():
    x, y = operand("x", 6, 20), operand("y", 6, 13)
    joined = b.concat([b.pad(x, [0, 2], [0, 3], 1.5), op("flip", y, axes=(1,)), y], 1)
    return [op("exp", b.slice_axis(joined, 1, 3, 47, 3)), b.permute(joined, (1, 0))]


@case
def pad_of_a_computed_value():
    x = operand("x", 9, 30)
    return [b.pad(op("add", op("exp", x), 1.0), [1, 4], [0, 4], -2.0)]


@case
def lookups():
    table, positions = weight("table", 7, 48), operand("ids", 4, 5, dtype="i64")
    columns = operand("columns", 9, 6, dtype="i64")
    data = operand("data", 9, 7)
    return [
        op("mul", op("take", table, positions, axis=0), 2.0),
        op("take", table, operand("row", 3, dtype="i32"), axis=1),
        op("gather", data, columns, axis=1),
    ]


@case
def embedding_and_norm():
    table, positions = weight("table", 7, 48), operand("ids", 1, 10, dtype="i64")
    places = op(
        "take", weight("places", 12, 48), b.slice_axis(b.iota((1, 12), 1), 1, 0, 10), axis=0
    )
    return [layer_norm(op("add", op("take", table, positions, axis=0), places))]


@case
def causal_mask():
    rows, columns = b.iota((40, 1), 0), b.iota((1, 40), 1)
    scores = operand("x", 2, 40, 40)
    keep = b.reshape(op("ge", rows, columns), (1, 40, 40))
    return [softmax(op("where", keep, scores, b.scalar(float("-inf"), "f32")), 2)]


@case
def transposed_copy():
    return [b.permute(operand("x", 17, 33), (1, 0)), b.expand(operand("y", 1, 6), (5, 6))]


@case
def outputs_that_are_not_computed():
    x, table = operand("x", 4, 6), weight("table", 3, 5)
    total = op("add", x, 1.0)
    return [x, total, total, b.reshape(total, (24,)), table, b.iota((3, 4), 1)]


@case
def reshaped_output_with_another_reader():
    total = op("exp", operand("x", 4, 6))
    return [b.reshape(total, (24,)), b.reduce("sum", total, [1])]


@case
def rank_zero():
    x = operand("x")
    return [op("exp", x), op("add", operand("y", 5), x)]


# -- windows ---------------------------------------------------------------------------------------


@case
def pooling():
    x = b.pad(operand("x", 2, 5, 12, 13), [0, 0, 1, 1], [0, 0, 1, 1], float("-inf"))
    largest = op("window", x, axes=(2, 3), sizes=(3, 3), strides=(2, 2), dilations=(1, 1))
    y = operand("y", 2, 12, 12, 5)
    mean = op("window", y, axes=(1, 2), sizes=(2, 2), strides=(2, 2), dilations=(1, 1))
    return [
        b.drop(b.reduce("max", largest, [4, 5]), [4, 5]),
        op("mul", b.reduce("sum", mean, [4, 5]), 0.25),
    ]


@case
def wide_pooling():
    x = operand("x", 1, 20, 20, 32)
    mean = op("window", x, axes=(1, 2), sizes=(10, 10), strides=(10, 10), dilations=(1, 1))
    return [b.reduce("sum", mean, [4, 5])]


def convolution(data: Node, columns: int, stride: int, dilation: int) -> Node:
    """3×3 convolution of an NHWC tensor as a matmul of windows."""
    n, _, _, channels = data.shape
    padded = b.pad(data, [0, dilation, dilation, 0], [0, dilation, dilation, 0], 0.0)
    found = op(
        "window",
        padded,
        axes=(1, 2),
        sizes=(3, 3),
        strides=(stride, stride),
        dilations=(dilation, dilation),
    )
    height, width = found.shape[1:3]
    rows = b.reshape(b.permute(found, (0, 1, 2, 4, 5, 3)), (n * height * width, 9 * channels))
    panels = weight(f"w{channels}", -(-columns // 64), 9 * channels, 64)
    result = make("matmul_packed", (rows, panels), {"n": columns})
    return b.reshape(op("mul", result, 0.05), (n, height, width, columns))


@case
def convolutions():
    first = op("relu", convolution(operand("x", 2, 9, 8, 3), 24, 1, 1))
    return [convolution(first, 20, 2, 2)]


@case
def convolution_of_channels_first():
    x = b.permute(operand("x", 1, 32, 9, 9), (0, 2, 3, 1))
    return [b.permute(convolution(x, 70, 1, 1), (0, 3, 1, 2))]


# -- matmuls ---------------------------------------------------------------------------------------


@case
def matmul_of_odd_sizes():
    left, right = operand("a", 2, 3, 37, 45), operand("b", 1, 3, 45, 21)
    return [op("relu", op("add", op("matmul", left, right), weight("bias", 1, 1, 1, 21)))]


@case
def matmul_with_prologue():
    left, right = operand("a", 50, 64), operand("b", 33, 64)
    scaled = op("mul", op("exp", left), operand("s", 50, 1))
    return [op("matmul", scaled, b.permute(op("tanh", right), (1, 0)))]


@case
def matmul_of_vectors():
    return [
        op("matmul", operand("a", 1, 70), operand("b", 70, 1)),
        op("matmul", operand("c", 6, 1), operand("d", 1, 9)),
    ]


@case
def packed_matmuls():
    x = operand("x", 33, 100)
    hidden = make("matmul_packed", (x, weight("w", 3, 100, 64)), {"n": 130})
    gate = op("sigmoid", hidden)
    vector = make("matmul_packed", (operand("v", 1, 64), weight("u", 1, 64, 64)), {"n": 10})
    return [op("mul", hidden, gate), vector]


@case
def attention():
    q, k, v = (operand(name, 2, 19, 3, 16) for name in "qkv")
    heads = [b.permute(part, (0, 2, 1, 3)) for part in (q, k, v)]
    scores = op("mul", op("matmul", heads[0], b.transpose(heads[1])), 0.25)
    scores = op("add", scores, operand("mask", 2, 1, 1, 19))
    mixed = op("matmul", softmax(scores, 3), heads[2])
    return [b.reshape(b.permute(mixed, (0, 2, 1, 3)), (38, 48))]


@case
def matmul_with_padded_operand():
    left = b.pad(operand("a", 5, 30), [0, 1], [3, 1], 0.0)
    right = b.pad(operand("b", 32, 20), [0, 0], [0, 12], 0.0)
    return [op("matmul", left, right)]


@case
def gradients_of_weights():
    """Left operands that lie along their columns, in wide tiles, beside infinities, and narrow."""
    far = op("div", 1.0, op("maximum", op("add", operand("y", 70, 45), 3.0), 0.0))
    narrow = operand("k", 48, 33, dtype="bf16"), operand("l", 48, 100, dtype="bf16")
    return [
        op("matmul", b.transpose(operand("g", 160, 256)), operand("x", 160, 520)),
        op("matmul", b.transpose(operand("h", 70, 37)), far),
        op("matmul", b.transpose(narrow[0]), narrow[1]),
    ]


# -- element types ---------------------------------------------------------------------------------


@case
def integers():
    x, y = operand("x", 5, 9, dtype="i64"), operand("y", 5, 9, dtype="i32")
    shifted = op("sub", x, 3)
    return [
        op("floor_divide", shifted, op("add", x, 2)),
        op("remainder", shifted, op("add", x, 2)),
        b.cast(op("mul", y, y), "f32"),
        b.cast(op("gt", y, 3), "i8"),
        op("abs", shifted),
    ]


@case
def flags():
    p, q = operand("p", 4, 70, dtype="bool"), operand("q", 4, 70, dtype="bool")
    both = op("logical_and", p, op("logical_not", q))
    return [both, op("where", both, operand("x", 4, 70), 0.0), b.cast(p, "i64")]


@case
def halves():
    x, y = operand("x", 6, 80, dtype="bf16"), operand("y", 6, 80, dtype="f16")
    return [layer_norm(x), op("gelu", y), b.cast(op("exp", b.cast(x, "f32")), "f16")]


@case
def half_matmuls():
    left, right = operand("a", 2, 9, 33, dtype="bf16"), operand("b", 2, 33, 17, dtype="bf16")
    return [
        op("matmul", left, right),
        op("matmul", operand("c", 8, 8, dtype="f16"), operand("d", 8, 8, dtype="f16")),
    ]


@case
def doubles():
    x = operand("x", 4, 33, dtype="f64")
    return [
        op("div", op("add", op("abs", x), 0.1), 3.0),
        b.reduce("sum", x, [1]),
        op("matmul", x, operand("y", 33, 5, dtype="f64")),
        op("where", op("gt", x, 0.0), 0.1, x),
    ]


@case
def shared_work_of_two_outputs():
    x, y = operand("x", 1003), operand("y", 1003)
    ratio = op("log", op("add", op("abs", op("div", x, y)), 1.0))
    first = op("erf", ratio)
    return [op("mul", x, first), op("sub", op("mul", y, first), ratio)]


@case
def convolution_of_few_channels():
    x = b.permute(operand("x", 2, 3, 21, 20), (0, 2, 3, 1))
    return [op("relu", convolution(x, 40, 2, 1))]


@case
def padding_that_only_a_broadcast_axis_sees():
    x = b.pad(b.expand(operand("x", 1, 1, 4), (3, 6, 4)), [0, 0, 2], [2, 1, 1], 1.5)
    return [b.reduce("max", b.permute(x, (2, 0, 1)), [1, 2])]


@case
def matmul_of_single_elements():
    x = op("window", operand("x", 5, 9), axes=(1,), sizes=(2,), strides=(1,), dilations=(1,))
    rows = b.reshape(x, (5, 8, 1, 2))
    return [op("mul", op("matmul", rows, weight("w", 1, 1, 2, 1)), 0.5)]


@case
def matmul_of_repeated_columns():
    left, right = b.expand(operand("a", 6, 1), (6, 37)), operand("b", 37, 5)
    return [
        op("matmul", left, right),
        op("matmul", operand("c", 4, 37), b.expand(operand("d", 1, 7), (37, 7))),
    ]


@case
def total_of_everything():
    """A result of rank 0, beside another one."""
    x = operand("x", 3, 40)
    total = b.drop(b.reduce("sum", x, (0, 1)), (0, 1))
    return [total, op("mul", x, 2.0)]


@case
def convolution_of_each_channel():
    """Windows of one channel each, padded, channels last; a filter stored kernel offsets first."""
    x = operand("x", 2, 9, 7, 20)
    padded = b.pad(x, (0, 1, 1, 0), (0, 1, 1, 0), 0.0)
    attrs = {"axes": (1, 2), "sizes": (3, 3), "strides": (2, 1), "dilations": (1, 1)}
    windows = make("window", (padded,), attrs)
    factors = b.permute(weight("w", 3, 3, 1, 1, 1, 20), (2, 3, 4, 5, 0, 1))
    total = b.reduce("sum", op("mul", windows, factors), (4, 5))
    return [b.unary("relu", b.drop(total, (4, 5)))]
