"""Kernels of element-wise arithmetic, of movement and of rows."""

from __future__ import annotations

from case_graphs import layer_norm, op, operand, softmax, weight
from source_table import case

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import make, number
from aotc.aot.ir.size import Dim, size_of


def dim(name: str, low: int, high: int, typical: int):
    """A dynamic size."""
    return size_of(Dim(name, low, high, typical))


# -- element by element ----------------------------------------------------------------------------


@case("cpu")
@case("sm_90")
def arithmetic_of_rows():
    return [op("gelu", op("add", operand("x", 37, 90), operand("bias", 1, 90)))]


@case("cpu")
@case("sm_90")
def arithmetic_of_halves():
    """Functions as exact as 16-bit results, and stores that round."""
    x = operand("x", 64, 256, dtype="bf16")
    return [op("mul", op("gelu", x), 2.0), op("gt", x, 0.5)]


@case("cpu")
@case("sm_90")
def copy_of_columns():
    return [b.permute(operand("x", 70, 130), (1, 0))]


@case("cpu")
@case("sm_90")
def single_element():
    return [op("exp", operand("x"))]


@case("cpu")
@case("sm_90")
def pad_concat_slice_flip():
    x, y = operand("x", 6, 20), operand("y", 6, 13)
    joined = b.concat([b.pad(x, [0, 2], [0, 3], 1.5), op("flip", y, axes=(1,)), y], 1)
    return [op("exp", b.slice_axis(joined, 1, 3, 47, 3))]


@case("cpu")
def pad_of_a_computed_value():
    x = operand("x", 9, 30)
    return [b.pad(op("add", op("exp", x), 1.0), [1, 4], [0, 4], -2.0)]


@case("cpu")
def lookups():
    table, ids = weight("table", 7, 48), operand("ids", 4, 5, dtype="i64")
    taken = op("mul", op("take", table, ids, axis=0), 2.0)
    row = op("take", table, operand("row", 4, 5, dtype="i32"), axis=0)
    return [op("add", taken, row)]


@case("cpu")
def gathered_elements():
    columns = operand("columns", 9, 6, dtype="i64")
    return [op("gather", operand("data", 9, 7), columns, axis=1)]


@case("cpu")
def places():
    return [op("mul", b.cast(b.iota((3, 40), 1), "f32"), operand("x", 3, 1))]


@case("cpu")
def pooling_of_few_elements():
    """A reduction of so few elements that it is written out."""
    x = b.pad(operand("x", 2, 12, 13, 5), [0, 1, 1, 0], [0, 1, 1, 0], float("-inf"))
    offsets = op("window", x, axes=(1, 2), sizes=(2, 2), strides=(2, 2), dilations=(1, 1))
    return [b.drop(b.reduce("max", offsets, [4, 5]), [4, 5])]


@case("cpu")
@case("sm_90")
def random_words():
    counter = b.iota((40,), 0)
    seed = operand("seed", 1, dtype="i64")
    word = make("philox", (seed, seed, counter), {"site": 3, "word": 1})
    return [op("add", word, 0)]


@case("cpu")
@case("sm_90")
def checked_indices():
    ids = operand("ids", 40, dtype="i64")
    attrs = {"operation": "embedding", "place": "", "low": -7, "high": 6}
    return [make("check", (ids,), {"kind": "index", **attrs})]


@case("cpu")
def checked_divisors():
    attrs = {"operation": "remainder", "place": "", "low": 0, "high": 0}
    return [make("check", (operand("n", 40, dtype="i32"),), {"kind": "divisor", **attrs})]


@case("cpu")
@case("sm_90")
def elements_that_a_call_decides():
    n, m = dim("n", 1, 4000, 300), dim("m", 1, 200, 90)
    return [op("exp", b.permute(operand("x", n, m), (1, 0)))]


@case("cpu")
def extent_that_a_call_decides():
    n = dim("n", 1, 4000, 300)
    return [op("div", operand("x", n, 8), b.cast(number(n, "i64"), "f32"))]


@case("cpu")
def literals():
    """Numbers of which an op or a pad alone has the type, and an index that is known."""
    row = op("take", operand("x", 5, 40), b.scalar(2, "i64"), axis=0)
    flags = op("logical_not", b.pad(b.scalar(True, "bool"), [], [], False))
    ones = b.pad(b.expand(b.reshape(b.scalar(1.0, "f32"), (1,)), (30,)), [4], [6], 0.0)
    return [op("where", flags, op("mul", row, ones), b.cast(b.scalar(0.1, "f32"), "f32"))]


# -- rows ------------------------------------------------------------------------------------------


@case("cpu")
@case("sm_90")
def softmax_of_rows():
    return [softmax(operand("x", 37, 197), 1)]


@case("cpu")
@case("sm_90", "streamed")
def softmax_of_columns():
    return [softmax(operand("x", 3, 333, 40), 1)]


@case("sm_90")
def largest_of_columns():
    return [b.reduce("max", operand("x", 3, 100, 40), [1])]


@case("cpu")
def softmax_in_chunks():
    return [softmax(operand("x", 2, 70001), 1)]


@case("cpu")
def largest_of_columns_that_programs_share():
    return [b.reduce("max", operand("x", 70001, 40), [0])]


@case("cpu")
def softmax_of_columns_in_chunks():
    return [softmax(operand("x", 70001, 40), 0)]


@case("sm_90", "streamed", "shared", "shared_streamed")
def layer_norm_of_long_rows():
    scaled = op("mul", layer_norm(operand("x", 3, 20011)), weight("w", 1, 20011))
    return [scaled]


