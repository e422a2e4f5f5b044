"""Kernels that work on memory: the user's, native functions, and our own that are called."""

from __future__ import annotations

from case_graphs import attention_attrs, graph_of, op, operand
from source_table import case

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import make
from aotc.aot.ir.size import Dim, size_of
from aotc.aot.rewrites.memory import pair_rows, place_all
from aotc.aot.schedule.states import state_copy

SCALE = """import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)
"""
CANDIDATES = (
    ((("BLOCK", 256), ("num_stages", 2), ("num_warps", 4)), (3, 1, 1)),
    ((("BLOCK", 512), ("num_stages", 2), ("num_warps", 8)), (2, 1, 1)),
)
CALL = {
    "source": SCALE,
    "function": "scale",
    "arguments": (
        ("x_ptr", "read", (0, 40)),
        ("out_ptr", "stored", 0),
        ("n", "value", "tl.full((), 640, tl.int32)"),
        ("factor", "value", "0.5"),
        ("BLOCK", "config", "BLOCK"),
    ),
    "candidates": CANDIDATES,
    "results": (("f32", (640,)),),
}


@case("cpu")
@case("sm_90")
def kernel_of_the_user():
    """It reads from an element on; the launch's options are a GPU's only."""
    return [make("call", (operand("x", 700),), {**CALL, "updates": (), "result": 0})]


def _native(devices: tuple[str, ...], triton: tuple = ()):
    attrs = {
        "backend": "custom",
        "function": "scale",
        "library": ("1.2.0", "ab" * 32),
        "tensors": (("read", 0, "f32", (640, 64)), ("stored", 0, "f32", (640, 64))),
        "scalars": (("real", (0.5).hex()), ("whole", 3)),
        "workspaces": tuple((device, 128) for device in devices),
        "is_tiled": True,
        "triton": triton,
        "results": (("f32", (640, 64)),),
        "updates": (),
        "result": 0,
    }
    return [make("native", (operand("x", 640, 64),), attrs)]


@case("cpu", "native")
@case("sm_90", "native")
def native_function():
    return _native(("cpu", "cuda"))


@case("sm_90", "native", "triton")
def native_function_and_kernel():
    """A kernel of the same op beside the function."""
    names = ("source", "function", "arguments", "candidates")
    return _native(("cuda",), tuple((name, CALL[name]) for name in names))


def _placed(*outputs):
    """With the places of ops on memory, attention among them."""
    return place_all(graph_of(outputs))[0].outputs


@case("cpu")
def rows_added_at_places():
    data, places = operand("data", 50, 24), operand("places", 7, 1, dtype="i64")
    return _placed(
        op("scatter_rows", data, places, operand("rows", 7, 24), axis=0, merge="sum", distinct=1)
    )


@case("cpu", kernel=1)
@case("sm_90", kernel=1)
def elements_written_at_places():
    """Places of each element; the copy of what is updated is the kernel before."""
    data, places = operand("data", 5, 30, 8), operand("places", 5, 7, 8, dtype="i32")
    written = op(
        "scatter_rows", data, places, operand("rows", 5, 7, 8), axis=1, merge="replace", distinct=1
    )
    return _placed(op("mul", written, 2.0))


def _pair(rows, heads):
    """Keys and values of heads, parts of one product, into two caches at the same places."""
    product = operand("product", rows, 3 * heads * 16, dtype="bf16")
    places = operand("places", rows * heads, 1, dtype="i32")
    how = {"axis": 0, "merge": "replace", "distinct": 1}
    written = []
    for at, name in enumerate(("keys", "values"), 1):
        part = b.slice_axis(product, 1, at * heads * 16, (at + 1) * heads * 16)
        data = op("mul", operand(name, 5000, 16, dtype="bf16"), 2.0)
        source = b.reshape(part, (rows * heads, 16))
        written.append(op("scatter_rows", data, places, source, **how))
    return pair_rows(place_all(graph_of(tuple(written)))[0])[0].outputs


@case("cpu", kernel=2)
@case("sm_90", kernel=2)
def keys_and_values_written_at_places():
    """Of one step; what they change is the kernels before."""
    return _pair(3, 4)


