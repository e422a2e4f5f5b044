"""Channels: convolutions of few channels get more, so that what is read together is longer.

A kernel offset of three channels is six bytes of bf16, and a GPU copies to shared memory by four,
eight or sixteen bytes at once. With zero channels a row of kernel offsets is one run of vectors,
and with a margin each row of the image begins with a whole one. The schedule copies such an input
anyway: the zeros cost a part of that copy.

A processor that multiplies words of bf16 copies windows of few channels for each block of columns,
by rows of a filter: 21 elements of three channels and seven offsets. Where windows along all axes
but the last are copied once, as channels, what is left is a filter of one row over 32 channels,
which is read where it lies, by as many products as zeros behind 21 elements take.
"""

from __future__ import annotations

import math

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.rules import Context, Rule, rule_for
from aotc.aot.ir.size import fixed
from aotc.aot.ir.types import DTYPES

VECTOR_BYTES = 16
PANEL_DEPTH = 32  # of weights in the order of words: a multiple of so many rows
FEWEST_FILTERS = 16
MOST_CHANNELS = 8  # beyond which vectors of a part of the channels are no loss


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


def _windows_as_channels(root: Node, context: Context) -> Node | None:
    """conv(x, w) → conv of one row of offsets (windows of x along the other axes as channels, w)"""
    data, weight = root.inputs
    filters, channels, *kernel = (fixed(extent) for extent in weight.shape)
    *outer, last = kernel
    count = channels * math.prod(outer)
    multiple = PANEL_DEPTH // math.gcd(PANEL_DEPTH, last)
    wanted = -(-count // multiple) * multiple
    is_small = root.dtype == "bf16" and root.attr("groups") == 1 and channels <= MOST_CHANNELS
    is_known = context.is_constant(weight) and not context.is_constant(data)
    if not (is_small and is_known) or filters < FEWEST_FILTERS or math.prod(outer) == 1:
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
    # conv(x, w) → conv(windows of x along all axes but the last, w of one row of offsets)
    rule_for(("convolution",), "windows-as-channels", _windows_as_channels, is_exact=False),
)

RULES: tuple[Rule, ...] = (
    # conv(x, w) → conv(x beside zeros, w beside zeros) for few channels
    rule_for(("convolution",), "zeros-beside", _zeros_beside, is_exact=False),
)
