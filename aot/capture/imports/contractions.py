"""Import rows of matmul, linear and convolution."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aotc.aot.capture.imports.call import Call, NotSupported, Operand, Row, Rows, spread, wide
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.size import Extent


def _matmul(call: Call, left: Node, right: Node) -> Node:
    rows = build.reshape(left, (1, *left.shape)) if left.type.rank == 1 else left
    columns = build.reshape(right, (*right.shape, 1)) if right.type.rank == 1 else right
    return build.reshape(_product(rows, columns), call.shape)


def _product(left: Node, right: Node) -> Node:
    """Matmul; of integers as sums of products, which wrap around as torch's do."""
    if left.type.kind == "float" or not left.shape[-1]:
        return build.matmul(left, right)
    narrow = _narrowed(left), _narrowed(right)
    if None not in narrow and build.is_matmul_i8(*narrow):
        return build.cast(build.matmul(*narrow, op="matmul_i8"), left.dtype)
    return build.sums_of_products(left, right)


def _narrowed(node: Node) -> Node | None:
    """i8 of which `node` are the numbers, also behind views; None where they are not."""
    if node.dtype == "i8":
        return node
    if node.op == "cast":
        return node.inputs[0] if node.inputs[0].dtype == "i8" else None
    inner = _narrowed(node.inputs[0]) if node.kind == "view" else None
    return None if inner is None else node.on((inner,))


def _int_mm(call: Call, left: Node, right: Node) -> Node:
    """A product of 8-bit integers in i32; Σ a · b = Σ (a - 128) · b + 128 · Σ b for unsigned a."""
    if left.dtype == "u8":
        signed = _less_128(left)
        if build.is_matmul_i8(signed, right):
            below = build.reduce("sum", build.cast(right, "i32"), (0,)) * 128
            return make("matmul_i8", (signed, right)) + below
    if build.is_matmul_i8(left, right):
        return make("matmul_i8", (left, right))
    return build.matmul_of_bytes(left, right)


def _less_128(node: Node) -> Node:
    """a - 128 of u8 as i8; of u8(q + 128) for an i8 q, as torchao writes it, q."""
    if node.op == "cast" and node.inputs[0].op == "add":
        codes, more = node.inputs[0].inputs
        is_128 = more.op == "scalar" and more.attr("value") == 128
        if is_128 and codes.op == "cast" and codes.inputs[0].dtype == "i8":
            return codes.inputs[0]
    flipped = make("bitwise_xor", (node, build.scalar(128, "u8")))
    return make("bitcast", (flipped,), {"dtype": "i8"})


def _linear(call: Call, data: Node, weight: Node, bias: Node | None = None) -> Node:
    if weight.type.rank == 1:
        return _matmul(call, data, weight)
    product = build.reshape(_product(build.align(data, 2), build.transpose(weight)), call.shape)
    return product if bias is None else call.pointwise("add", product, bias)


def _plus(product_of: Callable[[Call, Node, Node], Node]) -> Row:
    """beta · start + alpha · product."""

    def row(
        call: Call, start: Node, left: Node, right: Node, beta: Operand = 1, alpha: Operand = 1
    ) -> Node:
        product = product_of(call, left, right)
        if alpha != 1:
            product = call.pointwise("mul", product, alpha)
        if beta == 0:
            return product
        return call.pointwise("add", product, start if beta == 1 else start * beta)

    return row


def _summed(call: Call, left: Node, right: Node) -> Node:
    """The products of a batch, summed over it."""
    total = build.reduce("sum", wide(_product(left, right)), (0,))
    return build.cast(build.drop(total, (0,)), call.dtype)


def _convolution(
    call: Call,
    data: Node,
    weight: Node,
    bias: Node | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    is_transposed: bool = False,
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
) -> Node:
    rank = data.type.rank - 2
    rows = tuple(spread(item, rank) for item in (stride, padding, dilation))
    extra = spread(output_padding, rank)
    result = convolved(call, data, weight, *rows, is_transposed, extra, groups)
    if bias is None:
        return result
    return result + build.reshape(bias, (1, bias.shape[0], *[1] * rank))


def convolved(
    call: Call,
    data: Node,
    weight: Node,
    steps: tuple[int, ...],
    margins: tuple[int, ...],
    gaps: tuple[int, ...],
    is_transposed: bool,
    extra: Sequence[Extent],
    groups: int,
) -> Node:
    """The convolution, or the transposed one with `extra` elements at the end of each axis."""
    if is_transposed:
        rank = len(steps)
        is_known = all(isinstance(size, int) for size in weight.shape[2:])
        if max(steps) > 1 and set(gaps) == {1} and is_known and data.type.kind == "float":
            return _by_phases(data, weight, steps, margins, extra, groups)
        data, weight = _transposed(data, weight, steps, margins, gaps, extra, groups)
        steps, margins = (1,) * rank, (0,) * rank
    if data.type.kind == "float":
        attrs = {"stride": steps, "padding": margins, "dilation": gaps, "groups": groups}
        return make("convolution", (data, weight), attrs)
    return _sum_of_windows(call, data, weight, (steps, margins, gaps), groups)


