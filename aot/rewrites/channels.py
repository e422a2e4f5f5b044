"""Pads convolutions of few channels with zero channels, so that contiguous reads are longer.

GPU: the three channels at one kernel offset are six bytes of bf16, and a GPU copies to shared
memory by four, eight or sixteen bytes at once. With zero channels a row of kernel offsets is one
run of vectors, and with padding each row of the image is aligned to a vector. The schedule copies
such an input anyway; the zeros cost a part of that copy.

CPU with bf16 words: a row of a filter is read from the image in place. Seven offsets of three
channels and a zero are 28 elements, and those of the next window begin a stride further on. So the
image is copied once, with padding and zero channels, and a product sums over such a row. The memory
after a row holds other pixels, and zero times infinity is NaN; therefore rows are padded with zeros
that the kernel neither reads nor multiplies.

If the offsets of a row are not adjacent (dilation), windows along all axes but the last are copied
once, as channels: what is left is a filter of one row over more channels.
"""

from __future__ import annotations

import math

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.rules import Context, Rule, rule_for
from aotc.aot.ir.size import fixed, is_static
from aotc.aot.ir.types import DTYPES

VECTOR_BYTES = 16
PANEL_DEPTH = 32  # of weights in the order of words: a multiple of so many rows
FEWEST_FILTERS = 16
MOST_CHANNELS = 8  # beyond which vectors of a part of the channels are no loss
# Elements of a row of a filter that one product adds up; of windows that do not meet, which are
# copied as fast as an image is, more.
FEWEST_TOGETHER, FEWEST_APART, MOST_TOGETHER = 12, 32, 128


def _zeros_beside(root: Node, context: Context) -> Node | None:
    """conv(x, w) → conv(x with zero channels and margins, w with zero channels)"""
    data, weight = root.inputs
    channels, kernel = fixed(weight.shape[1]), weight.shape[2:]
    margin, stride = root.attr("padding")[-1], root.attr("stride")[-1]
    vector = VECTOR_BYTES // DTYPES[root.dtype].itemsize_bytes
    width = data.shape[-1] + 2 * margin
    lengths = (stride, kernel[-1], width)
    is_aligned = all(channels * length % vector == 0 for length in lengths)
    is_windowed = weight.type.numel > weight.shape[0] * channels and root.attr("groups") == 1
    if not is_windowed or channels > MOST_CHANNELS or channels % vector == 0 or is_aligned:
        return None
    wanted = _channels(channels, stride, vector)
    if wanted == channels or not context.is_constant(weight) or context.is_constant(data):
        return None
    # A wider margin must not add a window.
    reach = (kernel[-1] - 1) * root.attr("dilation")[-1] + 1
    last = width - reach - (width - reach) % stride + stride + reach
    end = next((end for end in range(width, last) if end * wanted % vector == 0), width)
    spatial = (0,) * (data.type.rank - 3)
    low, high = (0, 0, *spatial, margin), (0, wanted - channels, *spatial, end - width + margin)
    padded = build.pad(data, low, high, 0.0)
    zeros = (0,) * weight.type.rank
    filters = build.pad(weight, zeros, (0, wanted - channels, *zeros[2:]), 0.0)
    attrs = dict(root.attrs) | {"padding": (*root.attr("padding")[:-1], 0)}
    return make("convolution", (padded, filters), attrs)