@case("sm_90", "", "parts", "streamed")
def sum_and_largest_of_long_rows():
    x = operand("x", 2, 30001)
    return [b.reduce("sum", x, [1]), b.reduce("max", x, [1])]


@case("sm_90", "", "streamed", "shared", "shared_streamed")
def softmax_of_long_rows():
    return [softmax(operand("x", 3, 20011), 1)]


def log_sum_exp(data, axis: int):
    """log Σ exp(x), the largest element kept apart."""
    most = b.reduce("max", data, [axis])
    return op("add", op("log", b.reduce("sum", op("exp", op("sub", data, most)), [axis])), most)


@case("sm_90", "", "streamed", "parts")
def log_sum_exp_of_long_rows():
    return [log_sum_exp(operand("x", 2, 30001, dtype="bf16"), 1)]


@case("sm_90", "streamed", "parts")
def log_sum_exp_of_columns():
    return [log_sum_exp(operand("x", 2, 3000, 40), 1)]


def variance(data, axis: int):
    """Σ (x - mean)² / n."""
    share = 1.0 / data.shape[axis]
    centred = op("sub", data, op("mul", b.reduce("sum", data, [axis]), share))
    return op("mul", b.reduce("sum", op("mul", centred, centred), [axis]), share)


@case("sm_90", "", "streamed", "parts")
def variance_of_long_rows():
    return [variance(operand("x", 2, 30001), 1)]


@case("sm_90", "streamed", "parts")
def variance_of_columns():
    return [variance(operand("x", 2, 3000, 40), 1)]


@case("sm_90")
def variance_of_short_columns():
    return [variance(operand("x", 3, 100, 40), 1)]


@case("sm_90", "shared", "shared_streamed")
def share_of_the_largest():
    x = operand("x", 3, 20011)
    return [op("div", x, b.reduce("max", x, [1]))]


@case("sm_90", "", "streamed", "parts")
def places_of_extremes():
    x = operand("x", 2, 30001)
    return [b.reduce("argmax", x, [1]), b.reduce("argmin", x, [1])]


@case("sm_90", "streamed", "parts")
def place_in_columns():
    return [b.reduce("argmax", operand("x", 2, 3000, 40), [1])]


@case("cpu", kernel=2)
@case("sm_90", kernel=2)
def rows_of_an_intermediate():
    """On a CPU the pointer is given from the first row that is read."""
    product = op("matmul", operand("x", 20, 64), operand("w", 64, 48))
    parts = [b.slice_axis(product, 0, at, at + 5) for at in (0, 10)]
    return [op("mul", b.reduce("sum", op("exp", part), [1]), 0.5) for part in parts]


@case("cpu")
@case("sm_90")
def rounding_of_operands():
    """A 16-bit value is rounded where what reads it is not continuous."""
    total = op("add", operand("x", 640, dtype="bf16"), operand("y", 640, dtype="bf16"))
    return [op("floor", total), op("gt", total, 0.5), op("exp", total)]


@case("sm_90", "parts", "streamed")
def sum_of_columns():
    return [b.reduce("sum", operand("x", 2, 3000, 40), [1])]


@case("cpu")
def residual_sum_and_its_norm():
    """Roots that vary with the elements of a row, one of which is read by the reductions."""
    total = op("add", operand("x", 16, 96, dtype="bf16"), operand("y", 16, 96, dtype="bf16"))
    return [layer_norm(total), total]


@case("cpu")
def embedding_and_norm():
    table, ids = weight("table", 7, 48), operand("ids", 10, dtype="i64")
    return [layer_norm(op("take", table, ids, axis=0))]


@case("cpu")
def softmax_of_a_causal_mask():
    rows, columns = b.iota((40, 1), 0), b.iota((1, 40), 1)
    scores = operand("x", 2, 40, 40)
    keep = b.reshape(op("ge", rows, columns), (1, 40, 40))
    return [softmax(op("where", keep, scores, b.scalar(float("-inf"), "f32")), 2)]


@case("cpu")
def total_of_everything():
    return [b.drop(b.reduce("sum", operand("x", 3, 40), (0, 1)), (0, 1))]


@case("cpu")
def softmax_of_repeated_elements_in_whole_tiles():
    return [softmax(b.expand(operand("x", 8, 1), (8, 64)), 1)]


@case("sm_90", "shared", "shared_streamed")
def layer_norm_of_even_rows():
    """Pieces without a tail."""
    return [layer_norm(operand("x", 2, 65536))]


@case("cpu")
@case("sm_90")
def layer_norm_of_halves():
    """Conversions that change no number inside a kernel."""
    x = b.cast(operand("x", 64, 96, dtype="bf16"), "f32")
    return [b.cast(layer_norm(x), "bf16")]


@case("cpu")
def softmax_of_repeated_elements():
    return [softmax(b.expand(operand("x", 7, 1), (7, 60)), 1)]


@case("cpu")
def wide_pooling():
    x = operand("x", 1, 20, 20, 32)
    mean = op("window", x, axes=(1, 2), sizes=(10, 10), strides=(10, 10), dilations=(1, 1))
    return [b.reduce("sum", mean, [4, 5])]


@case("cpu")
@case("sm_90", "", "streamed")
def rows_whose_length_a_call_decides():
    return [softmax(operand("x", 5, dim("n", 1, 20000, 5000)), 1)]


@case("cpu")
@case("sm_90")
def rows_of_which_a_call_decides_how_many():
    return [layer_norm(operand("x", dim("n", 1, 5000, 40), 300))]
