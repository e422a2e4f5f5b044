"""Import rows of resizing and grid sampling: lookups whose places and weights are tables.

Where torch computes a place in single precision, the tables are made with the same rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product
from operator import add
from typing import Any

import numpy

from aotc.aot.capture.imports.call import Call, NotSupported, Row, Rows, wide
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make, number
from aotc.aot.ir.size import Extent, fixed, is_static
from aotc.aot.ir.storage import Array

# -- at sizes of the call --------------------------------------------------------------------------


CUBIC_SLOPE = -0.75  # torch's coefficient of the cubic convolution kernel
Weighted = list[tuple[Node, Node]]  # (place, weight) of each element that counts


@dataclass(frozen=True, slots=True)
class Resized:
    """One axis: `extent` elements become `wanted`, by `factor` where torch was given one."""

    extent: Extent
    wanted: Extent
    has_corners: bool
    factor: float | None

    @property
    def is_fixed(self) -> bool:
        """Whether both sizes are known."""
        return isinstance(self.extent, int) and isinstance(self.wanted, int)

    @property
    def is_changed(self) -> bool:
        """Whether a result may differ from the element of its number."""
        return self.extent != self.wanted or self.factor not in (None, 1.0)

    def source_step(self, real: Any) -> Any:
        """Distance between results in elements, with corners aligned where that is wanted."""
        if self.has_corners:
            return real(self.extent - 1) / real(self.wanted - 1) if self.wanted > 1 else real(0)
        return _step(self, real)

    def count(self, dtype: str) -> Node:
        """The numbers of the results."""
        return build.cast(build.iota((self.wanted,), 0), dtype)

    def step(self, dtype: str) -> Node:
        """Distance between results in elements, without corners aligned."""
        if self.factor is not None and self.factor > 0:
            return build.scalar(1.0 / self.factor, dtype)
        return number(self.extent, dtype) / number(self.wanted, dtype)

    def source(self, dtype: str) -> Node:
        """Where each result lies, in elements."""
        count = self.count(dtype)
        if self.has_corners:
            spaces = build.maximum(number(self.wanted, dtype) - 1.0, 1.0)
            step = (number(self.extent, dtype) - 1.0) / spaces
            return count * step
        return (count + 0.5) * self.step(dtype) - 0.5

    def inside(self, place: Node) -> Node:
        """A whole place as an index of an element, the nearest one where there is none."""
        last = number(self.extent, "i64") - 1
        at = build.maximum(build.cast(place, "i64"), 0)
        return build.minimum(at, last)


def dynamic_nearest(axis: Resized, shift: float) -> Node:
    """Index of the element of each result; `shift` is added to its number."""
    count = axis.count("f32")
    place = (count + shift if shift else count) * axis.step("f32")
    return axis.inside(build.unary("floor", place))


def dynamic_linear(axis: Resized, dtype: str) -> Weighted:
    """The two elements around each result."""
    at = build.maximum(axis.source(dtype), 0.0)
    low = axis.inside(build.unary("floor", at))
    share = build.minimum(at - build.cast(low, dtype), 1.0)
    high = axis.inside(low + 1)
    return [(low, 1.0 - share), (high, share)]


def dynamic_cubic(axis: Resized, dtype: str) -> Weighted:
    """The four elements around each result."""
    at = axis.source(dtype)
    base = build.unary("floor", at)
    weights = cubic_weights(at - base)
    first = build.cast(base, "i64") - 1
    return [(axis.inside(first + step), weight) for step, weight in enumerate(weights)]


def cubic_weights(share: Any) -> list[Any]:
    """Weights of the four elements around a place `share` after the second: a node's or arrays."""
    slope = CUBIC_SLOPE

    def near(x: Any) -> Any:
        return (x * (slope + 2) - (slope + 3)) * x * x + 1.0

    def far(x: Any) -> Any:
        return ((x * slope - 5 * slope) * x + 8 * slope) * x - 4 * slope

    return [far(share + 1.0), near(share), near(1.0 - share), far(2.0 - share)]


