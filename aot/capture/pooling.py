"""Import rows of pooling: windows and a reduction over each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from aotc.aot.capture.importing import Call, NotSupported, Rows, spread, wide
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make

Sizes = Sequence[int] | int


def _windows(
    call: Call,
    data: Node,
    count: int,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    value: float,
) -> tuple[Node, tuple[int, ...]]:
    """Windows over the last `count` dims at the positions torch has, and the axes inside one."""
    rank = data.type.rank
    sizes = spread(kernel, count)
    strides = spread(stride, count) if stride not in ((), []) else sizes
    margins, gaps = spread(padding, count), spread(dilation, count)
    axes = tuple(range(rank - count, rank))
    low, high = [0] * rank, [0] * rank
    for axis, size, step, margin, gap in zip(axes, sizes, strides, margins, gaps, strict=True):
        reach = (call.shape[axis] - 1) * step + (size - 1) * gap + 1
        low[axis] = margin
        high[axis] = max(margin, reach - data.shape[axis] - margin)  # ceil_mode needs more
    padded = build.pad(data, low, high, value)
    attrs = {"axes": axes, "sizes": sizes, "strides": strides, "dilations": gaps}
    windows = make("window", (padded,), attrs)
    for axis in axes:
        windows = build.slice_axis(windows, axis, 0, call.shape[axis])
    return windows, tuple(range(rank, rank + count))


def _max_pool(
    count: int,
    call: Call,
    data: Node,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = 0,
    dilation: Sizes = 1,
    is_ceiling: bool = False,
) -> Node:
    if data.type.kind != "float":
        raise NotSupported("pooling of integers")
    windows, inner = _windows(call, data, count, kernel, stride, padding, dilation, -math.inf)
    return build.drop(build.reduce("max", windows, inner), inner)


def _max_pool_with_indices(count: int, call: Call, *arguments: object) -> tuple[Node, None]:
    return _max_pool(count, call, *arguments), None  # type: ignore[arg-type]


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
    has_padding = any((padding,) if isinstance(padding, int) else padding)
    if is_ceiling or (has_padding and not counts_padding):
        raise NotSupported("average pooling whose windows count differently at the border")
    windows, inner = _windows(call, wide(data), count, kernel, stride, padding, 1, 0.0)
    size = divisor or math.prod(windows.shape[axis] for axis in inner)
    total = build.drop(build.reduce("sum", windows, inner), inner)
    return build.cast(build.mul(total, 1.0 / size), call.dtype)


def _uneven_average_pool(call: Call, data: Node, size: Sequence[int]) -> Node:
    # The average is separable: one axis after another.
    result = wide(data)
    for axis, wanted in enumerate(size, data.type.rank - len(size)):
        extent = result.shape[axis]
        if wanted == 1:
            result = build.mean(result, (axis,))
            continue
        parts = []
        for cell in range(wanted):
            start, stop = cell * extent // wanted, -(-(cell + 1) * extent // wanted)
            parts.append(build.mean(build.slice_axis(result, axis, start, stop), (axis,)))
        result = build.concat(parts, axis)
    return build.cast(result, call.dtype)


def _adaptive(call: Call, data: Node, size: Sequence[int]) -> Node:
    spatial = data.shape[-len(size) :]
    if set(size) == {1}:
        axes = range(data.type.rank - len(size), data.type.rank)
        return build.cast(build.mean(wide(data), tuple(axes)), call.dtype)
    if all(extent % wanted == 0 for extent, wanted in zip(spatial, size, strict=True)):
        kernel = [extent // wanted for extent, wanted in zip(spatial, size, strict=True)]
        return _average_pool(len(size), call, data, kernel)
    return _uneven_average_pool(call, data, size)


_ADAPTIVE_OPS = (
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
)

ROWS: Rows = {
    "max_pool2d": partial(_max_pool, 2),
    "max_pool2d_with_indices": partial(_max_pool_with_indices, 2),
    "max_pool3d_with_indices": partial(_max_pool_with_indices, 3),
    "avg_pool1d": partial(_average_pool, 1),
    "avg_pool2d": partial(_average_pool, 2),
    "avg_pool3d": partial(_average_pool, 3),
    **dict.fromkeys(_ADAPTIVE_OPS, _adaptive),
}
