"""Import rows of pooling: windows and a reduction over each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product
from operator import add
from typing import Any

import numpy

from aotc.aot.capture.imports.call import NO_KERNEL, Call, NotSupported, Rows, spread, wide
from aotc.aot.capture.imports.contractions import spaced
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make, number
from aotc.aot.ir.reductions import lowest
from aotc.aot.ir.size import Extent, is_static, largest, proves_at_most
from aotc.aot.ir.storage import Array

Sizes = Sequence[int] | int
FEW_CELLS = 16  # elements of a window up to which its maximum's place is found without a loop
# Cells of an axis of fixed size up to which each is a kernel of its own: of means, and of maxima,
# whose places are found too.
MOST_MEANS, MOST_MAXIMA = 2, 16
AT_ONCE = 16  # elements of a window up to which it is reduced along all axes at once
WRITTEN_OUT = 64  # elements of a window up to which kernels write its maximum out, NaN and all


@dataclass(frozen=True, slots=True)
class _Along:
    """Windows along one axis of a tensor."""

    axis: int
    count: Extent
    size: int
    step: int
    margin: int  # before the first element
    gap: int  # from one element of a window to the next

    @property
    def reach(self) -> Extent:
        """Elements from the first one of the first window to the last one of the last."""
        return (self.count - 1) * self.step + (self.size - 1) * self.gap + 1

    @property
    def is_tiling(self) -> bool:
        """Whether each element is in one window at most, and none lies between two."""
        return self.size == self.step and self.gap == 1


@dataclass(frozen=True, slots=True)
class _Pool:
    """Windows along some axes of a tensor; `value` is that of margins."""

    along: tuple[_Along, ...]
    value: float

    @property
    def elements(self) -> int:
        """Of a window."""
        return math.prod(each.size for each in self.along)

    def windows(self, data: Node) -> tuple[Node, tuple[int, ...]]:
        """The windows at the positions torch has, and the axes inside one."""
        rank = data.type.rank
        attrs = {
            "axes": tuple(each.axis for each in self.along),
            "sizes": tuple(each.size for each in self.along),
            "strides": tuple(each.step for each in self.along),
            "dilations": tuple(each.gap for each in self.along),
        }
        windows = make("window", (self._padded(data),), attrs)
        for each in self.along:
            windows = build.slice_axis(windows, each.axis, 0, each.count)
        return windows, tuple(range(rank, rank + len(self.along)))

    def _padded(self, data: Node) -> Node:
        low, high = [0] * data.type.rank, [0] * data.type.rank
        for each in self.along:
            behind = each.reach - data.shape[each.axis] - each.margin
            low[each.axis] = each.margin
            high[each.axis] = largest(each.margin, behind)  # ceil_mode needs more
        return build.pad(data, low, high, self.value)

    def reduced(self, kind: str, data: Node) -> Node:
        """The sum or the maximum of each window. That of large ones is taken along one axis after
        the other: k₁ + k₂ elements a window for k₁ · k₂, and memory is read in its order."""
        if self.elements <= AT_ONCE or sum(each.size > 1 for each in self.along) < 2:
            return self._reduced_at_once(kind, *self.windows(data))
        for each in self.along:
            if each.size > 1 or each.step > 1 or each.margin:
                alone = _Pool((each,), self.value)
                parts = alone.blocks(data) if each.is_tiling else alone.windows(data)
                data = alone._reduced_at_once(kind, *parts)
        return data

    def blocks(self, data: Node) -> tuple[Node, tuple[int, ...]]:
        """Windows along the only axis that do not overlap, and the axis inside one."""
        (each,) = self.along
        axis = each.axis
        whole = build.slice_axis(self._padded(data), axis, 0, each.count * each.size)
        shape = (*whole.shape[:axis], each.count, each.size, *whole.shape[axis + 1 :])
        return build.reshape(whole, shape), (axis + 1,)

    def _reduced_at_once(self, kind: str, windows: Node, inner: tuple[int, ...]) -> Node:
        is_plain = kind == "sum" or self.elements <= WRITTEN_OUT
        reduction = build.reduce if is_plain else build.extreme
        return build.drop(reduction(kind, windows, inner), inner)


def _pool_of(
    call: Call,
    data: Node,
    count: int,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    value: float,
) -> _Pool:
    """Windows over the last `count` axes, as torch's arguments say."""
    sizes = spread(kernel, count)
    columns = sizes, _strides(stride, sizes), spread(padding, count), spread(dilation, count)
    axes = range(data.type.rank - count, data.type.rank)
    rows = zip(axes, *columns, strict=True)
    return _Pool(tuple(_Along(axis, call.shape[axis], *row) for axis, *row in rows), value)