# -- by tables -------------------------------------------------------------------------------------


# One axis as neighbours of its n results: (indices i64 [count, n], weights f64 [count, n]).
Neighbours = tuple[Array, Array]


Real = type[numpy.float32] | type[numpy.float64]  # in which places are computed


def _step(axis: Resized, real: Real) -> Any:
    """Distance between results in elements, without corners aligned."""
    if axis.factor is not None and axis.factor > 0:
        return real(1.0 / axis.factor)
    return real(axis.extent) / real(axis.wanted)


def _nearest(axis: Resized, shift: float) -> Array:
    """Index of the element of each result; `shift` is added to its number."""
    count = numpy.arange(axis.wanted, dtype=numpy.float32) + numpy.float32(shift)
    at = count * _step(axis, numpy.float32)
    return numpy.minimum(numpy.floor(at).astype(numpy.int64), axis.extent - 1)


def _source(axis: Resized, real: Real) -> Array:
    """Where each result lies, in elements."""
    count = numpy.arange(axis.wanted, dtype=real)
    if axis.has_corners:
        return numpy.asarray(count * axis.source_step(real))
    half = real(0.5)
    return numpy.asarray((count + half) * axis.source_step(real) - half)


def _linear(axis: Resized, real: Real) -> Neighbours:
    at = numpy.maximum(_source(axis, real), real(0))
    low = numpy.minimum(numpy.floor(at).astype(numpy.int64), axis.extent - 1)
    high = numpy.minimum(low + 1, axis.extent - 1)
    share = numpy.minimum(at - low, 1).astype(numpy.float64)
    return numpy.stack([low, high]), numpy.stack([1 - share, share])


def _cubic(axis: Resized, real: Real) -> Neighbours:
    at = _source(axis, real)
    base = numpy.floor(at)
    share = (at - base).astype(numpy.float64)
    first = base.astype(numpy.int64) - 1
    places = numpy.stack([numpy.clip(first + step, 0, axis.extent - 1) for step in range(4)])
    return places, numpy.stack(cubic_weights(share))


def _triangle(x: Array) -> Array:
    return numpy.maximum(1 - abs(x), 0)


def _bicubic(x: Array) -> Array:
    """Keys' kernel (1981) with slope -1/2, which torch takes where it averages."""
    x = abs(x)
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return numpy.where(x < 1, near, numpy.where(x < 2, far, 0))


def _averaged(
    kernel: Callable[[Array], Array], reach: float, axis: Resized, real: Real
) -> Neighbours:
    """All elements that a kernel covers, which is as wide as what a result stands for; it reaches
    so far where no axis shrinks. Weights add up to 1, those behind the last element are 0."""
    step = axis.source_step(real)
    scale, count = max(float(step), 1.0), axis.wanted
    centre = (numpy.arange(count, dtype=real) + real(0.5)) * step
    support = real(reach * scale)
    first = numpy.maximum((centre - support + real(0.5)).astype(numpy.int64), 0)
    end = numpy.minimum((centre + support + real(0.5)).astype(numpy.int64), axis.extent)
    places = first + numpy.arange(int((end - first).max()))[:, None]
    weights = kernel((places - centre.astype(numpy.float64) + 0.5) / scale)
    weights = numpy.where(places < end, weights, 0.0)
    return numpy.where(places < end, places, first), weights / weights.sum(0)


def _at_open_sizes(axis: Resized, dtype: str) -> Weighted:
    raise NotSupported("averaging (`antialias`) along a dynamic dim: how many elements it covers")