@case("cpu", kernel=2)
@case("sm_90", kernel=2)
def rows_written_by_what_computes_them():
    """Turned queries and keys, which are written with the values; each row has its own place."""
    rows, heads = 3, 4
    product = operand("product", rows, 3 * heads * 16, dtype="bf16")
    places = operand("places", rows * heads, 1, dtype="i32")
    turned = op("sin", b.slice_axis(product, 1, 0, 2 * heads * 16))
    keys = b.slice_axis(turned, 1, heads * 16, 2 * heads * 16)
    values = b.slice_axis(product, 1, 2 * heads * 16, 3 * heads * 16)
    how = {"axis": 0, "merge": "replace", "distinct": rows * heads}
    written = [turned]
    for name, part in (("keys", keys), ("values", values)):
        data = op("mul", operand(name, 5000, 16, dtype="bf16"), 2.0)
        source = b.reshape(part, (rows * heads, 16))
        written.append(op("scatter_rows", data, places, source, **how))
    return pair_rows(place_all(graph_of(tuple(written)))[0])[0].outputs


@case("sm_90", kernel=2)
def many_keys_and_values_written_at_places():
    """Of a prompt: programs have shares of the places."""
    return _pair(200, 4)


@case("sm_90", kernel=1)
def places_that_are_counted():
    """In a copy of what they change, the kernel before."""
    counts, index = operand("counts", 3, 40, dtype="i32"), operand("index", 3, 5000, dtype="i32")
    return _placed(op("count_places", counts, index))


@case("sm_90")
def sums_of_runs_of_rows():
    rows, starts = operand("rows", 900, dtype="i32"), operand("starts", 31, dtype="i32")
    return _placed(op("sum_runs", rows, starts, operand("source", 2, 70, 200, dtype="bf16")))


def _spectra(count, keep, is_real):
    turns, re = operand("turns", 2, count), operand("re", 5, count)
    how = {"sign": -1, "keep": keep, "is_real": is_real}
    if is_real:
        return _placed(op("fourier", turns, re, operand("im", 5, count), **how, result=0))
    return _placed(op("fourier", turns, re, **how, result=1))


@case("sm_90")
def spectra_of_reals():
    """Both parts of the first half."""
    return _spectra(512, 257, False)


@case("sm_90")
def real_parts_of_long_transforms():
    return _spectra(2048, 2048, True)


HOW = {"length": 2048, "shift": 40}  # of a digit's kernels


@case("sm_90")
def runs_in_order():
    return _placed(op("sort_runs", operand("words", 2, 3000, dtype="i64"), length=512))


@case("sm_90")
def runs_merged():
    words = operand("words", 2, 3000, dtype="i64")
    return _placed(op("merge_runs", words, length=512, ways=4))


@case("sm_90", kernel=1)
def digits_of_keys_counted():
    """Words are keys in upper halves, the kernel before."""
    keys, places = operand("keys", 2, 5000, dtype="i32"), operand("places", 2, 5000, dtype="i32")
    upper = op("shift_left", b.cast(keys, "i64"), b.scalar(32, "i64"))
    words = op("bitwise_or", upper, b.cast(places, "i64"))
    return _placed(op("count_digits", words, **HOW))


@case("sm_90")
def digits_of_parts_summed():
    return _placed(op("sum_digits", operand("counts", 2, 3, 256, dtype="i32")))


@case("sm_90")
def words_in_the_order_of_a_digit():
    words, sums = operand("words", 2, 5000, dtype="i64"), operand("sums", 2, 3, 256, dtype="i32")
    return _placed(op("order_by_digit", words, sums, **HOW))


@case("sm_90")
def rows_of_two_ranks():
    """What two GPUs have of a sum, on both."""
    data, status = operand("data", 1, 5, 300, dtype="bf16"), operand("status", 32, dtype="i32")
    return _placed(op("exchange", data, status, ranks=2, result=0))


@case("cpu")
def copy_into_a_state():
    return [state_copy(operand("data", 5, 1000))]


def _heads():
    shapes = {"q": (2, 4, 70, 32), "k": (2, 2, 70, 32), "v": (2, 2, 70, 32)}
    return [operand(name, *shape) for name, shape in shapes.items()]


