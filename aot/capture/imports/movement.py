"""Import rows of ops that move or make elements: views, slices, concatenation, lookups, filling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotc.aot.capture.imports.call import Call, NotSupported, Operand, Row, Rows, wrapped_number
from aotc.aot.capture.state_values import is_state_value, mark_state
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make, number
from aotc.aot.ir.size import (
    Extent,
    Size,
    bounds,
    is_static,
    largest,
    proves_at_most,
    smallest,
)
from aotc.aot.ir.types import DTYPES


def _reshape(call: Call, data: Node, *rest: Any) -> Node:
    if data.dtype != call.dtype:  # `view` of a dtype
        raise NotSupported(f"the bits of {data.dtype} read as {call.dtype}: convert by value")
    return build.reshape(data, call.shape)


def _view(call: Call, data: Node, *rest: Any) -> Node:
    """Under another shape, or its elements' bits as another type."""
    if data.dtype == call.dtype:
        return build.reshape(data, call.shape)
    given, wanted = (DTYPES[each].itemsize_bytes for each in (data.dtype, call.dtype))
    if given > wanted:
        data = _parted(data, given // wanted)
    elif given < wanted:
        data = _joined(data, wanted // given)
    return make("bitcast", (build.reshape(data, call.shape),), {"dtype": call.dtype})


def _parted(data: Node, count: int) -> Node:
    """Each element's bits as `count` integers, its lowest first, along one more dim."""
    bytes_each = DTYPES[data.dtype].itemsize_bytes
    whole = make("bitcast", (data,), {"dtype": f"i{8 * bytes_each}"})
    bits, rank = 8 * bytes_each // count, data.type.rank
    parts = [build.pointwise("shift_right", whole, bits * place) for place in range(count)]
    narrow = (build.cast(part, f"i{bits}") for part in parts)
    return build.concat([build.reshape(part, (*data.shape, 1)) for part in narrow], rank)


def _joined(data: Node, count: int) -> Node:
    """Each `count` elements along the last dim as one integer, the first one's bits the lowest."""
    bits, rank = 8 * DTYPES[data.dtype].itemsize_bytes, data.type.rank
    kind, *lead, last = f"i{bits * count}", *data.shape
    parts = make("bitcast", (data,), {"dtype": f"i{bits}"})
    rows = build.reshape(parts, (*lead, last // count, count))
    whole = None
    for place in range(count):
        part = build.cast(build.slice_axis(rows, rank, place, place + 1), kind)
        if place < count - 1:  # above the last there are no bits
            part = build.pointwise("bitwise_and", part, 2**bits - 1)
        part = build.pointwise("shift_left", part, bits * place)
        whole = part if whole is None else build.pointwise("bitwise_or", whole, part)
    assert whole is not None
    return whole


def _transpose(call: Call, data: Node, first: int = 0, second: int = 1) -> Node:
    dims = list(range(data.type.rank))
    if dims:
        dims[first], dims[second] = dims[second], dims[first]
    return build.permute(data, dims)


def _select(call: Call, data: Node, dim: int, index: int) -> Node:
    axis = dim % data.type.rank
    start = _from_start(index, data.shape[axis])
    return build.drop(build.slice_axis(data, axis, start, start + 1), (axis,))


def _from_start(index: Extent, extent: Extent) -> Extent:
    """An index that may count from the end, counted from the start."""
    if is_static((index, extent)):
        return index % extent
    return index + extent if isinstance(index, int) and index < 0 else index


def _bounds(start: int | None, stop: int | None, extent: int) -> tuple[int, int]:
    first, last, _ = slice(start, stop).indices(extent)
    return first, max(first, last)


def _slice(
    call: Call,
    data: Node,
    dim: int = 0,
    start: int | None = None,
    stop: int | None = None,
    step: int = 1,
) -> Node:
    axis = dim % data.type.rank
    extent = data.shape[axis]
    if is_static((extent, start or 0, stop or 0)):
        return build.slice_axis(data, axis, *_bounds(start, stop, extent), step)
    # Of its end torch has already said how many elements there are.
    first, count = dynamic_start(start or 0, extent), call.shape[axis]
    last = first + (count - 1) * step + 1
    if all(proves_at_most(*each) for each in ((0, first), (first, extent), (last, extent))):
        return build.slice_axis(data, axis, first, last, step)
    # That all of them are there is a condition of the call.
    places = build.counter(1, 0, count) * step + first
    inside = build.minimum(places, extent - 1)
    return make("take", (data, inside), {"axis": axis})


def dynamic_start(index: Extent, extent: Extent) -> Extent:
    """Where a slice begins, counted from the start and within the extent, as Python's slices do:
    min(index, extent) from the start, max(index + extent, 0) from the end. Raises `NotSupported`
    where only the call knows from which end it is counted."""
    if proves_at_most(0, index):
        return smallest(index, extent)
    if proves_at_most(index, -1):
        return largest(index + extent, 0)
    raise NotSupported(f"a slice from `{index}` of an extent of `{extent}`")


def _slice_scatter(
    call: Call,
    data: Node,
    source: Node,
    dim: int = 0,
    start: int | None = None,
    stop: int | None = None,
    step: int = 1,
) -> Node:
    axis = dim % data.type.rank
    extent = data.shape[axis]
    beside = [source.shape[at] if at == axis else size for at, size in enumerate(data.shape)]
    source = call.sized(build.cast(source, data.dtype), beside)
    if not is_static((extent, start or 0, stop or 0)):
        return _range_written(data, source, axis, dynamic_start(start or 0, extent), step)
    first, last = _bounds(start, stop, extent)
    if is_state_value(data) and 0 < source.shape[axis] < extent:  # written where it lies
        return _range_written(data, source, axis, first, step)
    if step != 1:
        return _strided_scatter(data, source, axis, range(first, last, step))
    before = build.slice_axis(data, axis, 0, first)
    after = build.slice_axis(data, axis, last, extent)
    parts = [part for part in (before, source, after) if part.shape[axis]]
    return build.concat(parts, axis) if parts else data


def _range_written(data: Node, source: Node, axis: int, first: Extent, step: int) -> Node:
    """Elements first, first + step … of an axis replaced, as many as the source has."""
    count = source.shape[axis]
    if count == 0:
        return data
    if (first, step, count) == (0, 1, data.shape[axis]):
        return source
    if is_state_value(data):
        places = build.cast(build.counter(data.type.rank, axis, count) * step + first, "i32")
        how = {"axis": axis, "merge": "replace", "distinct": count}
        rows = make("scatter_rows", (data, places, source), how)
        return mark_state(rows)
    may_be_none = bounds(count)[0] < 1
    if may_be_none:  # then each place reads what is behind the last element, and takes nothing
        behind = [int(at == axis) for at in range(data.type.rank)]
        source = build.pad(source, [0] * data.type.rank, behind, 0)
    offset = build.counter(data.type.rank, axis, data.shape[axis]) - first
    which = offset // step
    inside = build.minimum(build.maximum(which, 0), count - 1)
    if may_be_none:
        inside = build.maximum(inside, 0)
    spread_out = make("take", (source, build.reshape(inside, (data.shape[axis],))), {"axis": axis})
    is_replaced = build.equal(inside * step, offset)
    if may_be_none:
        is_replaced = make("logical_and", (is_replaced, build.pointwise("lt", which, count)))
    return build.where(is_replaced, spread_out, data)


def _strided_scatter(data: Node, source: Node, axis: int, places: range) -> Node:
    """Every `places.step`-th element of an axis replaced."""
    if not places:
        return data
    offset = build.counter(data.type.rank, axis, data.shape[axis]) - places.start
    which = offset // places.step
    inside = build.minimum(build.maximum(which, 0), len(places) - 1)
    spread_out = make("take", (source, build.reshape(inside, (data.shape[axis],))), {"axis": axis})
    is_first = build.equal(inside * places.step, offset)
    return build.where(is_first, spread_out, data)


def _select_scatter(call: Call, data: Node, source: Node, dim: int, index: int) -> Node:
    axis = dim % data.type.rank
    start = _from_start(index, data.shape[axis])
    kept = list(data.shape)
    kept[axis] = 1
    beside = [*data.shape[:axis], *data.shape[axis + 1 :]]
    row = build.reshape(call.sized(build.cast(source, data.dtype), beside), kept)
    if is_state_value(data) and data.shape[axis] != 1:
        return _range_written(data, row, axis, start, 1)
    is_replaced = build.equal(build.counter(data.type.rank, axis, data.shape[axis]), start)
    return build.where(is_replaced, row, data)


def _split_with_sizes(call: Call, data: Node, sizes: Sequence[int], dim: int = 0) -> list[Node]:
    axis = dim % data.type.rank
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    pairs = zip(starts, sizes, strict=True)
    return [build.slice_axis(data, axis, start, start + size) for start, size in pairs]


def _split(call: Call, data: Node, size: int, dim: int = 0) -> list[Node]:
    extent = data.shape[dim]
    sizes = [min(size, extent - start) for start in range(0, extent, size)]
    return _split_with_sizes(call, data, sizes, dim)


def _unbind(call: Call, data: Node, dim: int = 0) -> list[Node]:
    return [_select(call, data, dim, index) for index in range(data.shape[dim])]


def _cat(call: Call, parts: Sequence[Node], dim: int = 0) -> Node:
    # Empty rank-1 tensors are legal parts in torch, whatever the others' rank.
    kept = [build.cast(part, call.dtype) for part in parts if part.shape != (0,)]
    return build.concat(kept, dim % len(call.shape)) if kept else build.cast(parts[0], call.dtype)


def _stack(call: Call, parts: Sequence[Node], dim: int = 0) -> Node:
    axis = dim % len(call.shape)
    shape = (*call.shape[:axis], 1, *call.shape[axis + 1 :])
    return build.concat([build.reshape(build.cast(p, call.dtype), shape) for p in parts], axis)


def _flip(call: Call, data: Node, dims: Sequence[int]) -> Node:
    if not data.type.rank:
        return data
    axes = tuple(sorted(dim % data.type.rank for dim in dims))
    return make("flip", (data,), {"axes": axes})


def _repeat(call: Call, data: Node, repeats: Sequence[int]) -> Node:
    aligned = build.align(data, len(repeats))
    split = [dim for extent in aligned.shape for dim in (1, extent)]
    wide = [dim for pair in zip(repeats, aligned.shape, strict=True) for dim in pair]
    return build.reshape(build.expand(build.reshape(aligned, split), wide), call.shape)


def _roll(call: Call, data: Node, shifts: Sequence[int], dims: Sequence[int] = ()) -> Node:
    result = data if dims else build.reshape(data, (data.type.numel,))
    for shift, dim in zip(shifts, dims or (0,), strict=True):
        axis = dim % result.type.rank
        extent = result.shape[axis]
        cut = -shift % extent
        if cut:
            head = build.slice_axis(result, axis, 0, cut)
            result = build.concat([build.slice_axis(result, axis, cut, extent), head], axis)
    return build.reshape(result, call.shape)


def _diagonal(call: Call, data: Node, offset: int = 0, first: int = 0, second: int = 1) -> Node:
    rank = data.type.rank
    row, column = first % rank, second % rank
    rest = [axis for axis in range(rank) if axis not in (row, column)]
    moved = build.permute(data, (*rest, row, column))
    height, width = moved.shape[-2:]
    lead, length = moved.shape[:-2], call.shape[-1]
    start = offset if offset >= 0 else -offset * width
    flat = build.reshape(moved, (*lead, height * width))
    if not length:
        return build.slice_axis(flat, len(lead), 0, 0)
    return build.slice_axis(
        flat, len(lead), start, start + (length - 1) * (width + 1) + 1, width + 1
    )


def _as_strided(
    call: Call, data: Node, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Node:
    order = memory_order(call.operand_values[0])
    flat = build.reshape(build.permute(data, order), (data.type.numel,))
    return make("take", (flat, memory_indices(size, stride, offset)), {"axis": 0})


def memory_indices(size: Sequence[int], stride: Sequence[int], offset: int | None) -> Node:
    """The place in memory of each element of a tensor of these sizes and strides."""
    place: Node = build.expand(number(offset or 0, "i64"), size)
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        place = place + build.counter(len(size), axis, extent) * step
    return build.expand(place, size)


def memory_order(seen: Any) -> tuple[int, ...]:
    """The dims of a tensor that fills its memory, by falling stride; `NotSupported` for others."""
    if seen.is_contiguous() and not seen.storage_offset():
        return tuple(range(seen.dim()))
    numbers = (*seen.shape, *seen.stride(), seen.storage_offset())
    if not all(isinstance(each, int) for each in numbers) or seen.storage_offset():
        raise NotSupported("strides over a tensor that is itself a view")
    order = tuple(sorted(range(seen.dim()), key=lambda axis: -seen.stride(axis)))
    if not seen.permute(order).is_contiguous():
        raise NotSupported("strides over a tensor that is itself a view")
    return order


def _edge_pad(is_reflected: bool) -> Row:
    """Each result element looks up the one that stands for it; widths are listed from the last."""

    def row(call: Call, data: Node, widths: Sequence[int]) -> Node:
        rank, result = data.type.rank, data
        for place in range(len(widths) // 2):
            axis = rank - 1 - place
            result = _edge_padded(
                result, axis, widths[2 * place], widths[2 * place + 1], is_reflected
            )
        return result

    return row


def _edge_padded(data: Node, axis: int, low: int, high: int, is_reflected: bool) -> Node:
    extent = data.shape[axis]
    parts = []
    if low > 0 and is_reflected:
        parts.append(_flipped(build.slice_axis(data, axis, 1, low + 1), axis))
    elif low > 0:
        parts.append(_repeated(build.slice_axis(data, axis, 0, 1), axis, low))
    parts.append(build.slice_axis(data, axis, max(0, -low), extent - max(0, -high)))
    if high > 0 and is_reflected:
        parts.append(_flipped(build.slice_axis(data, axis, extent - 1 - high, extent - 1), axis))
    elif high > 0:
        parts.append(_repeated(build.slice_axis(data, axis, extent - 1, extent), axis, high))
    return build.concat(parts, axis)


def _flipped(data: Node, axis: int) -> Node:
    return make("flip", (data,), {"axes": (axis,)})


def _repeated(data: Node, axis: int, count: int) -> Node:
    return build.expand(data, (*data.shape[:axis], count, *data.shape[axis + 1 :]))


def _constant_pad(call: Call, data: Node, widths: Sequence[int], value: Operand = 0) -> Node:
    # torch lists widths from the last dim on; a negative width cuts.
    rank = data.type.rank
    low, high = [0] * rank, [0] * rank
    for place, axis in enumerate(reversed(range(rank - len(widths) // 2, rank))):
        low[axis], high[axis] = widths[2 * place], widths[2 * place + 1]
    for axis in range(rank):
        start, stop = max(0, -low[axis]), data.shape[axis] - max(0, -high[axis])
        data = build.slice_axis(data, axis, start, stop)
    given = value if not isinstance(value, Node) else value.attr("value")
    fill = wrapped_number(given, data.dtype)
    return build.pad(data, [max(0, width) for width in low], [max(0, w) for w in high], fill)


def _unfold(call: Call, data: Node, dim: int, size: int, step: int) -> Node:
    if data.type.rank == 0:
        return build.reshape(data, call.shape)
    attrs = {"axes": (dim % data.type.rank,), "sizes": (size,), "strides": (step,)}
    return make("window", (data,), attrs | {"dilations": (1,)})


def _arange(call: Call, start: Operand, stop: Any, step: Operand = 1, *rest: Any) -> Node:
    is_float = DTYPES[call.dtype].kind == "float"
    # Of short integers the step itself may not fit.
    counted = build.cast(build.iota(call.shape, 0), call.dtype if is_float else "i64")
    if step != 1:
        counted = counted * step
    return build.cast(counted if start == 0 else counted + start, call.dtype)


def _narrow_copy(call: Call, data: Node, dim: int, start: Extent, length: Extent) -> Node:
    axis = dim % data.type.rank
    first = _from_start(start, data.shape[axis])
    return build.slice_axis(data, axis, first, first + length)


def _full(call: Call, size: Sequence[int], value: Operand, *rest: Any) -> Node:
    # An element of a 16-bit tensor is rounded; only literals of arithmetic keep f32's precision.
    rounded = value if isinstance(value, Node | Size) else wrapped_number(value, call.dtype)
    return call.fill(call.operand(rounded, call.dtype))


def _filled(value: int) -> Any:
    def row(call: Call, *rest: Any) -> Node:
        return call.fill(build.scalar(value, call.dtype))

    return row


_EMPTY = (
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty_strided", "zeros",
    "zeros_like",
)  # fmt: skip
_RESHAPES = ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten")

ROWS: Rows = {
    **dict.fromkeys(_RESHAPES, _reshape),
    "view": _view,
    "permute": lambda call, data, dims: build.permute(data, [dim % data.type.rank for dim in dims]),
    "transpose": _transpose,
    "t": lambda call, data: build.transpose(data) if data.type.rank == 2 else data,
    "expand": lambda call, data, *rest: call.fill(data),
    "select": _select,
    "slice": _slice,
    "slice_scatter": _slice_scatter,
    "select_scatter": _select_scatter,
    "split_with_sizes": _split_with_sizes,
    "split": _split,
    "unbind": _unbind,
    "cat": _cat,
    "stack": _stack,
    "flip": _flip,
    "repeat": _repeat,
    "roll": _roll,
    "constant_pad_nd": _constant_pad,
    **{f"reflection_pad{rank}d": _edge_pad(True) for rank in (1, 2, 3)},
    **{f"replication_pad{rank}d": _edge_pad(False) for rank in (1, 2, 3)},
    "diagonal": _diagonal,
    "as_strided": _as_strided,
    "unfold": _unfold,
    "arange": _arange,
    "prims::iota": lambda call, length, start, step, *rest: _arange(call, start, None, step),
    "narrow_copy": _narrow_copy,
    "full": _full,
    "full_like": _full,
    "scalar_tensor": lambda call, value, *rest: _full(call, (), value),
    **dict.fromkeys(_EMPTY, _filled(0)),
    "ones": _filled(1),
    "ones_like": _filled(1),
}