def _channels(channels: int, stride: int, vector: int) -> int:
    """The fewest channels, zeros included, with which each window begins with a whole vector."""
    half = vector // 2
    if channels <= half and stride * half % vector == 0:
        return half
    return -(-channels // vector) * vector


def _is_of_words(root: Node, context: Context) -> bool:
    """Whether a constant filter of bf16 has enough columns for products by words."""
    data, weight = root.inputs
    is_known = context.is_constant(weight) and not context.is_constant(data)
    is_plain = root.dtype == "bf16" and root.attr("groups") == 1
    return is_plain and is_known and fixed(weight.shape[0]) >= FEWEST_FILTERS


def _rows_together(root: Node, context: Context) -> Node | None:
    """conv(x, w) → [rows of windows of x with zeros behind each] · [rows of w with such zeros]"""
    weight = root.inputs[1]
    filters, channels, *kernel = (fixed(extent) for extent in weight.shape)
    is_odd = channels * kernel[-1] % 2 == 1  # words are two elements
    wide = 1 << channels.bit_length() if is_odd else channels
    together = kernel[-1] * wide
    if not _is_of_words(root, context) or not _is_read_in_rows(root, together):
        return None
    rank, length = len(kernel), max(PANEL_DEPTH, 1 << (together - 1).bit_length())
    image = _with_margins(root, wide)
    if image is None:
        return None
    samples, *positions, _ = image.shape
    rows = build.reshape(image, (samples, *positions[:-1], positions[-1] * wide))
    attrs = {
        "axes": tuple(range(1, 1 + rank)),
        "sizes": (*kernel[:-1], together),
        "strides": (*root.attr("stride")[:-1], root.attr("stride")[-1] * wide),
        "dilations": root.attr("dilation"),
    }
    windows = make("window", (rows,), attrs)
    inner, places = math.prod(kernel[:-1]) * length, root.type.numel // filters
    left = build.reshape(_behind(windows, 2 * rank, length - together), (places, inner))
    ordered = build.permute(weight, (*range(2, 2 + rank), 1, 0))
    filled = _behind(ordered, rank, wide - channels)
    joined = build.reshape(filled, (*kernel[:-1], together, filters))
    right = build.reshape(_behind(joined, rank - 1, length - together), (inner, filters))
    product = make("matmul", (left, right))
    result = build.reshape(product, (root.shape[0], *root.shape[2:], filters))
    return build.permute(result, (0, 1 + rank, *range(1, 1 + rank)))


def _is_read_in_rows(root: Node, together: int) -> bool:
    """Whether a row of the filter lies together in an image whose channels are few, or have a depth
    that the order of words does not take."""
    data, weight = root.inputs
    channels, *kernel = (fixed(extent) for extent in weight.shape[1:])
    is_cut = together == channels * kernel[-1] and channels * math.prod(kernel) % PANEL_DEPTH != 0
    if not (channels <= MOST_CHANNELS or is_cut) or kernel[-1] == 1:
        return False
    fewest = FEWEST_APART if root.attr("stride")[-1] >= kernel[-1] else FEWEST_TOGETHER
    is_long = fewest <= together <= MOST_TOGETHER
    is_known = is_static(data.shape[2:]) and root.type.numel != 0
    return is_long and is_known and root.attr("dilation")[-1] == 1


def _behind(data: Node, axis: int, count: int) -> Node:
    """The node with so many zeros behind an axis."""
    none = [0] * data.type.rank
    return build.pad(data, none, [*none[:axis], count, *none[axis + 1 :]], 0.0)


def _with_margins(root: Node, wide: int) -> Node | None:
    """The image, channels last, so many of them, with margins, and along the last axis whole
    strides: then its rows are a number of windows apart. None where a window is all margin."""
    data, weight = root.inputs
    rank = data.type.rank
    low, high = [0] * rank, [0] * rank
    high[1] = wide - fixed(data.shape[1])
    for axis in range(2, rank):
        stride, margin, dilation = (
            root.attr(name)[axis - 2] for name in ("stride", "padding", "dilation")
        )
        reach = (fixed(weight.shape[axis]) - 1) * dilation + 1
        end = (fixed(root.shape[axis]) - 1) * stride + reach
        end = -(-end // stride) * stride if axis == rank - 1 else end
        if end <= margin:
            return None
        more = end - margin - fixed(data.shape[axis])
        data = build.bordered(data, axis, 0, min(0, more))
        low[axis], high[axis] = margin, max(0, more)
    last = (0, *range(2, rank), 1)
    moved = build.permute(data, last)
    return build.pad(moved, [low[axis] for axis in last], [high[axis] for axis in last], 0.0)


def _windows_as_channels(root: Node, context: Context) -> Node | None:
    """conv(x, w) → conv of one row of offsets (windows of x along the other axes as channels, w)"""
    data, weight = root.inputs
    filters, channels, *kernel = (fixed(extent) for extent in weight.shape)
    *outer, last = kernel
    count = channels * math.prod(outer)
    multiple = PANEL_DEPTH // math.gcd(PANEL_DEPTH, last)
    wanted = -(-count // multiple) * multiple
    is_small = channels <= MOST_CHANNELS and _is_of_words(root, context)
    if not is_small or math.prod(outer) == 1:
        return None
    row = 1 << (channels * last - 1).bit_length()  # of the filter, by blocks of the depth
    if wanted * last > math.prod(outer) * row:
        return None
    rank = len(kernel)
    margins = (0, 0, *root.attr("padding")[:-1], 0)
    attrs = {
        "axes": tuple(range(2, 1 + rank)),
        "sizes": tuple(outer),
        "strides": root.attr("stride")[:-1],
        "dilations": root.attr("dilation")[:-1],
    }
    windows = make("window", (build.pad(data, margins, margins, 0.0),), attrs)
    own = range(2 + rank, 1 + 2 * rank)
    moved = build.permute(windows, (0, *own, *range(1, 2 + rank)))
    joined = build.reshape(moved, (data.shape[0], count, *windows.shape[2 : 2 + rank]))
    none, more = (0,) * (2 + rank), (0, wanted - count, *[0] * rank)
    ordered = build.permute(weight, (0, *range(2, 1 + rank), 1, 1 + rank))
    rows = build.reshape(ordered, (filters, count, *[1] * (rank - 1), last))
    changed = {
        name: (*[value] * (rank - 1), root.attr(name)[-1])
        for name, value in (("stride", 1), ("padding", 0), ("dilation", 1))
    }
    operands = (build.pad(x, none, more, 0.0) if wanted > count else x for x in (joined, rows))
    return make("convolution", tuple(operands), dict(root.attrs) | changed)


WORD_RULES: tuple[Rule, ...] = (
    # conv(x, w) → [rows of windows of x, zeros behind each] · [rows of w, zeros behind each]
    rule_for(("convolution",), "rows-together", _rows_together, is_exact=False),
    # conv(x, w) → conv(windows of x along all axes but the last, w of one row of offsets)
    rule_for(("convolution",), "windows-as-channels", _windows_as_channels, is_exact=False),
)

RULES: tuple[Rule, ...] = (
    # conv(x, w) → conv(x beside zeros, w beside zeros) for few channels
    rule_for(("convolution",), "zeros-beside", _zeros_beside, is_exact=False),
)