@case("cpu")
def attention_with_sums():
    """A call with two results, one of which is read where it is, in part of a larger tensor."""
    how = attention_attrs(0.25, causal=True, is_safe=True)
    return _placed(op("attention", *_heads(), operand("mask", 2, 1, 70, 70), **how))


@case("cpu")
@case("sm_90")
def attention_of_views():
    """Operands that are slices of one product."""
    x = operand("x", 130, 3 * 64, dtype="bf16")
    parts = []
    for place in range(3):
        part = b.slice_axis(x, 1, place * 64, (place + 1) * 64)
        parts.append(b.permute(b.reshape(part, (2, 65, 2, 32)), (0, 2, 1, 3)))
    how = attention_attrs(0.125)
    return _placed(*(op(name, *parts, **how) for name in ("attention", "attention_log_sum_exp")))


@case("cpu")
def gradients_of_attention():
    ends = operand("g", 2, 4, 70, 32), operand("out", 2, 4, 70, 32), operand("sums", 2, 4, 70)
    how = {"scale": 0.25, "causal": True, "offset": 0, "window": 0}
    found = (op("attention_backward", *_heads(), *ends, **how, result=at) for at in range(3))
    return _placed(*found)


@case("cpu")
@case("sm_90")
def grouped_rows():
    ends = operand("ends", 5, dtype="i32")
    return _placed(op("grouped_matmul", operand("x", 70, 48), operand("w", 5, 48, 36), ends))


@case("cpu")
def grouped_depth():
    left = b.permute(operand("x", 70, 48, dtype="bf16"), (1, 0))
    right, ends = operand("y", 70, 36, dtype="bf16"), operand("ends", 5, dtype="i64")
    return _placed(make("grouped_matmul", (left, right, ends)))


def _in_order(rows: int, extent: int, wanted: int, dtype: str = "f32"):
    how = {"wanted": wanted, "descending": dtype == "f32"}
    return _placed(op("order_rows", operand("x", rows, extent, dtype=dtype), **how))


@case("cpu")
def running_sums_of_rows():
    return _placed(b.scan("sum", operand("x", 3, 5000), 1))


@case("cpu")
def running_exponentials_of_rows():
    return _placed(b.scan("log_sum", operand("x", 3, 5000, dtype="f16"), 1))


@case("cpu")
def running_extremes_of_columns():
    return _placed(b.scan("max_place", operand("x", 40, 300), 0))


@case("sm_90")
def running_sums_of_blocks():
    n = size_of(Dim("n", 1, 1 << 20, 5000))
    how = {"kind": "sum", "axis": 1, "block": 1024}
    return _placed(op("scan_blocks", operand("x", 3, n), **how))


@case("sm_90")
def rows_in_order_in_registers():
    x = operand("x", 3, 600)
    order = op("order_rows", x, wanted=600, descending=False)
    return _placed(order, make("gather", (x, order), {"axis": 1}))


@case("sm_90")
def first_in_registers():
    return _placed(op("order_rows", operand("x", 3, 600, dtype="bf16"), wanted=5, descending=True))


@case("sm_90")
def wanted_of_long_rows():
    return _placed(op("select_rows", operand("x", 3, 4096), wanted=50, descending=True))


@case("sm_90")
def elements_at_ranks():
    x = operand("x", 3, 600)
    places = make("nth_places", (x, operand("ranks", 3, 1, dtype="i64")), {"wanted": 600})
    return _placed(places, make("gather", (x, places), {"axis": 1}))


@case("sm_90")
def whole_numbers_merged_in_any_order():
    operands = operand("data", 50, 7, dtype="i64"), operand("at", 300, 1, dtype="i32")
    how = {"axis": 0, "merge": "sum", "distinct": 1}
    return _placed(op("scatter_rows", *operands, operand("rows", 300, 7, dtype="i64"), **how))


@case("sm_90")
def sum_of_an_odd_number():
    return [op("add", operand("x", 50_001), operand("y", 50_001))]


@case("cpu")
def rows_in_order():
    return _in_order(40, 3000, 3000, "i64")


@case("cpu")
def first_of_long_rows():
    return _in_order(3, 5000, 50)


@case("cpu")
def first_of_short_rows():
    return _in_order(512, 64, 4)