def _axes(
    call: Call, data: Node, scales: tuple[Any, ...], has_corners: bool = False
) -> list[tuple[int, Resized]]:
    """The spatial axes, by the factors that torch was given; absent ones come from the sizes."""
    count = data.type.rank - 2
    listed = list(scales[0]) if scales and isinstance(scales[0], list | tuple) else list(scales)
    factors = listed if len(listed) == count else [None] * count
    return [
        (axis, Resized(data.shape[axis], call.shape[axis], has_corners, factor))
        for axis, factor in enumerate(factors, 2)
    ]


def _resize_nearest(
    shift: float, call: Call, data: Node, size: Sequence[int] | None, *scales: Any
) -> Node:
    """Nearest resizing; `shift` is added to a result's number before it is scaled."""
    for axis, resized in _axes(call, data, scales):
        if resized.is_fixed:
            data = _taken(call, data, axis, _nearest(resized, shift))
        elif resized.is_changed:
            data = make("take", (data, dynamic_nearest(resized, shift)), {"axis": axis})
    return data


def _taken(call: Call, data: Node, axis: int, places: Array) -> Node:
    extent, wanted = data.shape[axis], len(places)
    if (places == numpy.arange(wanted)).all() and wanted == extent:
        return data
    repeats = wanted // extent if wanted % extent == 0 else 0
    if repeats and (places == numpy.arange(wanted) // repeats).all():
        return _repeated(data, axis, repeats)
    step = extent // wanted
    if step and (places == numpy.arange(wanted) * step).all():
        return build.slice_axis(data, axis, 0, (wanted - 1) * step + 1, step)
    return make("take", (data, call.table(places, "i64")), {"axis": axis})


def _repeated(data: Node, axis: int, count: int) -> Node:
    shape = (*data.shape[: axis + 1], 1, *data.shape[axis + 1 :])
    repeated = (*data.shape[: axis + 1], count, *data.shape[axis + 1 :])
    grown = build.expand(build.reshape(data, shape), repeated)
    extent = data.shape[axis] * count
    return build.reshape(grown, (*data.shape[:axis], extent, *data.shape[axis + 1 :]))


def _resize_weighted(
    neighbours_of: Callable[[Resized, Real], Neighbours],
    neighbours_at: Callable[[Resized, str], Weighted],
) -> Row:
    """Rows of weighted resizing: by tables, and by arithmetic where a size is dynamic."""

    def of_bytes(call: Call, data: Node, axes: Sequence[tuple[int, Resized]]) -> Node:
        for axis, resized in reversed(axes):
            if resized.extent == resized.wanted:  # torch leaves it, whatever the factor
                continue
            if not resized.is_fixed:
                raise NotSupported("weighted resizing of `u8` along a dynamic dim")
            data = resized_bytes(call, data, axis, *neighbours_of(resized, numpy.float64))
        return data

    def row(
        call: Call, data: Node, size: Sequence[int] | None, has_corners: bool, *scales: Any
    ) -> Node:
        axes = _axes(call, data, scales, has_corners)
        if data.dtype == "u8":
            return of_bytes(call, data, axes)
        if data.type.kind != "float":
            raise NotSupported(f"weighted resizing of `{data.dtype}`")
        real = numpy.float64 if data.dtype == "f64" else numpy.float32  # as torch's CPU kernels
        result = wide(data)
        is_averaged = neighbours_at is _at_open_sizes
        if is_averaged and is_static(call.shape):  # first along the axis of which most is left out
            axes = sorted(axes, key=lambda each: fixed(each[1].wanted) / fixed(each[1].extent))
        for axis, resized in axes:
            # Along an axis that stays, torch's cubic kernel weighs neighbours by 0, and its linear
            # one has the element itself in both places: x · 1 + x · 0.
            if not resized.is_changed and neighbours_of is not _cubic:
                result = result + result * 0.0
                continue
            if resized.is_fixed:
                neighbours = _tables(call, *neighbours_of(resized, real), result.dtype)
            else:
                neighbours = neighbours_at(resized, result.dtype)
            result = _weighted(result, axis, neighbours)
        return build.cast(result, call.dtype)

    return row


def _tables(call: Call, places: Array, weights: Array, dtype: str) -> Weighted:
    pairs = zip(places, weights, strict=True)
    return [(call.table(at, "i64"), call.table(weight, dtype)) for at, weight in pairs]


def _weighted(data: Node, axis: int, neighbours: Weighted) -> Node:
    """Sum of lookups along an axis, each with its weights."""
    parts = []
    for place, weight in neighbours:
        column = build.column(data.type.rank, axis, weight.shape[0])
        found = make("take", (data, place), {"axis": axis})
        parts.append(found * build.reshape(weight, column))
    return reduce(add, parts)


INTERPOLATION = ("bilinear", "nearest", "bicubic")
PADDING = ("zeros", "border", "reflection")


def _unnormalized(place: Node, extent: int, has_corners: bool) -> Node:
    """-1 … 1 as elements of an axis."""
    if has_corners:
        return (place + 1.0) * 0.5 * float(extent - 1)
    return ((place + 1.0) * float(extent) - 1.0) * 0.5


def _reflected(place: Node, extent: int, has_corners: bool) -> Node:
    """Thrown back at both ends until it is inside."""
    low, span = (0.0, extent - 1.0) if has_corners else (-0.5, float(extent))
    if span <= 0:
        return place * 0.0
    away = abs(place - low)
    turns = build.unary("floor", away / span)
    rest = away - turns * span
    half = turns * 0.5
    is_even = build.equal(build.unary("floor", half), half)
    forward, backward = rest + low, span + low - rest
    return build.where(is_even, forward, backward)


def _clipped(place: Node, extent: int) -> Node:
    # Written so that NaN becomes 0, as in torch.
    high = build.where(place > 0.0, place, 0.0)
    return build.minimum(high, float(extent - 1))


def _inside(place: Node, extent: int, padding: str, has_corners: bool) -> Node:
    if padding == "zeros":
        return place
    if padding == "reflection":
        place = _reflected(place, extent, has_corners)
    return _clipped(place, extent)


def _sampled(data: Node, column: Node, row: Node) -> Node:
    """`data[n, c, row, column]`, 0 outside; places are f32 `[N, h, w]` and whole."""
    samples, channels, height, width = data.shape
    area = row.shape[1:]
    ends = ((row, height), (column, width))
    is_in, is_in_row = ((place >= 0.0) & (place <= float(extent - 1)) for place, extent in ends)
    dtype = "i32" if height * width < 1 << 31 else "i64"
    line, at = (build.cast(_clipped(place, extent), dtype) for place, extent in ends)
    index = build.reshape(line * width + at, (samples, 1, math.prod(area)))
    index = build.expand(index, (samples, channels, math.prod(area)))
    pixels = build.reshape(data, (samples, channels, height * width))
    found = build.reshape(make("gather", (pixels, index), {"axis": 2}), (samples, channels, *area))
    mask = build.reshape(is_in & is_in_row, (samples, 1, *area))
    return build.where(mask, found, 0.0)


def _grid_sampler(
    call: Call, data: Node, grid: Node, interpolation: int, padding: int, has_corners: bool
) -> Node:
    extents = (data.shape[3], data.shape[2])
    area = grid.shape[:-1]
    raw = [
        _unnormalized(
            build.reshape(build.slice_axis(wide(grid), 3, at, at + 1), area), extent, has_corners
        )
        for at, extent in enumerate(extents)
    ]
    border = PADDING[padding]

    def fitted(places: Sequence[Node]) -> list[Node]:
        pairs = zip(places, extents, strict=True)
        return [_inside(place, extent, border, has_corners) for place, extent in pairs]

    method = INTERPOLATION[interpolation]
    if method == "nearest":
        column, row = (build.unary("round", place) for place in fitted(raw))
        return build.cast(_sampled(wide(data), column, row), call.dtype)
    if method == "bilinear":
        neighbours = [_linear_neighbours(place) for place in fitted(raw)]
        found = _combined(wide(data), neighbours, lambda places: places)
    else:
        neighbours = [_cubic_neighbours(place) for place in raw]
        found = _combined(wide(data), neighbours, fitted)
    return build.cast(found, call.dtype)


def _linear_neighbours(place: Node) -> Weighted:
    low = build.unary("floor", place)
    share = place - low
    return [(low, 1.0 - share), (low + 1.0, share)]


def _cubic_neighbours(place: Node) -> Weighted:
    base = build.unary("floor", place)
    weights = cubic_weights(place - base)
    return [(base + float(step - 1), weight) for step, weight in enumerate(weights)]


def _combined(
    data: Node, neighbours: Sequence[Weighted], fit: Callable[[Sequence[Node]], Sequence[Node]]
) -> Node:
    parts = []
    columns, rows = neighbours
    for (row, row_weight), (column, column_weight) in product(rows, columns):
        weight = row_weight * column_weight
        weight = build.reshape(weight, (weight.shape[0], 1, *weight.shape[1:]))
        parts.append(_sampled(data, *fit((column, row))) * weight)
    return reduce(add, parts)


MOST_FRACTION_BITS = 22
MOST_WEIGHT = 1 << 15


def resized_bytes(call: Call, data: Node, axis: int, places: Array, weights: Array) -> Node:
    """u8, one axis resized: `places` i64 and `weights` f64, both [count, n]."""
    whole, bits = _whole_weights(_merged(places, weights))
    total = build.scalar(1 << (bits - 1), "i32")
    for at, weight in zip(places, whole, strict=True):
        column = build.column(data.type.rank, axis, len(weight))
        found = make("take", (data, call.table(at, "i64")), {"axis": axis})
        factor = build.reshape(call.table(weight, "i32"), column)
        total = build.cast(found, "i32") * factor + total
    shifted = build.pointwise("shift_right", total, bits)
    inside = build.minimum(build.maximum(shifted, 0), 255)
    return build.cast(inside, "u8")


def _merged(places: Array, weights: Array) -> Array:
    """Weights with those of one place summed at the first of them: beyond an edge is the edge."""
    merged = numpy.array(weights)
    for later in range(1, len(places)):
        for first in range(later):
            is_same = places[first] == places[later]
            merged[first] += numpy.where(is_same, merged[later], 0)
            merged[later] = numpy.where(is_same, 0, merged[later])
    return merged


def _whole_weights(weights: Array) -> tuple[Array, int]:
    """Weights in units of 2^-bits, rounded half away from 0, and bits."""
    largest, bits = float(weights.max()), 0
    while bits < MOST_FRACTION_BITS and int(0.5 + largest * (1 << (bits + 1))) < MOST_WEIGHT:
        bits += 1
    scaled = weights * (1 << bits)
    return numpy.trunc(scaled + numpy.copysign(0.5, scaled)).astype(numpy.int32), bits


ROWS: Rows = {
    "grid_sampler_2d": _grid_sampler,
    **{f"upsample_nearest{rank}d": partial(_resize_nearest, 0.0) for rank in (1, 2, 3)},
    **{f"_upsample_nearest_exact{rank}d": partial(_resize_nearest, 0.5) for rank in (1, 2, 3)},
    "upsample_linear1d": _resize_weighted(_linear, dynamic_linear),
    "upsample_bilinear2d": _resize_weighted(_linear, dynamic_linear),
    "upsample_trilinear3d": _resize_weighted(_linear, dynamic_linear),
    "upsample_bicubic2d": _resize_weighted(_cubic, dynamic_cubic),
    "_upsample_bilinear2d_aa": _resize_weighted(partial(_averaged, _triangle, 1.0), _at_open_sizes),
    "_upsample_bicubic2d_aa": _resize_weighted(partial(_averaged, _bicubic, 2.0), _at_open_sizes),
}
