"""Gradients of the weights of convolutions as products.

All forms are products over positions: [O, positions] of the gradient by what each offset of the
kernel sees at a position. They differ in how the data lie that the product reads.

On a processor, where channels are many, they lie side by side in the right operand, and a stride
only takes its rows further apart. The gradient is the left operand, which is read element by
element, positions side by side.

Where channels are few, what an offset sees is the data from another element on, positions side by
side. So the gradient is laid on the grid of all places of the padded data, with zeros where a place
is no position, and an offset's row of the left operand begins that many elements later. Where too
many places are none, as of images of 7 × 7, what each offset sees is copied.

On a GPU channels lie side by side, which tiles copy 16 bytes at a time from wherever an offset
begins. Positions are those of the gradient, which is read as it lies; the data are copied only
where padding is to be zeros, or channels more than there are. At sizes that vary nobody knows how
far windows reach behind the data, and the product is that of processors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.size import Extent, fixed, is_static
from aotc.aot.ir.types import DTYPES

FEW_CHANNELS, VECTOR = 4, 8  # elements that one load reads, at least and at best
LANES = 16  # channels that a processor's vector has at most
# Channels of a group from which windows of channels take less than a grid of positions (one core
# with AVX-512; times to the grid's): strides of 2 and 3, f32 64: 0.73, 31: 0.88; 4 groups of 16:
# 1.6; bf16 64: 0.79, 32: 2.0. 1 × 1 without a stride, f32 64: 0.37, 32: 1.7.
MANY_CHANNELS, MANY_OF_ONE_GROUP = 64, 24
ROWS_MULTIPLE = 64  # rows of the grid: what a step of the product's loop takes
# A place that is no position costs its products, in ns each (one core with AVX-512), and a copy of
# all windows its elements, by whether they stay in a core's cache: images of 14 × 14 with 1.31
# places a position take 7.0 ms on a grid for 7.8, of 7 × 7 with 1.65 12.6 for 7.5, 8 × 24 × 24 of
# 16 channels with 1.47 1.7 for 2.7.
PRODUCT_NS, NEAR_COPY_NS, FAR_COPY_NS = 0.013, 0.12, 1.2
NEAR_BYTES = 1 << 20


def products_on_grid(graph: Graph) -> tuple[Graph, int]:
    """`graph` without `convolution_weights`, for processors, and how many there were."""
    return _rewritten(graph, _on_grid)


def products_of_windows(graph: Graph) -> tuple[Graph, int]:
    """`graph` without `convolution_weights`, for GPUs, and how many there were."""
    return _rewritten(graph, lambda root: (_of_windows if _is_fixed(root) else _on_grid)(root))


def _is_fixed(root: Node) -> bool:
    """Whether the sizes of the images are known."""
    return is_static([extent for each in root.inputs for extent in each.shape[2:]])


def _rewritten(graph: Graph, product_of: Callable[[Node], Node]) -> tuple[Graph, int]:
    count = sum(node.op == "convolution_weights" for node in graph.nodes())
    if not count:
        return graph, 0

    def rewritten(_: Node, node: Node) -> Node:
        return product_of(node) if node.op == "convolution_weights" else node

    return graph.rebuilt(rewritten), count


def _bordered(root: Node, *, is_cut: bool = True) -> Node:
    """The data with as many elements as the windows of all positions reach, of padding too.

    is_cut: without those that lie behind all windows; else without them only where another window
    would find a place there, as behind a transposed convolution with `output_padding`.
    """
    data, gradient = root.inputs
    rows = [root.attr(name) for name in ("stride", "padding", "dilation", "kernel")]
    for axis, (step, margin, gap, size) in enumerate(zip(*rows, strict=True), 2):
        reach = (gradient.shape[axis] - 1) * step + gap * (size - 1) + 1
        high = reach - margin - data.shape[axis]
        is_short = is_cut or (isinstance(high, int) and high <= -step)
        data = build.bordered(data, axis, margin, high if is_short else max(high, 0))
    return data


def _windows(root: Node, data: Node, axes: Sequence[int]) -> Node:
    """What each position sees, dims of the kernel last."""
    attrs = {
        "axes": tuple(axes),
        "sizes": root.attr("kernel"),
        "strides": root.attr("stride"),
        "dilations": root.attr("dilation"),
    }
    return make("window", (data,), attrs)


def _of_windows(root: Node) -> Node:
    """dW = gradient [O, T] · windows [T, (*kernel, C)], for each group"""
    data, (_, gradient) = _bordered(root), root.inputs
    kernel, groups = root.attr("kernel"), root.attr("groups")
    count, positions = len(kernel), gradient.shape[2:]
    outer, inner = root.shape[0] // groups, root.shape[1]
    wide = inner if groups > 1 else _whole_vectors(inner)
    data = build.bordered(data, 1, 0, wide - inner)
    channels_last = (0, *range(2, count + 2), 1)
    seen = build.stored(build.permute(data, channels_last))
    length = seen.shape[0] * math.prod(positions)
    if (*seen.shape[1:-1], *kernel) != (*positions, *[1] * count):
        seen = _windows(root, seen, range(1, count + 1))  # [N, *positions, C, *kernel]
        order = (*range(count + 1), *range(count + 2, 2 * count + 2), count + 1)
        seen = build.permute(seen, order)
    depth = math.prod(kernel) * wide
    right = build.reshape(seen, (length, *kernel, groups, wide))
    right = build.permute(right, (1 + count, 0, *range(1, count + 1), 2 + count))
    left = build.stored(build.permute(gradient, channels_last))
    left = build.permute(build.reshape(left, (length, groups, outer)), (1, 2, 0))
    each = () if groups == 1 else (groups,)
    left = build.reshape(left, (*each, outer, length))
    right = build.reshape(right, (*each, length, depth))
    product = build.reshape(make("matmul", (left, right)), (root.shape[0], *kernel, wide))
    product = build.slice_axis(product, count + 1, 0, inner)
    return build.permute(product, (0, count + 1, *range(1, count + 1)))


def _of_positions(root: Node) -> Node:
    """dW = gradient [O, T] · windows [T, (*kernel, C)], for each group, for a processor."""
    gradient = root.inputs[1]
    kernel, groups = root.attr("kernel"), root.attr("groups")
    count, length = len(kernel), root.inputs[0].shape[0] * math.prod(gradient.shape[2:])
    outer, inner = root.shape[0] // groups, root.shape[1]
    data = _bordered(root, is_cut=False)
    wide = -(-inner // LANES) * LANES
    parts = build.reshape(data, (data.shape[0], groups, inner, *data.shape[2:]))
    parts = build.bordered(parts, 2, 0, wide - inner)
    data = build.reshape(parts, (data.shape[0], groups * wide, *data.shape[2:]))
    seen = _windows(root, data, range(2, count + 2))  # [N, C, *positions, *kernel]
    seen = build.permute(seen, (0, *range(2, 2 * count + 2), 1))
    right = build.reshape(seen, (length, *kernel, groups, wide))
    right = build.permute(right, (1 + count, 0, *range(1, count + 1), 2 + count))
    left = build.permute(gradient, (1, 0, *range(2, count + 2)))
    each = () if groups == 1 else (groups,)
    left = build.reshape(left, (*each, outer, length))
    right = build.reshape(right, (*each, length, math.prod(kernel) * wide))
    product = build.reshape(make("matmul", (left, right)), (root.shape[0], *kernel, wide))
    product = build.slice_axis(product, count + 1, 0, inner)
    return build.permute(product, (0, count + 1, *range(1, count + 1)))


def _whole_vectors(channels: Extent) -> Extent:
    """As many channels as loads of a few bytes find in whole parts of a vector."""
    if not isinstance(channels, int) or channels <= 2:
        return channels
    if channels <= FEW_CHANNELS:
        return FEW_CHANNELS
    return -(-channels // VECTOR) * VECTOR


def _has_many_channels(root: Node) -> bool:
    """Whether vectors of channels are read for less than vectors of positions."""
    channels = root.shape[1]
    if not _is_fixed(root) or not isinstance(channels, int):
        return False
    is_pointwise = math.prod(root.attr("kernel")) * math.prod(root.attr("stride")) == 1
    is_easy = root.attr("groups") == 1 and root.dtype == "f32" and not is_pointwise
    return channels >= (MANY_OF_ONE_GROUP if is_easy else MANY_CHANNELS)


def _on_grid(root: Node) -> Node:
    """dW = windows [(*kernel, C), T] · gradient [T, O], for each group, T the places of a grid, or
    that of few channels alone: see `_of_positions`."""
    if _has_many_channels(root):
        return _of_positions(root)
    grid = _Grid(root)
    if grid.is_too_wide:
        return _of_copied_windows(root)
    return _product(root, grid.windows(root.inputs[0]), grid.rows(root.inputs[1]))


def _of_copied_windows(root: Node) -> Node:
    """The same, T the positions alone: what each offset sees is copied."""
    data, gradient = root.inputs
    count = len(root.attr("kernel"))
    seen = _windows(root, _bordered(root), range(2, count + 2))  # [N, C, *positions, *kernel]
    order = (*range(count + 2, 2 * count + 2), 1, 0, *range(2, count + 2))
    length = data.shape[0] * math.prod(gradient.shape[2:])
    shape = (*root.attr("kernel"), data.shape[1], length)
    windows = build.reshape(build.laid_out(build.permute(seen, order)), shape)
    flat = build.permute(gradient, (0, *range(2, count + 2), 1))
    rows = build.laid_out(build.reshape(flat, (length, gradient.shape[1])))
    return _product(root, windows, rows)


def _product(root: Node, windows: Node, rows: Node) -> Node:
    """The product of [*kernel, C, T] and [T, O]."""
    kernel, groups, length = root.attr("kernel"), root.attr("groups"), rows.shape[0]
    outer, inner = root.shape[0] // groups, root.shape[1]
    count = len(kernel)
    windows = build.reshape(windows, (*kernel, groups, inner, length))
    windows = build.permute(windows, (count, *range(count), count + 1, count + 2))
    rows = build.reshape(rows, (length, groups, outer))
    depth = math.prod(kernel) * inner
    left = build.reshape(windows, (groups, depth, length))
    right = build.permute(rows, (1, 0, 2))
    if groups == 1:
        left = build.reshape(left, (depth, length))
        right = build.reshape(right, (length, outer))
    product = build.reshape(make("matmul", (left, right)), (groups, *kernel, inner, outer))
    order = (0, count + 2, count + 1, *range(1, count + 1))
    return build.reshape(build.permute(product, order), root.shape)


def _costs_more(root: Node, places: int, positions: int) -> bool:
    """Whether products of places that are no positions take longer than a copy of all windows."""
    outer, depth = fixed(root.shape[0]) // root.attr("groups"), fixed(math.prod(root.shape[1:]))
    nbytes = positions * depth * root.attr("groups") * DTYPES[root.dtype].itemsize_bytes
    copy_ns = NEAR_COPY_NS if nbytes <= NEAR_BYTES else FAR_COPY_NS
    return bool((places - positions) * outer * PRODUCT_NS > positions * copy_ns)


class _Grid:
    """The positions of a convolution in the order of memory, and those that kernel offsets reach.

    An axis has `extents` places, `stride` elements of the data each. `pitches`: rows from a place
    to the next one along an axis. `reaches`: elements from the first kernel offset to the last.
    is_too_wide: so many places are no positions that a copy of all windows costs less.
    """

    def __init__(self, root: Node) -> None:
        data, gradient = root.inputs
        self.steps: Sequence[int] = root.attr("stride")
        self.margins: Sequence[int] = root.attr("padding")
        self.gaps: Sequence[int] = root.attr("dilation")
        rows = zip(root.attr("kernel"), self.gaps, strict=True)
        self.reaches: list[Extent] = [(size - 1) * gap for size, gap in rows]
        over = [reach // step for reach, step in zip(self.reaches, self.steps, strict=True)]
        self.blocks = [places + 1 for places in over]
        self.positions = gradient.shape[2:]
        self.extents = [own + more for own, more in zip(self.positions, over, strict=True)]
        count = len(self.extents)
        self.pitches = [math.prod(self.extents[axis + 1 :]) for axis in range(count)]
        self.tail = sum(a * b for a, b in zip(over, self.pitches, strict=True))
        self.samples = data.shape[0]
        self.filled = length = self.samples * math.prod(self.extents)
        is_fixed = isinstance(length, int)
        own = self.samples * math.prod(self.positions)
        self.is_too_wide = is_fixed and _costs_more(root, fixed(length), fixed(own))
        self.length = -(-length // ROWS_MULTIPLE) * ROWS_MULTIPLE if is_fixed else length

    def rows(self, gradient: Node) -> Node:
        """The gradient [N, O, *positions] as [T, O], a copy."""
        count, channels = len(self.extents), gradient.shape[1]
        high = [own - seen for own, seen in zip(self.extents, gradient.shape[2:], strict=True)]
        laid = build.pad(gradient, (0,) * (count + 2), (0, 0, *high), 0)
        flat = build.permute(laid, (0, *range(2, count + 2), 1))
        flat = build.reshape(flat, (self.filled, channels))
        return build.stored(build.pad(flat, (0, 0), (self.length - self.filled, 0), 0))

    def windows(self, data: Node) -> Node:
        """What each kernel offset sees: [*kernel, C, T], a view of a copy of the data.

        Rows that are not positions see 0: 0 times what is not finite is not 0.
        """
        steps, count, channels = self.steps, len(self.extents), data.shape[1]
        for axis, (margin, step) in enumerate(zip(self.margins, steps, strict=True)):
            high = self.extents[axis] * step - margin - data.shape[axis + 2]
            data = build.bordered(data, axis + 2, margin, high)
        pairs = [part for pair in zip(self.extents, steps, strict=True) for part in pair]
        apart = build.reshape(data, (data.shape[0], channels, *pairs))
        phases = [3 + 2 * axis for axis in range(count)]
        order = (*phases, 1, 0, *(axis - 1 for axis in phases))
        rows = build.permute(apart, order)
        flat = build.reshape(rows, (math.prod(steps), channels, self.filled))
        more = self.length - self.filled + self.tail
        if isinstance(more, int) and more:  # whole rows of places, which are copied one by one
            more += -(self.filled + more) % self.extents[-1]
        found = build.pad(flat, (0, 0, 0), (0, 0, more), 0)
        if self.blocks != [1] * count or more:
            found = build.stored(found)
        for blocks, pitch in zip(self.blocks, self.pitches, strict=True):
            attrs = {"axes": (2,), "sizes": (blocks,), "strides": (1,), "dilations": (pitch,)}
            if blocks != 1:  # else there is one place for each row, and axes of one element below
                found = make("window", (found,), attrs)
        found = build.slice_axis(found, 2, 0, self.length)
        # [phases, C, T, *blocks] → [*(block, phase), C, T]
        found = build.reshape(found, (*steps, channels, self.length, *self.blocks))
        order = tuple(part for axis in range(count) for part in (count + 2 + axis, axis))
        found = build.permute(found, (*order, count, count + 1))
        dense = [blocks * step for blocks, step in zip(self.blocks, steps, strict=True)]
        found = build.reshape(found, (*dense, channels, self.length))
        for axis, (reach, gap) in enumerate(zip(self.reaches, self.gaps, strict=True)):
            found = build.slice_axis(found, axis, 0, reach + 1, gap)
        is_position = self._is_position()
        return found if is_position is None else build.where(is_position, found, 0)

    def _is_position(self) -> Node | None:
        """Whether each of the T rows is a position; None where all are."""
        count = len(self.extents)
        found: Node | None = None
        for axis, (extent, own) in enumerate(zip(self.extents, self.positions, strict=True)):
            if extent != own:
                inside = build.counter(count, axis, extent) < own
                found = inside if found is None else found & inside
        if found is None:
            return None
        found = build.expand(found, (self.samples, *self.extents))
        found = build.reshape(found, (self.filled,))
        found = build.pad(found, (0,), (self.length - self.filled,), False)
        return build.align(found, count + 2)