def _strides(stride: Sizes, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """One a dim; none given are the windows' sizes."""
    return spread(stride, len(sizes)) if stride not in ((), []) else sizes


def _max_pool(count: int, call: Call, data: Node, *window: Any) -> Node:
    return _max_pool_with_indices(count, call, data, *window)[0]


def _max_pool_with_indices(
    count: int,
    call: Call,
    data: Node,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = 0,
    dilation: Sizes = 1,
    is_ceiling: bool = False,
) -> tuple[Node, Node]:
    pool = _pool_of(call, data, count, kernel, stride, padding, dilation, lowest(data.dtype))
    windows, inner = pool.windows(data)
    first = build.drop(_index_of_peak(windows, inner), inner)
    parts, area = [], 1
    for dim in reversed(range(count)):
        along = pool.along[dim]
        within = first if dim == 0 else first % along.size
        first = first // along.size
        counter = build.counter(data.type.rank, along.axis, along.count)
        start = counter * along.step - along.margin
        place = start + within * along.gap
        if along.margin:  # of a window whose elements are all the lowest, its first one inside
            inside = (start + -(-along.margin // along.gap) * along.gap) % along.gap
            place = build.where(place < 0, inside, place)
        parts.append(place * area)
        area *= data.shape[along.axis]
    return pool.reduced("max", data), reduce(add, parts)


def _average_pool(
    count: int,
    call: Call,
    data: Node,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = 0,
    is_ceiling: bool = False,
    counts_padding: bool = True,
    divisor: int | None = None,
) -> Node:
    sizes = spread(kernel, count)
    strides = _strides(stride, sizes)
    reached = _reached(call, data, sizes, spread(padding, count))
    pool = _pool_of(call, data, count, reached[0], strides, reached[1], 1, 0.0)
    total = pool.reduced("sum", wide(data))
    if divisor is not None:
        return build.cast(_shared(total, divisor), call.dtype)
    cells: Array | Node = numpy.ones([1] * count, numpy.int64)
    for axis, margin in enumerate(spread(padding, count)):
        own = _counts(
            count,
            axis,
            call.shape[axis - count],
            data.shape[axis - count],
            sizes[axis],
            strides[axis],
            margin,
            counts_padding,
            is_ceiling,
        )
        if isinstance(own, Node) != isinstance(cells, Node):
            cells, own = (_as_node(call, each) for each in (cells, own))
        cells = cells * own
    if isinstance(cells, numpy.ndarray) and (cells == cells.flat[0]).all():
        return build.cast(_shared(total, int(cells.flat[0])), call.dtype)
    table = build.align(build.cast(_as_node(call, cells), total.dtype), total.type.rank)
    return build.cast(_shared(total, table), call.dtype)


def _as_node(call: Call, counts: Array | Node) -> Node:
    return counts if isinstance(counts, Node) else call.table(counts, "i64")


def _reached(
    call: Call, data: Node, sizes: tuple[int, ...], margins: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and margins without the padding of an axis that one window covers whole.

    Models ask for an average over everything by a window far larger than the plane.
    """
    pairs = []
    for axis, (size, margin) in enumerate(zip(sizes, margins, strict=True), -len(sizes)):
        extent = data.shape[axis]
        covers = call.shape[axis] == 1 and proves_at_most(extent, size - margin)
        pairs.append((extent, 0) if covers else (size, margin))
    clipped_sizes, clipped_margins = zip(*pairs, strict=True)
    return clipped_sizes, clipped_margins


def _shared(total: Node, count: Node | int) -> Node:
    """Total by count; integers are rounded towards zero."""
    if total.type.kind == "float":
        by = 1.0 / count if isinstance(count, int) else build.unary("reciprocal", count)
        return total * by
    # The counts are sizes; a divisor that the model names may be negative.
    is_negative = isinstance(count, int) and count < 0
    size = -count if is_negative else count
    quotient = abs(total) // size
    is_below = build.pointwise("gt" if is_negative else "lt", total, 0)
    return build.where(is_below, -quotient, quotient)


def _counts(
    rank: int,
    axis: int,
    positions: Extent,
    extent: Extent,
    size: int,
    stride: int,
    margin: int,
    counts_padding: bool,
    is_ceiling: bool,
) -> Array | Node:
    """Elements that each window along one of `rank` axes is averaged over, 1 long along the others.

    Window p has the elements p·stride - margin and on: `size` of them, up to the end of the
    padding or, where that does not count, of those that there are.
    """
    if not is_ceiling and (counts_padding or not margin):
        return numpy.full([1] * rank, size)
    if is_static((positions, extent)):
        places = numpy.arange(positions).reshape(build.column(rank, axis, positions))
        starts = places * stride - margin
        stops = numpy.minimum(starts + size, extent + margin)
        if not counts_padding:
            starts, stops = numpy.maximum(starts, 0), numpy.minimum(stops, extent)
        return stops - starts
    first = build.counter(rank, axis, positions) * stride - margin
    last = build.minimum(first + size, extent + margin)
    if not counts_padding:
        first, last = build.maximum(first, 0), build.minimum(last, extent)
    return last - first


def _uneven_average_pool(call: Call, data: Node, size: Sequence[int]) -> Node:
    _check_float(data)
    # The average is separable: one axis after another.
    result = wide(data)
    for axis, wanted in enumerate(size, data.type.rank - len(size)):
        if _are_many(result.shape[axis], wanted, MOST_MEANS):
            cover = _covered(call, result, wanted, axis, 0.0)
            total = build.drop(build.reduce("sum", cover.elements, (axis + 1,)), (axis + 1,))
            result = _shared(total, cover.sizes)
            continue
        parts = [build.mean(part, (axis,)) for part, _ in _cells(result, wanted, axis)]
        result = build.concat(parts, axis)
    return build.cast(result, call.dtype)


def _check_float(data: Node) -> None:
    """Raise `NotSupported` for element types that torch has no kernel for, as eager does."""
    if data.type.kind != "float":
        raise NotSupported(f"{NO_KERNEL} for {data.dtype}")


def _adaptive_max(call: Call, data: Node, size: Sequence[int]) -> tuple[Node, Node]:
    """Maxima and their places in the plane, one axis after another, the last one first.

    So that of equal elements the first one in the plane's order is found, as in torch.
    """
    _check_float(data)
    result, place, area = data, None, 1
    for axis in reversed(range(data.type.rank - len(size), data.type.rank)):
        within, result = _peaks(call, result, call.shape[axis], axis)
        at = within * area
        if place is not None:
            at = at + make("gather", (place, within), {"axis": axis})
        place = at
        area *= data.shape[axis]
    return result, place


def _peaks(call: Call, data: Node, wanted: int, axis: int) -> tuple[Node, Node]:
    """The place along an axis of each cell's maximum, and the maximum."""
    cover, inner = _covered(call, data, wanted, axis, -math.inf), (axis + 1,)
    # Kernels write out the maximum of few elements that a table names, NaN and all.
    is_short = proves_at_most(cover.elements.shape[axis + 1], FEW_CELLS)
    is_written_out = is_short and isinstance(data.shape[axis], int) and data.shape[axis] % wanted
    reduction = build.reduce if is_written_out else build.extreme
    peak = build.drop(reduction("max", cover.elements, inner), inner)
    if _are_many(data.shape[axis], wanted, MOST_MAXIMA):
        return build.drop(_index_of_peak(cover.elements, inner), inner) + cover.firsts, peak
    cells = _cells(data, wanted, axis)
    places = [_index_of_peak(part, (axis,)) + start for part, start in cells]
    return build.concat(places, axis), peak


def _are_many(extent: Extent, wanted: int, most: int) -> bool:
    """Whether the cells of an axis are read as one: written out, each would be a kernel."""
    return wanted > (most if isinstance(extent, int) else 1)


@dataclass(frozen=True, slots=True)
class _Cover:
    """An axis as the cells that cover it, one behind the other: cell c of w has the elements
    ⌊c·n/w⌋ to ⌈(c + 1)·n/w⌉ of n. All are as wide as the widest; narrower ones end with fillers."""

    elements: Node  # in an axis of their own behind that of the cells
    firsts: Node  # of each cell, one along all axes but the cells'
    sizes: Node | int  # of each cell, as `firsts`; a number where all have the same


def _covered(call: Call, data: Node, wanted: int, axis: int, filler: float) -> _Cover:
    """The cells of one axis."""
    extent = data.shape[axis]
    behind = (1,) * (data.type.rank - axis - 1)
    if not isinstance(extent, int):
        return _open_cover(data, wanted, axis, filler)
    if extent % wanted == 0:
        shape = (*data.shape[:axis], wanted, extent // wanted, *data.shape[axis + 1 :])
        firsts = build.counter(data.type.rank, axis, wanted) * (extent // wanted)
        return _Cover(build.reshape(data, shape), firsts, extent // wanted)
    cells = numpy.arange(wanted)
    firsts, ends = cells * extent // wanted, -(-(cells + 1) * extent // wanted)
    counts = ends - firsts
    places = firsts[:, None] + numpy.arange(counts.max())
    table = call.table(numpy.minimum(places, extent - 1), "i64")
    found = make("take", (data, table), {"axis": axis})
    column = call.table(firsts.reshape(wanted, *behind), "i64")
    firsts_of_cells = build.align(column, data.type.rank)
    if (counts == counts[0]).all():
        return _Cover(found, firsts_of_cells, int(counts[0]))
    is_own = call.table((places < ends[:, None]).reshape(*places.shape, *behind), "bool")
    filled = build.where(build.align(is_own, data.type.rank + 1), found, filler)
    sizes = build.cast(call.table(counts.reshape(wanted, *behind), "i64"), data.dtype)
    return _Cover(filled, firsts_of_cells, build.align(sizes, data.type.rank))


def _open_cover(data: Node, wanted: int, axis: int, filler: float) -> _Cover:
    """The cells of an axis whose size a call gives."""
    extent, rank = number(data.shape[axis], "i64"), data.type.rank
    cell = build.counter(1, 0, wanted)
    starts = cell * extent // wanted
    ends = ((cell + 1) * extent + (wanted - 1)) // wanted
    most = data.shape[axis] // wanted + 2
    places = build.reshape(starts, (wanted, 1)) + build.counter(2, 1, most)
    found = make("take", (data, build.minimum(places, extent - 1)), {"axis": axis})
    behind = (1,) * (rank - axis - 1)
    is_own = build.reshape(places < build.reshape(ends, (wanted, 1)), (wanted, most, *behind))
    firsts = build.reshape(starts, (wanted, *behind))
    sizes = build.cast(build.reshape(ends - starts, (wanted, *behind)), data.dtype)
    filled = build.where(build.align(is_own, rank + 1), found, filler)
    return _Cover(filled, build.align(firsts, rank), build.align(sizes, rank))


def _cells(data: Node, wanted: int, axis: int) -> list[tuple[Node, int]]:
    """The elements along an axis that each cell of a result of `wanted` covers, and the first."""
    extent = data.shape[axis]
    bounds = [
        (cell * extent // wanted, -(-(cell + 1) * extent // wanted)) for cell in range(wanted)
    ]
    return [(build.slice_axis(data, axis, start, stop), start) for start, stop in bounds]


def _index_of_peak(data: Node, axes: tuple[int, ...]) -> Node:
    """i64 place of the first maximum over `axes`; that of the last NaN where there is one."""
    extents = [data.shape[axis] for axis in axes]
    if all(isinstance(extent, int) for extent in extents) and 1 < math.prod(extents) <= FEW_CELLS:
        return _index_among_few(data, axes)
    found = build.reduce("argmax", data, axes)
    if data.type.kind != "float":
        return found
    is_nan = build.unary("isnan", data)
    cells = math.prod(data.shape[axis] for axis in axes)
    counted = build.reshape(
        build.iota((cells,), 0),
        [data.shape[axis] if axis in axes else 1 for axis in range(data.type.rank)],
    )
    last = build.reduce("max", build.where(is_nan, counted, -1), axes)
    return build.where(last >= 0, last, found)


def _index_among_few(data: Node, axes: tuple[int, ...]) -> Node:
    """The same by one comparison after another, as torch does it: no loop over the cells."""
    cells = []
    for places in product(*(range(data.shape[axis]) for axis in axes)):
        cell = data
        for axis, at in zip(axes, places, strict=True):
            cell = build.slice_axis(cell, axis, at, at + 1)
        cells.append(cell)
    highest, place = cells[0], None
    for order, cell in enumerate(cells[1:], 1):
        is_higher = cell > highest
        if data.type.kind == "float":
            is_higher = is_higher | build.unary("isnan", cell)
        highest = build.where(is_higher, cell, highest)
        if place is None:
            place = build.cast(is_higher, "i32")
        else:
            place = build.where(is_higher, order, place)
    return build.cast(place, "i64")


def _adaptive(call: Call, data: Node, size: Sequence[int]) -> Node:
    _check_float(data)
    spatial = data.shape[-len(size) :]
    if set(size) == {1}:
        axes = range(data.type.rank - len(size), data.type.rank)
        return build.cast(build.mean(wide(data), tuple(axes)), call.dtype)
    if all(extent % wanted == 0 for extent, wanted in zip(spatial, size, strict=True)):
        kernel = [extent // wanted for extent, wanted in zip(spatial, size, strict=True)]
        return _average_pool(len(size), call, data, kernel)
    return _uneven_average_pool(call, data, size)


def _unfold(
    call: Call, data: Node, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> Node:
    """Patches `[N, C · kernel, positions]` of `[N, C, height, width]`; N may be missing."""
    sizes, gaps, margins, strides = (
        spread(item, 2) for item in (kernel, dilation, padding, stride)
    )
    rank = data.type.rank
    rows = zip(range(rank - 2, rank), sizes, strides, margins, gaps, strict=True)
    along = []
    for axis, size, step, margin, gap in rows:
        count = (data.shape[axis] + 2 * margin - gap * (size - 1) - 1) // step + 1
        along.append(_Along(axis, count, size, step, margin, gap))
    windows, inner = _Pool(tuple(along), 0).windows(data)
    order = (*range(rank - 2), *inner, rank - 2, rank - 1)
    return build.reshape(build.permute(windows, order), call.shape)


def _fold(
    call: Call,
    data: Node,
    size: Sizes,
    kernel: Sizes,
    dilation: Sizes,
    padding: Sizes,
    stride: Sizes,
) -> Node:
    """Sums of overlapping patches `[N, C · kernel, positions]`: for each kernel offset, laid out
    and added."""
    extents, sizes, gaps, margins, strides = (
        spread(item, 2) for item in (size, kernel, dilation, padding, stride)
    )
    rows = zip(extents, sizes, gaps, margins, strides, strict=True)
    positions = [
        (extent + 2 * margin - gap * (size - 1) - 1) // step + 1
        for extent, size, gap, margin, step in rows
    ]
    channels = call.shape[-3]
    samples = data.type.numel // (channels * math.prod(sizes) * math.prod(positions))
    patches = build.reshape(wide(data), (samples, channels, *sizes, *positions))
    layers = []
    for offset in product(*map(range, sizes)):
        part = patches
        for axis, place in enumerate(offset, 2):
            part = build.slice_axis(part, axis, place, place + 1)
        part = build.drop(part, (2, 3))
        low, high = [0, 0], [0, 0]
        for axis, place in enumerate(offset):
            part = spaced(part, axis + 2, strides[axis])
            low.append(place * gaps[axis])
            whole = extents[axis] + 2 * margins[axis]
            high.append(whole - low[-1] - part.shape[axis + 2])
        layers.append(build.pad(part, low, high, 0))
    total = reduce(add, layers)
    for axis, (extent, margin) in enumerate(zip(extents, margins, strict=True), 2):
        total = build.slice_axis(total, axis, margin, margin + extent)
    return build.cast(build.reshape(total, call.shape), call.dtype)


_ADAPTIVE_OPS = (
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
)

ROWS: Rows = {
    "col2im": _fold,
    "im2col": _unfold,
    "max_pool2d": partial(_max_pool, 2),
    "max_pool2d_with_indices": partial(_max_pool_with_indices, 2),
    "max_pool3d_with_indices": partial(_max_pool_with_indices, 3),
    "avg_pool1d": partial(_average_pool, 1),
    "avg_pool2d": partial(_average_pool, 2),
    "avg_pool3d": partial(_average_pool, 3),
    **dict.fromkeys(_ADAPTIVE_OPS, _adaptive),
    "adaptive_max_pool2d": _adaptive_max,
    "adaptive_max_pool3d": _adaptive_max,
}
