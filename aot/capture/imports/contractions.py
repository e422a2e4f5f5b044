"""Import rows of matmul, linear and convolution."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.aot.capture.imports.call import Call, Operand, Rows, spread, wide
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
    rank = max(left.type.rank, right.type.rank)
    rows, columns = build.align(left, rank), build.align(right, rank)
    pairs = build.reshape(rows, (*rows.shape[:-1], 1, rows.shape[-1])) * build.reshape(
        build.transpose(columns), (*columns.shape[:-2], 1, *columns.shape[:-3:-1])
    )
    return build.drop(build.reduce("sum", pairs, (rank,)), (rank,))


def _linear(call: Call, data: Node, weight: Node, bias: Node | None = None) -> Node:
    if weight.type.rank == 1:
        return _matmul(call, data, weight)
    product = build.reshape(_product(build.align(data, 2), build.transpose(weight)), call.shape)
    return product if bias is None else call.pointwise("add", product, bias)


def _addmm(
    call: Call, start: Node, left: Node, right: Node, beta: Operand = 1, alpha: Operand = 1
) -> Node:
    return _plus(call, start, _product(left, right), beta, alpha)


def _plus(call: Call, start: Node, product: Node, beta: Operand, alpha: Operand) -> Node:
    """beta · start + alpha · product."""
    if alpha != 1:
        product = call.pointwise("mul", product, alpha)
    if beta == 0:
        return product
    scaled = start if beta == 1 else start * beta
    return call.pointwise("add", product, scaled)


def _addbmm(
    call: Call, start: Node, left: Node, right: Node, beta: Operand = 1, alpha: Operand = 1
) -> Node:
    products = _product(left, right)
    whole = build.drop(build.reduce("sum", wide(products), (0,)), (0,))
    return _plus(call, start, build.cast(whole, call.dtype), beta, alpha)


def _addmv(
    call: Call, start: Node, left: Node, right: Node, beta: Operand = 1, alpha: Operand = 1
) -> Node:
    return _plus(call, start, _matmul(call, left, right), beta, alpha)


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
        data, weight = _transposed(data, weight, steps, margins, gaps, extra, groups)
        steps, margins = (1,) * rank, (0,) * rank
    if data.type.kind == "float":
        attrs = {"stride": steps, "padding": margins, "dilation": gaps, "groups": groups}
        return make("convolution", (data, weight), attrs)
    return _sum_of_taps(call, data, weight, (steps, margins, gaps), groups)


def _sum_of_taps(
    call: Call,
    data: Node,
    weight: Node,
    spacing: tuple[tuple[int, ...], ...],
    groups: int,
) -> Node:
    """A convolution of integers, of which no kernel makes a matmul."""
    steps, margins, gaps = spacing
    count = len(steps)
    widths = (0, 0, *margins)
    attrs = {"axes": tuple(range(2, 2 + count)), "sizes": weight.shape[2:]}
    attrs |= {"strides": steps, "dilations": gaps}
    taps = make("window", (build.pad(data, widths, widths, 0),), attrs)
    outputs, inputs = weight.shape[:2]
    lead = (groups, outputs // groups, inputs)
    positions, kernel = taps.shape[2 : 2 + count], weight.shape[2:]
    across = build.reshape(taps, (data.shape[0], groups, 1, inputs, *positions, *kernel))
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
        data = bordered(data, axis, before, before + more)
    inputs, outputs = weight.shape[:2]
    kernel = weight.shape[2:]
    split = build.reshape(weight, (groups, inputs // groups, outputs, *kernel))
    swapped = build.permute(split, (0, 2, 1, *range(3, 3 + rank)))
    filters = build.reshape(swapped, (groups * outputs, inputs // groups, *kernel))
    return data, make("flip", (filters,), {"axes": tuple(range(2, 2 + rank))})


def bordered(data: Node, axis: int, low: Extent, high: Extent) -> Node:
    """The axis with zeros before and behind, or with so many elements fewer where negative."""
    extent = data.shape[axis]
    data = build.slice_axis(data, axis, max(0, -low), extent - max(0, -high))
    zeros = [0] * data.type.rank
    before, behind = ([*zeros[:axis], max(0, width), *zeros[axis + 1 :]] for width in (low, high))
    return build.pad(data, before, behind, 0)


ROWS: Rows = {
    "matmul": _matmul,
    "mm": _matmul,
    "bmm": _matmul,
    "mv": _matmul,
    "dot": _matmul,
    "linear": _linear,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "addbmm": _addbmm,
    "addmv": _addmv,
    "convolution": _convolution,
}
