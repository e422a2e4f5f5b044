"""Kernels of products: matmuls of CPUs and GPUs, convolutions, attention."""

from __future__ import annotations

from case_graphs import attention_attrs, op, operand, weight
from source_cases_rows import dim
from source_table import case

from aotc.aot.ir import build as b
from aotc.aot.ir.float8 import E4M3, E5M2, widened
from aotc.aot.ir.graph import Node, make


def product(rows, columns: int, depth: int, dtype: str = "bf16") -> Node:
    """x · wᵀ, the weights along k."""
    left, right = operand("x", rows, depth, dtype=dtype), weight("w", columns, depth, dtype=dtype)
    return op("matmul", left, b.permute(right, (1, 0)))


def biased(rows, columns: int, depth: int, dtype: str = "bf16") -> list[Node]:
    """ReLU(x · wᵀ + bias)."""
    bias = weight("bias", 1, columns, dtype=dtype)
    return [op("relu", op("add", product(rows, columns, depth, dtype), bias))]


def packed(rows, columns: int, depth: int) -> Node:
    """x · w with the weights in panels of 64 columns."""
    panels = weight("w", -(-columns // 64), depth, 64)
    return make("matmul_packed", (operand("x", rows, depth), panels), {"n": columns})


# -- matmuls of CPUs -------------------------------------------------------------------------------


@case("cpu")
def matmul_of_odd_sizes():
    left, right = operand("a", 2, 3, 37, 45), operand("b", 1, 3, 45, 21)
    return [op("relu", op("add", op("matmul", left, right), weight("bias", 1, 1, 1, 21)))]


@case("cpu")
def matmul_with_prologue():
    scaled = op("mul", op("exp", operand("a", 50, 64)), operand("s", 50, 1))
    return [op("matmul", scaled, b.permute(op("tanh", operand("b", 33, 64)), (1, 0)))]


@case("cpu")
def matmul_of_a_row_and_a_column():
    return [op("matmul", operand("a", 1, 70), operand("b", 70, 1))]


@case("cpu")
def matmul_of_halves():
    left, right = operand("a", 2, 9, 33, dtype="bf16"), operand("b", 2, 33, 17, dtype="bf16")
    return [op("matmul", left, right)]


@case("cpu")
def matmul_of_doubles():
    return [op("matmul", operand("a", 4, 33, dtype="f64"), operand("b", 33, 5, dtype="f64"))]


@case("cpu")
def matmul_of_repeated_columns():
    return [op("matmul", operand("c", 4, 37), b.expand(operand("d", 1, 7), (37, 7)))]


@case("cpu")
def matmul_with_padded_operands():
    left = b.pad(operand("a", 5, 30), [0, 1], [3, 1], 0.0)
    right = b.pad(operand("b", 32, 20), [0, 0], [0, 12], 0.0)
    return [op("matmul", left, right)]


@case("cpu")
def packed_matmul():
    hidden = packed(33, 130, 100)
    return [op("mul", hidden, op("sigmoid", hidden))]


@case("cpu")
def packed_matmul_of_a_row():
    return [packed(1, 10, 64)]


@case("cpu")
def packed_matmul_into_heads():
    """A store in the order of a view."""
    result = b.reshape(packed(34, 64, 48), (2, 17, 4, 16))
    return [b.permute(result, (0, 2, 1, 3))]


@case("cpu")
def packed_matmul_of_rows_that_a_call_decides():
    """The last tile moves back to end with the rows."""
    return [packed(dim("n", 64, 500, 300), 64, 48)]


@case("cpu")
def matmul_of_a_depth_that_a_call_decides():
    n = dim("n", 1, 300, 100)
    return [op("matmul", operand("x", 18, n), operand("y", n, 24))]


def windows(data: Node, stride: int = 1, dilation: int = 1) -> Node:
    """Rows of the 3×3 windows of an NHWC tensor, padded to keep its size."""
    n, _, _, channels = data.shape
    padded = b.pad(data, [0, dilation, dilation, 0], [0, dilation, dilation, 0], 0.0)
    attrs = {"axes": (1, 2), "sizes": (3, 3)}
    attrs |= {"strides": (stride, stride), "dilations": (dilation, dilation)}
    found = make("window", (padded,), attrs)
    height, width = found.shape[1:3]
    rows = b.permute(found, (0, 1, 2, 4, 5, 3))
    return b.reshape(rows, (n * height * width, 9 * channels))


@case("cpu")
def packed_convolution():
    """A walk run by run: 32 channels of a kernel offset are one block."""
    rows = windows(operand("x", 2, 9, 8, 32), 2)
    result = make("matmul_packed", (rows, weight("w", 1, 288, 64)), {"n": 20})
    return [op("relu", b.reshape(result, (2, 5, 4, 20)))]


@case("cpu")
def packed_convolution_of_few_channels():
    """Runs that no block divides are padded."""
    rows = windows(operand("x", 2, 9, 8, 24))
    return [make("matmul_packed", (rows, weight("w", 1, 216, 64)), {"n": 20})]


@case("cpu")
def convolution_of_each_channel():
    """Windows of one channel each: a product that is no matmul."""
    x = operand("x", 2, 9, 7, 20)
    padded = b.pad(x, (0, 1, 1, 0), (0, 1, 1, 0), 0.0)
    attrs = {"axes": (1, 2), "sizes": (3, 3), "strides": (2, 1), "dilations": (1, 1)}
    factors = b.permute(weight("w", 3, 3, 1, 1, 1, 20), (2, 3, 4, 5, 0, 1))
    total = b.reduce("sum", op("mul", make("window", (padded,), attrs), factors), (4, 5))
    return [op("relu", b.drop(total, (4, 5)))]


# -- matmuls of GPUs -------------------------------------------------------------------------------


@case(
    "sm_90",
    "plain_mnk",
    "mapped_mnk",
    "mapped_persistent_mnk",
    "split_mnk",
    "split_mapped_mnk",
)
def biased_product():
    return biased(200, 328, 1000)


@case("sm_90", "plain", "mapped", "mapped_persistent", "split", "split_mapped")
def whole_tiles():
    return biased(256, 512, 1536)


@case("sm_90", "swapped_mnk", "swapped_mapped_mnk", "swapped_split_mnk")
def product_of_some_rows():
    return biased(20, 328, 1000)


@case("sm_90", "gemv_mk", "swapped_mnk")
def product_of_few_rows():
    return biased(5, 72, 600)


@case("sm_90", "gemv_n")
def product_of_one_row():
    return biased(1, 90, 512)


@case("sm_90", "gemv_walk_mnk")
def product_of_few_rows_and_many_columns():
    return biased(3, 9001, 200)


@case("sm_90", "gemv_walk")
def norm_of_one_row_and_many_columns():
    x = b.cast(operand("x", 1, 512, dtype="bf16"), "f32")
    row = b.cast(b.root_mean_square_norm(x, [1], 1e-5), "bf16")
    return [op("matmul", row, b.permute(weight("w", 16384, 512, dtype="bf16"), (1, 0)))]


@case("sm_90", "plain_mnk")
def product_of_one_column():
    return biased(96, 1, 300, "f32")


@case("sm_90", "gemv_rows_mn", "gemv_mn")
def product_of_rows_that_a_call_decides():
    return biased(dim("n", 1, 8, 3), 21, 64)


@case("sm_90", "tensor_mnk", "split_tensor_mnk")
def batch_of_products():
    """Descriptors that the kernel makes: a launch would need one each batch element."""
    left = operand("a", 3, 136, 1000, dtype="f16")
    right = operand("b", 3, 1000, 72, dtype="f16")
    return [op("mul", op("matmul", left, right), 0.5)]


@case("sm_90", "plain_mnk", "split_mnk")
def product_of_single_precision():
    return biased(200, 72, 1000, "f32")


@case("sm_80", "plain_mnk", "split_mnk")
def product_without_tensor_copies():
    return biased(200, 328, 1000)


@case("sm_90", "plain_mn", "swapped_mn", "gemv")
def gated_product():
    """SiLU(even columns) * odd columns: pairs of columns meet in a thread."""
    result = op("add", product(8, 80, 64), weight("bias", 1, 80, dtype="bf16"))
    gate, up = (b.slice_axis(result, 1, at, 80, 2) for at in (0, 1))
    return [op("mul", op("silu", gate), up)]


def turned(rows: int) -> list[Node]:
    """Two heads of a product turned by halves, and what the third one is, cubed."""
    found = op("add", product(rows, 96, 64), weight("bias", 1, 96, dtype="bf16"))
    heads = b.reshape(b.slice_axis(found, 1, 0, 64), (rows, 2, 32))
    first, second = (b.slice_axis(heads, 2, at, at + 16) for at in (0, 16))
    angle = operand("angle", rows, 1, 32, dtype="bf16")
    result = heads * op("cos", angle) + b.concat([-second, first], 2) * op("sin", angle)
    rest = b.slice_axis(found, 1, 64, 96)
    return [result, rest * rest * rest]


@case("sm_90", "gemv")
def turned_heads_of_one_row():
    """Columns that lie 16 apart are side by side in a tile."""
    return turned(1)


@case("sm_90", "plain_mn", "swapped_mn")
def turned_heads_of_some_rows():
    return turned(9)


@case("sm_90", "decoding")
def turned_heads_of_bytes():
    codes = b.cast(weight("q", 64, 512, dtype="i8"), "f32")
    found = op("matmul", operand("x", 1, 512, dtype="bf16"), dequantised(codes, 64, 512, 512))
    first, second = (b.slice_axis(found, 1, at, at + 32) for at in (0, 32))
    return [first * op("sigmoid", second), op("tanh", second)]


@case("sm_90", "plain_m")
def product_into_heads():
    total = op("add", product(34, 64, 64), operand("residual", 34, 64, dtype="bf16"))
    return [b.permute(b.reshape(total, (2, 17, 4, 16)), (0, 2, 1, 3))]


@case("sm_90", "plain_mnk")
def product_of_parts():
    """Operands that are parts of larger tensors, one of them with a computed value."""
    left = b.slice_axis(operand("x", 40, 136, dtype="bf16"), 1, 32, 136)
    return [op("matmul", left, op("exp", operand("y", 104, 50, dtype="bf16")))]


@case("sm_90", "gemv_nk")
def norm_of_one_row_and_product():
    x = b.cast(operand("x", 1, 100, dtype="bf16"), "f32")
    row = b.cast(b.root_mean_square_norm(x, [1], 1e-5), "bf16")
    right = weight("w", 40, 100, dtype="bf16")
    return [op("matmul", row, b.permute(right, (1, 0)))]


@case("sm_90", "plain_mnk")
def product_of_sizes_that_a_call_decides():
    n, m = dim("n", 1, 200, 90), dim("m", 1, 200, 80)
    left, right = operand("x", 3, n, 30, dtype="f16"), operand("y", 3, m, 30, dtype="f16")
    return [op("matmul", left, b.permute(right, (0, 2, 1)))]


@case("sm_90", "persistent_mnk")
def persistent_product_of_doubles():
    """Programs that walk over tiles; tensor maps have no element type f64."""
    return biased(200, 328, 1000, "f64")


# -- convolutions of GPUs --------------------------------------------------------------------------


def convolved(data: Node, outputs: int, **how: int) -> list[Node]:
    rows = windows(data, **how)
    right = weight("w", outputs, rows.shape[1], dtype=data.dtype)
    result = op("matmul", rows, b.permute(right, (1, 0)))
    return [op("relu", op("add", result, weight("bias", 1, outputs, dtype=data.dtype)))]


@case("sm_90", "windows", "windows_split")
def convolution():
    return convolved(operand("x", 2, 7, 7, 64, dtype="bf16"), 72)


@case("sm_90", "windows_packed")
def convolution_of_few_channels():
    """Several kernel offsets a step."""
    return convolved(operand("x", 2, 9, 9, 8, dtype="bf16"), 40, stride=2)


@case("sm_90", "windows")
def convolution_of_uneven_channels():
    return convolved(operand("x", 1, 12, 11, 40), 24, dilation=2)


@case("sm_90", "windows", "plain_mnk")
def small_product_of_many_rows():
    """Both writers' forms are candidates."""
    return biased(300, 24, 40)


@case("sm_90", "plain_mn")
def convolution_that_is_no_plain_load():
    """The operand is computed in its load: a walk run by run."""
    return convolved(op("exp", operand("x", 1, 9, 9, 32, dtype="bf16")), 24)


# -- attention -------------------------------------------------------------------------------------


def attention(shape: tuple[int, ...], keys, dtype: str = "f16", mask: Node | None = None, **attrs):
    """Attention of [B, H, T, D] with two heads of keys, stored as [B·T, H·D]."""
    batch, heads, rows, size = shape
    shapes = (shape, *[(batch, 2, keys, size)] * 2)
    given = [operand(name, *each, dtype=dtype) for name, each in zip("qkv", shapes, strict=True)]
    row = attention_attrs(0.25) | attrs
    result = make("attention", tuple(given + ([mask] if mask else [])), row)
    transposed = b.permute(result, (0, 2, 1, 3))
    return [b.reshape(transposed, (batch * rows, heads * size))]


@case("sm_90", "plain", "descriptor", "overlapped")
def attention_of_many_rows():
    return attention((1, 2, 1024, 64), 1024)


@case("sm_90", "plain", "descriptor")
def causal_attention_of_odd_rows():
    return attention((1, 4, 70, 32), 90, causal=True, offset=20)


@case("sm_90", "split", "plain")
def attention_of_few_rows():
    return attention((1, 6, 3, 40), 777, "f32")


@case("sm_90", "split")
def causal_attention_of_few_rows():
    return attention((1, 4, 5, 32), 440, causal=True, offset=435)


@case("sm_90", "tf32x3")
def causal_attention_in_pieces():
    """Heads of 64 and 16 elements, keys beyond the last block, a bias."""
    mask = operand("mask", 2, 2, 100, 100)
    return attention((2, 2, 100, 80), 100, "f32", mask, causal=True)


@case("sm_90", "plain")
def attention_with_a_bias():
    return attention((2, 2, 66, 32), 33, "f32", operand("mask", 2, 2, 66, 33))


@case("sm_90", "plain")
def attention_with_a_mask():
    mask = operand("mask", 2, 1, 1, 40, dtype="bool")
    return attention((2, 2, 66, 24), 40, "f32", mask, is_safe=True)


@case("sm_90", "plain", "descriptor")
def attention_of_sizes_that_a_call_decides():
    n, m = dim("n", 1, 200, 90), dim("m", 1, 200, 80)
    return attention((1, 2, n, 32), m)


@case("sm_90", "plain")
def attention_of_one_block_of_keys():
    n, m = dim("n", 1, 15, 4), dim("m", 1, 30, 20)
    return attention((1, 2, n, 32), m)


@case("sm_90", "plain", "split")
def attention_of_one_row():
    """A tile of rows of which one is stored."""
    return attention((1, 2, 1, 32), 500)


@case("sm_90", "plain")
def attention_of_single_elements():
    """Heads of one element: equal columns, of which one counts."""
    shapes = ((2, 2, 37, 1), (2, 1, 21, 1), (2, 1, 21, 1))
    given = [operand(name, *each) for name, each in zip("qkv", shapes, strict=True)]
    attrs = attention_attrs(1.0)
    return [make("attention", tuple(given), attrs)]


@case("sm_90", "plain")
def attention_of_padded_and_repeated_operands():
    """Operands that are no plain loads."""
    query = b.pad(operand("q", 1, 2, 60, 24), [0, 0, 2, 0], [0, 0, 8, 0], 1.5)
    key = b.expand(operand("k", 1, 1, 40, 1), (1, 2, 40, 24))
    value = b.concat([operand("v", 1, 2, 40, 8), operand("w", 1, 2, 40, 16)], 3)
    attrs = attention_attrs(1.0)
    return [make("attention", (query, key, value), attrs)]


# -- quantised weights -----------------------------------------------------------------------------


def dequantised(codes: Node, columns: int, depth: int, group: int) -> Node:
    """(codes - zero) · scale of groups, in bf16, as the right operand."""
    groups = b.reshape(codes, (columns, depth // group, group))
    scaled = groups * weight("scale", columns, depth // group, 1)
    return b.permute(b.cast(b.reshape(scaled, (columns, depth)), "bf16"), (1, 0))


def halves(columns: int, depth: int) -> Node:
    """Numbers of 4 bits less 8, the low half of a byte first."""
    pairs = b.reshape(weight("q", columns, depth // 2, dtype="u8"), (columns, depth // 2, 1))
    shifts = b.cast(b.counter(3, 2, 2) * 4, "u8")
    both = b.pointwise("bitwise_and", b.pointwise("shift_right", pairs, shifts), 15)
    return b.cast(b.reshape(both, (columns, depth)), "f32") - 8.0


@case("sm_90", "decoding")
def matmul_of_nibbles():
    x = operand("x", 1, 1024, dtype="bf16")
    result = op("matmul", x, dequantised(halves(64, 1024), 64, 1024, 64))
    return [op("relu", op("add", result, weight("bias", 1, 64, dtype="bf16")))]


@case("sm_90", "swapped_codes_n", "plain_m")
def matmul_of_rows_and_nibbles():
    x = operand("x", 24, 256, dtype="bf16")
    return [op("matmul", x, dequantised(halves(64, 256), 64, 256, 64))]


@case("sm_90", "swapped_codes_split_mnk")
def matmul_of_rows_and_bytes():
    codes = b.cast(weight("q", 90, 576, dtype="i8"), "f32")
    return [op("matmul", operand("x", 20, 576, dtype="bf16"), dequantised(codes, 90, 576, 576))]


@case("sm_90", "fragments_whole_n", "fragments_whole_nk")
def matmul_of_few_rows_and_nibbles():
    x = operand("x", 6, 256, dtype="bf16")
    return [op("matmul", x, dequantised(halves(64, 256), 64, 256, 64))]


@case("sm_90", "fragments")
def matmul_of_few_rows_and_bytes():
    codes = b.cast(weight("q", 64, 4096, dtype="i8"), "f32")
    return [op("matmul", operand("x", 8, 4096, dtype="bf16"), dequantised(codes, 64, 4096, 64))]


@case("sm_90", "fragments_whole_mnk")
def gated_product_of_few_rows_and_floats():
    codes = widened(weight("q", 60, 320, dtype="u8"), E4M3)
    both = op("matmul", operand("x", 5, 320, dtype="bf16"), dequantised(codes, 60, 320, 64))
    gate, up = (b.slice_axis(both, 1, at, at + 30) for at in (0, 30))
    return [op("silu", gate) * up]


@case("sm_90", "decoding_mnk", "swapped_split_mnk")
def matmul_of_bytes():
    zeros = b.cast(weight("zeros", 33, 11, 1, dtype="i8"), "f32")
    codes = b.cast(weight("q", 33, 352, dtype="i8"), "f32")
    groups = b.reshape(codes, (33, 11, 32)) - zeros
    scaled = b.reshape(groups * weight("scale", 33, 11, 1), (33, 352))
    return [op("matmul", operand("x", 3, 352), b.permute(scaled, (1, 0)))]


@case("sm_90", "decoding")
def matmul_of_e4m3_floats():
    codes = widened(weight("q", 64, 512, dtype="u8"), E4M3)
    return [op("matmul", operand("x", 1, 512, dtype="bf16"), dequantised(codes, 64, 512, 512))]


@case("sm_90", "decoding")
def matmul_of_e5m2_floats():
    codes = widened(weight("q", 64, 512, dtype="u8"), E5M2)
    return [op("matmul", operand("x", 2, 512, dtype="bf16"), dequantised(codes, 64, 512, 32))]


@case("sm_90", "decoding_k")
def norm_of_one_row_and_nibbles():
    x = operand("x", 1, 256, dtype="bf16")
    row = b.root_mean_square_norm(b.cast(x, "f32"), [1], 1e-5) * weight("scale_of_norm", 1, 256)
    return [op("matmul", b.cast(row, "bf16"), dequantised(halves(64, 256), 64, 256, 64))]
