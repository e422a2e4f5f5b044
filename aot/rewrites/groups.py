"""Grouped convolutions with few outputs a group, and 1 × 1 convolutions, for CPUs.

The few outputs of a group fill no vector. In channels-last layout one vector holds the channels of
several groups, each repeated for the outputs of its group. In channels-first layout the lanes are
positions of a row instead of outputs. The same is done for 1 × 1 convolutions whose input and
output are channels first: neither is transposed.
"""

from __future__ import annotations

import math

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.rules import Rule, rule_for
from aotc.aot.ir.size import typical

FEW_OUTPUTS = 16  # of a group: less than a vector of f32
FEW_CHANNELS = 4  # of a group, which are added up one after the other
MOST_TERMS = 64  # of such a sum, which is written out
FEWEST_IN_PANELS = 8  # inputs and outputs of a group that are a product of their own
FEWEST_POSITIONS = 12  # of a row that are worth a vector
# Positions of a plane and channels of an input, so that its columns are worth a copy.
FEWEST_IN_PLANE, FEWEST_PLANES = 128, 128


def _convolution_of_few(root: Node) -> Node | None:
    """conv(x, w) → sum over the kernel and the channels of a group of window · w"""
    data, weight = root.inputs
    outputs, inputs, *kernel = weight.shape
    groups, rank = root.attr("groups"), len(kernel)
    each = outputs // groups
    is_few = 1 < inputs <= FEW_CHANNELS and each <= FEW_CHANNELS
    is_few = is_few and inputs * math.prod(map(typical, kernel)) <= MOST_TERMS
    if groups == 1 or not is_few or not _has_channels_last(data):
        return None
    last = (0, *range(2, rank + 2), 1)
    margins = (0, *root.attr("padding"), 0)
    padded = build.pad(build.permute(data, last), margins, margins, 0.0)
    attrs = {
        "axes": tuple(range(1, 1 + rank)),
        "sizes": tuple(kernel),
        "strides": root.attr("stride"),
        "dilations": root.attr("dilation"),
    }
    windows = make("window", (padded,), attrs)
    places = windows.shape[: rank + 1]
    split = build.reshape(windows, (*places, groups, 1, inputs, *kernel))
    factors = build.reshape(weight, (*[1] * (rank + 1), groups, each, inputs, *kernel))
    product = make("mul", (split, factors))
    inner = tuple(range(rank + 3, 2 * rank + 4))
    total = build.drop(build.reduce("sum", product, inner), inner)
    joined = build.reshape(total, (*places, outputs))
    return build.permute(joined, (0, rank + 1, *range(1, rank + 1)))


def _has_channels_last(data: Node) -> bool:
    """Whether a convolution's input will lie with its channels together: results of products do,
    and what is computed of them element by element."""
    while data.kind == "pointwise" or data.op == "pad":
        data = max(data.inputs, key=lambda each: typical(each.type.numel))
    is_permuted = data.op == "permute" and data.attr("dims")[1] == data.type.rank - 1
    return data.op == "convolution" or is_permuted


def _convolution_narrow(root: Node) -> Node | None:
    """conv(x, w) → w of a group · windows of its channels, one matmul a row of positions

    Groups of few outputs have too few columns for vectors; positions of a row are enough.
    """
    data, weight = root.inputs
    outputs, inputs, *kernel = weight.shape
    groups, rank, width = root.attr("groups"), len(kernel), root.shape[-1]
    each = outputs // groups
    is_wide = typical(width) >= FEWEST_POSITIONS and root.attr("stride")[-1] == 1
    if min(inputs, each) >= FEWEST_IN_PANELS and _has_channels_last(data):
        return None
    if groups == 1 or max(inputs, each) == 1 or each >= FEW_OUTPUTS or not is_wide:
        return None
    margins = (0, 0, *root.attr("padding"))
    attrs = {
        "axes": tuple(range(2, 2 + rank)),
        "sizes": weight.shape[2:],
        "strides": root.attr("stride"),
        "dilations": root.attr("dilation"),
    }
    windows = make("window", (build.pad(data, margins, margins, 0.0),), attrs)
    samples, _, *positions = root.shape
    split = build.reshape(windows, (samples, groups, inputs, *positions, *kernel))
    # [N, G, C, *positions, W, *kernel] → [G, N, *positions, C, *kernel, W]
    rows = tuple(range(3, 2 + rank))
    order = (1, 0, *rows, 2, *range(3 + rank, 3 + 2 * rank), 2 + rank)
    inner, count = inputs * math.prod(kernel), samples * math.prod(positions[:-1])
    right = build.reshape(build.permute(split, order), (groups * count, inner, width))
    filters = build.reshape(weight, (groups, 1, each, inner))
    left = build.reshape(
        build.expand(filters, (groups, count, each, inner)), (groups * count, each, inner)
    )
    product = build.reshape(
        make("matmul", (left, right)), (groups, samples, *positions[:-1], each, width)
    )
    back = (1, 0, 1 + rank, *range(2, 1 + rank), 2 + rank)
    return build.reshape(build.permute(product, back), root.shape)


def _convolution_of_planes(root: Node) -> Node | None:
    """conv(x, w) → w · x for kernels of one element and images that lie by planes"""
    data, weight = root.inputs
    outputs, inputs, *kernel = weight.shape
    samples, _, *positions = data.shape
    is_plain = root.attr("groups") == 1 and math.prod(kernel) == 1 and root.dtype == "f32"
    if not is_plain or set(root.attr("stride")) != {1} or any(root.attr("padding")):
        return None
    count = math.prod(positions)
    if typical(count) < FEWEST_IN_PLANE or typical(inputs) < FEWEST_PLANES:
        return None
    if not _lies_by_planes(data):
        return None
    left = build.reshape(weight, (1, outputs, inputs))
    product = make("matmul", (left, build.reshape(data, (samples, inputs, count))))
    return build.reshape(product, root.shape)


def _lies_by_planes(data: Node) -> bool:
    """Whether the positions of a channel will lie together: those of an input do, of a product that
    has them as columns, and of what is computed of these element by element."""
    while data.kind == "pointwise":
        data = max(data.inputs, key=lambda each: typical(each.type.numel))
    if data.op != "reshape":
        return data.op == "input"
    (rows,) = data.inputs
    return rows.op == "matmul" and rows.shape[:-1] == data.shape[:2]


RULES: tuple[Rule, ...] = (
    # conv(x, w) by groups → Σ over offsets and a group's channels of window · w
    rule_for(("convolution",), "convolution-of-few", _convolution_of_few, False),
    rule_for(("convolution",), "convolution-narrow", _convolution_narrow, False),
    # conv(x, w) of single pixels, planes of positions → w · x
    rule_for(("convolution",), "convolution-of-planes", _convolution_of_planes, False),
)
