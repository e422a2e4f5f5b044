"""Import row of `convolution_backward`: the gradients of a convolution's operands.

The gradient of the data is a transposed convolution, that of a transposed one a plain convolution.
The gradient of the weight sums over all positions what a tap saw there times the gradient there: a
product whose inner dimension is the positions. Both operands are laid out once on one grid, the
data's margins included, so that each tap reads the data some places further on and no element is
looked up. Places of the grid that are no positions hold zeros of the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aotc.aot.capture.imports.call import Call, NotSupported, Rows, spread
from aotc.aot.capture.imports.contractions import bordered, convolved
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.size import Extent

ROWS_MULTIPLE = 64  # rows of the grid: what a step of the product's loop takes


@dataclass(frozen=True, slots=True)
class Spacing:
    """Stride, padding and dilation, one a spatial dim, and the groups of channels."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


def _convolution_backward(
    call: Call,
    gradient: Node,
    data: Node,
    weight: Node,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    is_transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Node | None, ...]:
    if data.type.kind != "float":
        raise NotSupported("gradients of integers")
    rank = data.type.rank - 2
    spacing = Spacing(spread(stride, rank), spread(padding, rank), spread(dilation, rank), groups)
    ends = (data, gradient) if is_transposed else (gradient, data)
    return (
        _of_data(call, gradient, data, weight, spacing, is_transposed) if wanted[0] else None,
        _of_weight(*ends, weight, spacing) if wanted[1] else None,
        _of_bias(gradient) if wanted[2] else None,
    )


def _of_bias(gradient: Node) -> Node:
    axes = (0, *range(2, gradient.type.rank))
    return build.drop(build.reduce("sum", gradient, axes), axes)


def _of_data(
    call: Call, gradient: Node, data: Node, weight: Node, spacing: Spacing, is_transposed: bool
) -> Node:
    rows = (spacing.stride, spacing.padding, spacing.dilation)
    extra = []
    for axis, (step, margin, gap) in enumerate(zip(*rows, strict=True), 2):
        reach = gap * (weight.shape[axis] - 1) + 1
        extra.append(data.shape[axis] - ((gradient.shape[axis] - 1) * step - 2 * margin + reach))
    if is_transposed:
        found = convolved(call, gradient, weight, *rows, False, extra, spacing.groups)
        for axis in range(2, data.type.rank):  # output padding that reaches further positions
            found = build.slice_axis(found, axis, 0, data.shape[axis])
        return found
    return convolved(call, gradient, weight, *rows, True, extra, spacing.groups)


def _of_weight(gradient: Node, data: Node, weight: Node, spacing: Spacing) -> Node:
    """[O, C / groups, *kernel] from the gradient [N, O, *positions] and the data [N, C, *spatial].

    For a transposed convolution data and gradient have changed places.
    """
    grid = _Grid(gradient, data, weight.shape[2:], spacing)
    taps, rows = grid.taps(data), grid.rows(gradient)
    kernel, groups = weight.shape[2:], spacing.groups
    outer, inner = weight.shape[0] // groups, weight.shape[1]
    # [*kernel, C, T] and [T, O], channels split into groups
    count = len(kernel)
    taps = build.reshape(taps, (*kernel, groups, inner, grid.length))
    taps = build.permute(taps, (count, *range(count), count + 1, count + 2))
    rows = build.reshape(rows, (grid.length, groups, outer))
    if inner == 1:
        seen = build.reshape(taps, (groups, 1, *kernel, grid.length))
        own = build.reshape(
            build.permute(rows, (1, 2, 0)), (groups, outer, *[1] * count, grid.length)
        )
        axis = (count + 2,)
        total = build.drop(build.reduce("sum", seen * own, axis), axis)
        return build.reshape(total, weight.shape)
    depth = math.prod(kernel) * inner
    left = build.reshape(taps, (groups, depth, grid.length))
    right = build.permute(rows, (1, 0, 2))
    if groups == 1:
        left = build.reshape(left, (depth, grid.length))
        right = build.reshape(right, (grid.length, outer))
    product = build.reshape(make("matmul", (left, right)), (groups, *kernel, inner, outer))
    order = (0, count + 2, count + 1, *range(1, count + 1))
    return build.reshape(build.permute(product, order), weight.shape)