def _sum_of_windows(
    call: Call, data: Node, weight: Node, spacing: tuple[tuple[int, ...], ...], groups: int
) -> Node:
    """A convolution of integers, of which no kernel makes a matmul."""
    steps, margins, gaps = spacing
    count = len(steps)
    widths = (0, 0, *margins)
    attrs = {"axes": tuple(range(2, 2 + count)), "sizes": weight.shape[2:]}
    attrs |= {"strides": steps, "dilations": gaps}
    windows = make("window", (build.pad(data, widths, widths, 0),), attrs)
    outputs, inputs = weight.shape[:2]
    lead = (groups, outputs // groups, inputs)
    positions, kernel = windows.shape[2 : 2 + count], weight.shape[2:]
    across = build.reshape(windows, (data.shape[0], groups, 1, inputs, *positions, *kernel))
    own = build.reshape(weight, (1, *lead, *[1] * count, *kernel))
    axes = (3, *range(4 + count, 4 + 2 * count))
    total = build.drop(build.reduce("sum", across * own, axes), axes)
    return build.reshape(total, (data.shape[0], outputs, *positions))


def spaced(data: Node, axis: int, step: int) -> Node:
    """Elements along an axis `step` apart, zeros between them."""
    extent = data.shape[axis]
    apart = build.reshape(data, (*data.shape[: axis + 1], 1, *data.shape[axis + 1 :]))
    high = [0] * apart.type.rank
    high[axis + 1] = step - 1
    filled = build.pad(apart, [0] * apart.type.rank, high, 0)
    joined = build.reshape(filled, (*data.shape[:axis], extent * step, *data.shape[axis + 1 :]))
    return build.slice_axis(joined, axis, 0, (extent - 1) * step + 1)


def _transposed(
    data: Node,
    weight: Node,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    extra: Sequence[Extent],
    groups: int,
) -> tuple[Node, Node]:
    """Operands of the plain convolution that equals a transposed one: zeros between elements."""
    rank = len(stride)
    for axis, step in enumerate(stride, 2):
        data = spaced(data, axis, step)
    rows = zip(weight.shape[2:], padding, dilation, strict=True)
    low = [(size - 1) * gap - margin for size, margin, gap in rows]
    for axis, (before, more) in enumerate(zip(low, extra, strict=True), 2):
        data = build.bordered(data, axis, before, before + more)
    inputs, outputs = weight.shape[:2]
    kernel = weight.shape[2:]
    split = build.reshape(weight, (groups, inputs // groups, outputs, *kernel))
    swapped = build.permute(split, (0, 2, 1, *range(3, 3 + rank)))
    filters = build.reshape(swapped, (groups * outputs, inputs // groups, *kernel))
    return data, make("flip", (filters,), {"axes": tuple(range(2, 2 + rank))})


class _Phases(NamedTuple):
    """Phases of an axis that have the same number of offsets: r, …, r + count - 1 of r < stride."""

    first: int
    count: int
    offsets: int


def _phases(size: int, step: int) -> list[_Phases]:
    """The phases of a kernel of `size` offsets: r has the offsets r, r + step, … below `size`."""
    most = -(-size // step)
    full = size - step * (most - 1)
    found = [_Phases(0, full, most), _Phases(full, step - full, most - 1)]
    return [each for each in found if each.count]


def _by_phases(
    data: Node,
    weight: Node,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    extra: Sequence[Extent],
    groups: int,
) -> Node:
    """A transposed convolution as one of its phases beside each other, without zeros between
    elements (arXiv:1609.05158): y[q·s + r] = Σ_t x[q - t] · w[r + s·t] for r < s.

    Phases with fewer offsets are a convolution of their own: with zeros for those that are not
    there an infinity of x would make y NaN.
    """
    rank = len(stride)
    kernel = weight.shape[2:]
    spans = [_phases(size, step) for size, step in zip(kernel, stride, strict=True)]
    longest = [each[0].offsets for each in spans]

    def joined(axis: int, chosen: tuple[_Phases, ...]) -> Node:
        """`[samples, *positions, groups, *phases, outputs]`, of all phases from this axis on."""
        if axis == rank:
            return _of_phases(data, weight, stride, longest, chosen, groups)
        parts = [joined(axis + 1, (*chosen, span)) for span in spans[axis] if span.offsets]
        found = build.concat(parts, 2 + rank + axis) if len(parts) > 1 else parts[0]
        empty = sum(span.count for span in spans[axis] if not span.offsets)
        return build.bordered(found, 2 + rank + axis, 0, empty)

    apart = joined(0, ())
    pairs = [place for axis in range(rank) for place in (1 + axis, 2 + rank + axis)]
    beside = build.permute(apart, (0, *pairs, 1 + rank, 2 + 2 * rank))
    positions = apart.shape[1 : 1 + rank]
    full = [extent * step for extent, step in zip(positions, stride, strict=True)]
    whole = build.reshape(beside, (data.shape[0], *full, groups * weight.shape[1]))
    for axis in range(rank):
        size, margin = kernel[axis], padding[axis]
        wanted = (data.shape[2 + axis] - 1) * stride[axis] - 2 * margin + size + extra[axis]
        whole = build.bordered(whole, 1 + axis, -margin, wanted - (full[axis] - margin))
    return build.permute(whole, (0, 1 + rank, *range(1, 1 + rank)))


def _of_phases(
    data: Node,
    weight: Node,
    stride: tuple[int, ...],
    longest: Sequence[int],
    chosen: tuple[_Phases, ...],
    groups: int,
) -> Node:
    """`[samples, *positions, groups, *phases, outputs]` of the chosen phases of each axis, at the
    positions that `longest` offsets reach."""
    rank = len(stride)
    filters = _phase_filters(weight, stride, chosen, groups)
    attrs = {"stride": (1,) * rank, "dilation": (1,) * rank, "groups": groups}
    attrs["padding"] = tuple(each.offsets - 1 for each in chosen)
    found = make("convolution", (data, filters), attrs)
    for axis, offsets in enumerate(longest):
        found = build.bordered(found, 2 + axis, 0, offsets - chosen[axis].offsets)
    last = build.permute(found, (0, *range(2, 2 + rank), 1))
    counts = tuple(each.count for each in chosen)
    return build.reshape(last, (*last.shape[:-1], groups, *counts, weight.shape[1]))


def _phase_filters(
    weight: Node, stride: tuple[int, ...], chosen: tuple[_Phases, ...], groups: int
) -> Node:
    """`[inputs, outputs, *kernel]` → `[groups · phases · outputs, inputs a group, *offsets]` of the
    chosen phases, the last kernel offset first; outputs are those of a group."""
    rank = len(stride)
    inputs, each, *kernel = weight.shape
    lengths = [-(-size // step) for size, step in zip(kernel, stride, strict=True)]
    missing = [t * s - size for t, s, size in zip(lengths, stride, kernel, strict=True)]
    padded = build.pad(weight, [0] * (2 + rank), [0, 0, *missing], 0)
    split = [extent for pair in zip(lengths, stride, strict=True) for extent in pair]
    apart = build.reshape(padded, (groups, inputs // groups, each, *split))
    for axis, (first, count, offsets) in enumerate(chosen):
        apart = build.slice_axis(apart, 3 + 2 * axis, 0, offsets)
        apart = build.slice_axis(apart, 4 + 2 * axis, first, first + count)
    order = (0, *range(4, 4 + 2 * rank, 2), 2, 1, *range(3, 3 + 2 * rank, 2))
    rows = groups * math.prod(span.count for span in chosen) * each
    offsets = tuple(span.offsets for span in chosen)
    filters = build.reshape(build.permute(apart, order), (rows, inputs // groups, *offsets))
    return make("flip", (filters,), {"axes": tuple(range(2, 2 + rank))})


# -- gradients of convolutions ---------------------------------------------------------------------


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
    if weight.shape[1] == 1:
        return _of_channels_apart(gradient, data, weight, spacing)
    attrs = {
        "stride": spacing.stride,
        "padding": spacing.padding,
        "dilation": spacing.dilation,
        "groups": spacing.groups,
        "kernel": weight.shape[2:],
    }
    return make("convolution_weights", (data, gradient), attrs)


def _of_channels_apart(gradient: Node, data: Node, weight: Node, spacing: Spacing) -> Node:
    """`_of_weight` where each channel of the data is a group of its own: sums, no product."""
    count, groups = data.type.rank - 2, spacing.groups
    outer = weight.shape[0] // groups
    positions, kernel = gradient.shape[2:], weight.shape[2:]
    rows = (spacing.stride, spacing.padding, spacing.dilation)
    for axis, (step, margin, gap) in enumerate(zip(*rows, strict=True)):
        reach = (positions[axis] - 1) * step + gap * (kernel[axis] - 1) + 1
        data = build.bordered(data, axis + 2, margin, reach - margin - data.shape[axis + 2])
    attrs = {
        "axes": tuple(range(2, count + 2)),
        "sizes": kernel,
        "strides": spacing.stride,
        "dilations": spacing.dilation,
    }
    # [N, groups, 1, *positions, *kernel] by [N, groups, outer, *positions, *1]
    seen = make("window", (build.stored(data),), attrs)
    seen = build.reshape(seen, (data.shape[0], groups, 1, *positions, *kernel))
    own = build.reshape(gradient, (data.shape[0], groups, outer, *positions, *[1] * count))
    # The positions of a row follow each other in both, those of all rows do not.
    last = count + 2
    total = build.drop(build.reduce("sum", seen * own, (last,)), (last,))
    axes = (0, *range(3, last))
    total = build.drop(build.reduce("sum", total, axes), axes)
    return build.reshape(total, weight.shape)


ROWS: Rows = {
    "matmul": _matmul,
    "mm": _matmul,
    "_int_mm": _int_mm,
    "bmm": _matmul,
    "mv": _matmul,
    "dot": _matmul,
    "linear": _linear,
    "addmm": _plus(lambda _, left, right: _product(left, right)),
    "baddbmm": _plus(lambda _, left, right: _product(left, right)),
    "addbmm": _plus(_summed),
    "addmv": _plus(_matmul),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
}
