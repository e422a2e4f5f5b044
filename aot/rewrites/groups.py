"""Convolutions by groups of few outputs, for processors: positions side by side, not outputs."""

from __future__ import annotations

import math

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.rules import Rule, rule_for
from aotc.aot.ir.size import typical

FEW_OUTPUTS = 16  # of a group: less than a vector of f32
FEWEST_POSITIONS = 12  # of a row that are worth a vector


def _convolution_narrow(root: Node) -> Node | None:
    """conv(x, w) → w of a group · windows of its channels, one matmul a row of positions

    Groups of few outputs have too few columns for vectors; positions of a row are enough.
    """
    data, weight = root.inputs
    outputs, inputs, *kernel = weight.shape
    groups, rank, width = root.attr("groups"), len(kernel), root.shape[-1]
    each = outputs // groups
    is_wide = typical(width) >= FEWEST_POSITIONS and root.attr("stride")[-1] == 1
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


RULES: tuple[Rule, ...] = (
    rule_for(("convolution",), "convolution-narrow", _convolution_narrow, False),
)