class _Grid:
    """The positions of a convolution in the order of memory, those that a tap reaches beside them.

    An axis has `extents` places, `stride` elements of the data each. `pitches`: rows from a place
    to the next one along an axis. `reaches`: elements from the first tap to the last.
    """

    def __init__(
        self, gradient: Node, data: Node, kernel: Sequence[Extent], spacing: Spacing
    ) -> None:
        self.spacing, self.kernel = spacing, tuple(kernel)
        taps = zip(kernel, spacing.dilation, strict=True)
        self.reaches = [(size - 1) * gap for size, gap in taps]
        over = [reach // step for reach, step in zip(self.reaches, spacing.stride, strict=True)]
        self.blocks = [places + 1 for places in over]
        positions = gradient.shape[2:]
        self.extents = [own + more for own, more in zip(positions, over, strict=True)]
        count = len(self.extents)
        self.pitches = [math.prod(self.extents[axis + 1 :]) for axis in range(count)]
        self.tail = sum(a * b for a, b in zip(over, self.pitches, strict=True))
        length = data.shape[0] * math.prod(self.extents)
        self.filled = length
        is_fixed = isinstance(length, int)
        self.length = -(-length // ROWS_MULTIPLE) * ROWS_MULTIPLE if is_fixed else length

    def rows(self, gradient: Node) -> Node:
        """The gradient [N, O, *positions] as [T, O], a copy."""
        count, channels = len(self.extents), gradient.shape[1]
        high = [own - seen for own, seen in zip(self.extents, gradient.shape[2:], strict=True)]
        laid = build.pad(gradient, (0,) * (count + 2), (0, 0, *high), 0)
        flat = build.permute(laid, (0, *range(2, count + 2), 1))
        flat = build.reshape(flat, (self.filled, channels))
        return build.stored(build.pad(flat, (0, 0), (self.length - self.filled, 0), 0))

    def taps(self, data: Node) -> Node:
        """What each tap sees at each place: [*kernel, C, T], a view of a copy of the data."""
        steps, count, channels = self.spacing.stride, len(self.extents), data.shape[1]
        for axis, (margin, step) in enumerate(zip(self.spacing.padding, steps, strict=True)):
            high = self.extents[axis] * step - margin - data.shape[axis + 2]
            data = bordered(data, axis + 2, margin, high)
        pairs = [part for pair in zip(self.extents, steps, strict=True) for part in pair]
        apart = build.reshape(data, (data.shape[0], channels, *pairs))
        phases = [3 + 2 * axis for axis in range(count)]
        order = (*phases, 1, 0, *(axis - 1 for axis in phases))
        rows = build.permute(apart, order)
        flat = build.reshape(rows, (math.prod(steps), channels, self.filled))
        more = self.length - self.filled + self.tail
        found = build.stored(build.pad(flat, (0, 0, 0), (0, 0, more), 0))
        for blocks, pitch in zip(self.blocks, self.pitches, strict=True):
            attrs = {"axes": (2,), "sizes": (blocks,), "strides": (1,), "dilations": (pitch,)}
            found = make("window", (found,), attrs)
        # [phases, C, T, *blocks] → [*(block, phase), C, T]
        found = build.reshape(found, (*steps, channels, self.length, *self.blocks))
        order = tuple(part for axis in range(count) for part in (count + 2 + axis, axis))
        found = build.permute(found, (*order, count, count + 1))
        dense = [blocks * step for blocks, step in zip(self.blocks, steps, strict=True)]
        found = build.reshape(found, (*dense, channels, self.length))
        for axis, (reach, gap) in enumerate(zip(self.reaches, self.spacing.dilation, strict=True)):
            found = build.slice_axis(found, axis, 0, reach + 1, gap)
        return found


ROWS: Rows = {"convolution_backward": _convolution_backward}
