"""Import rows of ops that read or write elements by indices; each call checks the indices.

Kernels never leave memory: what is out of range reads the nearest place there is. Writes are made
in order, so that no kernel needs atomics and every call gives the same bits. Where several values
are written to one element, the last one wins, as on torch's CPU. `rewrites/lookups.py` makes few of
them lookups of what is written to each element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from aotc.aot.capture.imports.call import Call, NotSupported, Operand, Row, Rows, wide, wrapped
from aotc.aot.capture.imports.distinct import DISTINCT
from aotc.aot.capture.imports.movement import memory_indices, memory_order
from aotc.aot.capture.imports.scans import scan_along
from aotc.aot.capture.state_values import is_state_value, mark_state
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.ranges import is_within, range_of
from aotc.aot.ir.reductions import REDUCTIONS
from aotc.aot.ir.size import Extent, is_static

# -- writes where a mask holds ---------------------------------------------------------------------


def masked_put(data: Node, indices: Sequence[Node | None], values: Node, accumulates: bool) -> Node:
    """`index_put` with a mask in place of indices."""
    if len(indices) != 1 or indices[0] is None:
        raise NotSupported("a mask among other indices: how many elements it names depends on data")
    mask = build.cast(indices[0], "bool")
    shape = (*mask.shape, *[1] * (data.type.rank - mask.type.rank))
    where = build.expand(build.reshape(mask, shape), data.shape)
    rows = data.shape[mask.type.rank :]
    if values.type.rank > len(rows) and values.shape[0] == 1:
        values = build.reshape(values, values.shape[1:])
    if values.type.numel == 0:
        return data
    if values.type.rank <= len(rows):
        given = build.expand(build.align(values, data.type.rank), data.shape)
    else:  # one after the other, as many as the mask names: the caller's promise
        given = _in_turn(where, build.expand(values, (values.shape[0], *rows)))
    return build.where(where, data + given if accumulates else given, data)


def _masked_scatter(call: Call, data: Node, mask: Node, source: Node) -> Node:
    where = build.expand(mask, call.shape)
    whole = build.expand(data, call.shape)
    if source.type.numel == 0:
        return whole
    values = build.cast(_in_turn(where, source), data.dtype)
    return build.where(where, values, whole)


def _in_turn(where: Node, source: Node) -> Node:
    """The source's elements one after the other where the mask holds; anything elsewhere."""
    flat = build.cast(build.reshape(where, (where.type.numel,)), "i32")
    before = build.maximum(scan_along("sum", flat, 0) - 1, 0)
    place = build.minimum(before, source.type.numel - 1)
    taken = make("take", (build.reshape(source, (source.type.numel,)), place), {"axis": 0})
    return build.reshape(taken, where.shape)


# -- writes at places ------------------------------------------------------------------------------


# How values written to one element are reduced, by torch's name.
GATHERINGS = {"sum": "sum", "mean": "sum", "prod": "prod", "amax": "max", "amin": "min"}
I32 = (-(1 << 31), (1 << 31) - 1)
OF_BOOLS = {"any": "max", "all": "min"}
OLD_NAMES = {"add": "sum", "multiply": "prod"}


@dataclass(frozen=True, slots=True)
class Merge:
    """What becomes of the values written to an element: a gathering's name, or "replace"."""

    name: str
    counts_self: bool = True  # the element's own value is one of them


REPLACE = Merge("replace")
SUM_UP = Merge("sum")


def _narrowed(index: Node, extent: Extent) -> Node:
    """An index without dims along which it only repeats, so that hits are found once; as i32."""
    while index.op == "expand":
        index = index.inputs[0]
    return _as_i32(index, extent)


def _as_i32(index: Node, extent: Extent) -> Node:
    """Places among `extent` as i32; what lies outside stays outside, however far off it is."""
    if not is_within(range_of(index, {}), I32):
        wide = build.cast(index, "i64")
        index = build.minimum(build.maximum(wide, -1), extent)
    return build.cast(index, "i32")


def _corner(data: Node, shape: Sequence[int], axis: int) -> Node:
    """The first elements along the axes that `shape` lists, but for `axis`."""
    for each, extent in enumerate(shape):
        if each != axis:
            data = build.slice_axis(data, each, 0, extent)
    return data


def _with_corner(data: Node, corner: Node, axis: int) -> Node:
    """`data` with its first elements along every axis but `axis` replaced by `corner`."""
    for each in reversed(range(data.type.rank)):
        if each != axis and corner.shape[each] < data.shape[each]:
            beside = _corner(data, corner.shape[:each], axis)
            tail = build.slice_axis(beside, each, corner.shape[each], data.shape[each])
            corner = build.concat([corner, tail], each)
    return corner


def _as_data(data: Node, index: Node, source: Node, axis: int) -> tuple[Node, Node]:
    """Index and source with the data's sizes but along `axis`, where sizes vary: beyond the index
    nothing is written, by an index that names no place. That neither the data nor the source is
    smaller than the index is torch's condition of each call."""
    rank = data.type.rank
    for each, wanted in enumerate(data.shape):
        own, given = index.shape[each], source.shape[each]
        wanted = own if each == axis else wanted
        if given != wanted:
            source = _first(source, each, wanted)
        if own != wanted:
            is_inside = build.pointwise("lt", build.counter(rank, each, wanted), own)
            index = build.where(is_inside, build.cast(_first(index, each, wanted), "i64"), -1)
    return index, source


def _first(data: Node, axis: int, count: Extent) -> Node:
    """The first elements along an axis, of which it may have fewer: then the last one again."""
    places = build.minimum(build.counter(1, 0, count), data.shape[axis] - 1)
    return make("take", (data, places), {"axis": axis})


def _along(data: Node, dim: int, index: Node, source: Operand, merge: Merge) -> Node:
    """`scatter`'s shapes: index within the source, and within the data but along `dim`."""
    if data.type.rank == 0:
        data_row, index = build.reshape(data, (1,)), build.reshape(index, (1,))
        row = build.reshape(source, (1,)) if isinstance(source, Node) else source
        return build.reshape(_along(data_row, 0, index, row, merge), ())
    axis = dim % data.type.rank
    if index.type.rank == 0:
        index = build.reshape(index, (1,))
    if index.type.numel == 0:
        return data
    if not isinstance(source, Node):
        source = build.scalar(source, data.dtype)
    source = build.cast(source, data.dtype)
    if source.type.rank == 0:
        source = build.expand(source, index.shape)
    if not is_static((*data.shape, *index.shape, *source.shape)):
        index, source = _as_data(data, index, source, axis)
    for each, extent in enumerate(index.shape):
        source = build.slice_axis(source, each, 0, extent)
    corner = _corner(data, index.shape, axis)
    merged = _merged(corner, _narrowed(index, data.shape[axis]), source, axis, merge)
    return _with_corner(data, build.expand(merged, corner.shape), axis)


def _merged(
    data: Node, index: Node, source: Node, axis: int, merge: Merge, distinct: Extent = 1
) -> Node:
    """The source merged into the data, one row after the other. `distinct`: as `scatter_rows` has
    it."""

    def written(data: Node, source: Node, how: str) -> Node:
        attrs = {"axis": axis, "merge": how, "distinct": distinct}
        return make("scatter_rows", (data, index, source), attrs)

    if merge.name == "replace":
        total = written(data, source, "replace")
    else:
        total = _gathered(written, data, source, merge)
        if merge.name == "mean":
            total = _averaged(total, _count(index, data, axis, distinct) + int(merge.counts_self))
        total = build.cast(total, data.dtype)
    return mark_state(total) if is_state_value(data) else total


def _gathered(
    written: Callable[[Node, Node, str], Node], data: Node, source: Node, merge: Merge
) -> Node:
    """All values written to each element, and its own if it counts, reduced; in f32 of f16."""
    how = GATHERINGS[merge.name]
    if data.dtype == "bool":
        if merge.name == "mean":
            raise NotSupported("a mean of bools")
        how = OF_BOOLS[REDUCTIONS[how].of_bools]
        data, source = (build.cast(item, "i32") for item in (data, source))
    data, source = wide(data), wide(source)
    if not merge.counts_self:
        identity = build.scalar(REDUCTIONS[how].identity(data.dtype), data.dtype)
        data = written(data, build.expand(identity, source.shape), "replace")
    return written(data, source, how)


def _count(index: Node, data: Node, axis: int, distinct: Extent) -> Node:
    """How many rows are written to each place, i32."""
    shape = list(index.shape)
    shape[axis] = data.shape[axis]
    none, one = (build.scalar(value, "i32") for value in (0, 1))
    operands = (build.expand(none, shape), index, build.expand(one, index.shape))
    return make("scatter_rows", operands, {"axis": axis, "merge": "sum", "distinct": distinct})


def _averaged(total: Node, count: Node) -> Node:
    least = build.maximum(count, 1)
    divisor = build.cast(least, total.dtype)
    op = "div" if total.type.kind == "float" else "floor_divide"
    return build.pointwise(op, total, divisor)


def _extent(data: Node, dim: int) -> Extent:
    """The extent of a dim; a tensor of rank 0 has one place."""
    return data.shape[dim] if data.type.rank else 1


def _scattered(
    call: Call, data: Node, dim: int, index: Node, source: Operand, merge: Merge = SUM_UP
) -> Node:
    call.check_index(index, _extent(data, dim))
    return _along(data, dim, index, source, merge)


def _scatter(
    call: Call, data: Node, dim: int, index: Node, source: Operand, reduce: str | None = None
) -> Node:
    merge = REPLACE if reduce is None else Merge(OLD_NAMES[reduce])
    return _scattered(call, data, dim, index, source, merge)


def _rows_written(
    call: Call, data: Node, dim: int, index: Node, source: Node, merge: Merge = REPLACE
) -> Node:
    call.check_index(index, _extent(data, dim))
    if data.type.rank:
        shape = list(data.shape)
        shape[dim] = index.type.numel
        source = call.sized(source, shape)
    return _whole_rows(data, dim, index, source, merge)


def _reducing(write: Callable[..., Node]) -> Row:
    """By torch's name of the reduction, and whether the element's own value is reduced too."""
    return lambda call, data, dim, index, source, reduce, includes_self=True: write(
        call, data, dim, index, source, Merge(reduce, includes_self)
    )


def _as_strided_scatter(
    call: Call,
    data: Node,
    source: Node,
    size: Sequence[int],
    stride: Sequence[int],
    offset: int | None = None,
) -> Node:
    order = memory_order(call.operand_values[0])
    lying = build.permute(data, order)
    places, count = memory_indices(size, stride, offset), source.type.numel
    flat, rows = build.reshape(lying, (data.type.numel,)), build.reshape(source, (count,))
    written = _along(flat, 0, build.reshape(places, (count,)), rows, REPLACE)
    back = sorted(range(len(order)), key=order.__getitem__)
    return build.permute(build.reshape(written, lying.shape), back)


def _index_add(
    call: Call, data: Node, dim: int, index: Node, source: Node, alpha: Operand = 1
) -> Node:
    if alpha != 1:
        source = source * alpha
    return _rows_written(call, data, dim, index, source, SUM_UP)


def _index_fill(call: Call, data: Node, dim: int, index: Node, value: Operand) -> Node:
    call.check_index(index, _extent(data, dim), wraps=True)
    filled = value if isinstance(value, Node) else build.scalar(value, data.dtype)
    shape = list(data.shape)
    if shape:
        shape[dim] = index.type.numel
    source = build.expand(build.cast(filled, data.dtype), shape)
    return _whole_rows(data, dim, index, source, REPLACE)


def _whole_rows(
    data: Node, dim: int, index: Node, source: Node, merge: Merge, distinct: Extent = 1
) -> Node:
    if data.type.rank == 0:
        parts = [build.reshape(item, (item.type.numel,)) for item in (data, source)]
        return build.reshape(_whole_rows(parts[0], 0, index, parts[1], merge), ())
    axis = dim % data.type.rank
    if index.type.numel == 0 or data.type.numel == 0:
        return data
    place = wrapped(build.cast(index, "i64"), data.shape[axis])
    along = build.reshape(place, build.column(data.type.rank, axis, place.type.numel))
    rows = _as_i32(along, data.shape[axis])
    merged = _merged(data, rows, build.cast(source, data.dtype), axis, merge, distinct)
    return build.expand(merged, data.shape)


def _index_put(
    call: Call,
    data: Node,
    indices: Sequence[Node | None],
    values: Node,
    accumulates: bool = False,
    *rest: Any,
    is_checked: bool = True,
) -> Node:
    given = [index for index in indices if index is not None]
    values = build.cast(values, data.dtype)
    if any(index.dtype in ("bool", "u8") for index in given):
        return masked_put(data, indices, values, accumulates)
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    extents = [data.shape[axis] for axis in axes]
    if is_checked:
        for index, extent in zip(given, extents, strict=True):
            call.check_index(index, extent, wraps=True)
    given = _of_one_shape(call, given)
    place, shape = flat_place(given, extents)
    if data.type.numel == 0 or place.type.numel == 0:
        return data
    merge = SUM_UP if accumulates else REPLACE
    flat = build.reshape(place, (place.type.numel,))
    if len(axes) == 1:  # written where it lies
        (axis,) = axes
        before, after = data.shape[:axis], data.shape[axis + 1 :]
        whole = (*before, *shape, *after)
        source = build.expand(call.sized(values, whole, broadcasts=True), whole)
        rows = build.reshape(source, (*before, place.type.numel, *after))
        return _whole_rows(data, axis, flat, rows, merge, _distinct(given, shape))
    if is_state_value(data):
        return _rows_put(call, data, axes, given, values, shape, merge)
    kept = [axis for axis in range(data.type.rank) if axis not in axes]
    order = (*axes, *kept)
    front = build.permute(data, order)
    rest_shape = front.shape[len(axes) :]
    first = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    whole = (*rest_shape[:first], *shape, *rest_shape[first:])
    source = build.expand(call.sized(values, whole, broadcasts=True), whole)
    moved = (
        *range(first, first + len(shape)),
        *range(first),
        *range(first + len(shape), len(shape) + len(rest_shape)),
    )
    rows = build.reshape(build.permute(source, moved), (place.type.numel, *rest_shape))
    joined = build.reshape(front, (math.prod(extents), *rest_shape))
    written = _whole_rows(joined, 0, flat, rows, merge)
    back = tuple(order.index(axis) for axis in range(data.type.rank))
    return build.permute(build.reshape(written, front.shape), back)


def _of_one_shape(call: Call, indices: Sequence[Node]) -> list[Node]:
    """Indices whose dims are those of the first that has any there, but for dims of 1."""
    shape: list[Extent] = []
    for index in indices:
        shape = [1] * (index.type.rank - len(shape)) + shape
        first = len(shape) - index.type.rank
        sizes = zip(shape[first:], index.shape, strict=True)
        shape[first:] = [own if known == 1 else known for known, own in sizes]
    return [call.sized(index, shape, broadcasts=True) for index in indices]


def _rows_put(
    call: Call,
    data: Node,
    axes: Sequence[int],
    given: Sequence[Node],
    values: Node,
    shape: Sequence[Extent],
    merge: Merge,
) -> Node:
    """`index_put` of several axes as rows of all dims up to the last one that has an index, so that
    data that is a state is written where it lies."""
    lead = data.shape[: axes[-1] + 1]
    between = [axis for axis in range(len(lead)) if axis not in axes]
    rest = [*(data.shape[axis] for axis in between), *data.shape[len(lead) :]]
    rank = len(shape) + len(between)
    index = {
        axis: build.reshape(
            each, (*[1] * (len(shape) - each.type.rank), *each.shape, *[1] * len(between))
        )
        for axis, each in zip(axes, given, strict=True)
    }
    for at, axis in enumerate(between):
        index[axis] = build.counter(rank, len(shape) + at, data.shape[axis])
    ordered = [index[axis] for axis in range(len(lead))]
    place, whole = flat_place(ordered, lead)
    # torch puts the indexed dims first where a whole dim stands between them.
    first = 0 if any(axis > axes[0] for axis in between) else axes[0]
    sizes = (*rest[:first], *shape, *rest[first:])
    source = build.expand(call.sized(values, sizes, broadcasts=True), sizes)
    indexed = range(first, first + len(shape))
    order = (*indexed, *(at for at in range(source.type.rank) if at not in indexed))
    count = place.type.numel
    rows = build.reshape(build.permute(source, order), (count, *data.shape[len(lead) :]))
    joined = build.reshape(data, (math.prod(lead), *data.shape[len(lead) :]))
    distinct = _distinct(ordered, whole)
    flat = build.reshape(place, (count,))
    return build.reshape(_whole_rows(joined, 0, flat, rows, merge, distinct), data.shape)


def _distinct(indices: Sequence[Node], shape: Sequence[Extent]) -> Extent:
    """How many places of row-major `shape` lie in a row of which no two are one, nor are two of
    different numbers in their rows: those of the last dims along which an index counts."""
    counted = {_counted_axis(index) for index in indices}
    found: Extent = 1
    for axis in reversed(range(len(shape))):
        if shape[axis] != 1 and axis not in counted:
            break
        found *= shape[axis]
    return found


def _counted_axis(index: Node) -> int | None:
    """The axis of which alone an index tells the place, and each by another number; None where
    that is not known."""
    if index.op == "iota":
        return int(index.attr("axis"))
    if index in DISTINCT:
        return 0
    if index.op not in ("cast", "expand", "reshape", "slice"):
        return None
    (operand,) = index.inputs
    axis = _counted_axis(operand)
    if index.op == "slice":
        return axis
    if axis is None or index.dtype not in ("i32", "i64"):
        return None
    if not is_within(range_of(operand, {}), I32) and index.dtype != operand.dtype:
        return None
    extent = operand.shape[axis]
    if index.op == "reshape":
        before, after = (
            [(at, each) for at, each in enumerate(node.shape) if each != 1]
            for node in (operand, index)
        )
        if [each for _, each in before] != [each for _, each in after] or extent == 1:
            return None
        return after[before.index((axis, extent))][0]
    axis += index.type.rank - operand.type.rank
    return axis if index.shape[axis] == extent else None


def flat_place(indices: Sequence[Node], extents: Sequence[int]) -> tuple[Node, tuple[int, ...]]:
    """Row-major place i64 among axes of `extents` that broadcast indices name, and its shape."""
    rank = max(index.type.rank for index in indices)
    shape = [1] * rank
    flat: Node | None = None
    for index, extent in zip(indices, extents, strict=True):
        aligned = build.align(index, rank)
        shape = [new if old == 1 else old for old, new in zip(shape, aligned.shape, strict=True)]
        place = wrapped(build.cast(aligned, "i64"), extent)
        flat = place if flat is None else flat * extent + place
    assert flat is not None
    return build.expand(flat, shape), tuple(shape)


# -- lookups ---------------------------------------------------------------------------------------


def _embedding(call: Call, table: Node, indices: Node, *rest: Any) -> Node:
    call.check_index(indices, table.shape[0])
    return make("take", (table, indices), {"axis": 0})


def _looked_up(op: str, call: Call, data: Node, dim: int, index: Node, *rest: Any) -> Node:
    call.check_index(index, _extent(data, dim))
    if 0 in (data.type.rank, index.type.rank):
        data, index = (build.align(item, 1) for item in (data, index))
        return build.reshape(make(op, (data, index), {"axis": 0}), call.shape)
    return make(op, (data, index), {"axis": dim % data.type.rank})


def _index(call: Call, data: Node, indices: Sequence[Node | None], is_checked: bool = True) -> Node:
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if any(index.dtype in ("bool", "u8") for index in given):
        raise NotSupported("a mask as index: its result's shape depends on data")
    if not axes:
        return data
    if axes != list(range(axes[0], axes[0] + len(axes))):
        # torch puts the indexed dims first where a whole dim stands between them.
        rest = [axis for axis in range(data.type.rank) if axis not in axes]
        data, axes = build.permute(data, (*axes, *rest)), list(range(len(axes)))
    extents = [data.shape[axis] for axis in axes]
    if is_checked:
        for index, extent in zip(given, extents, strict=True):
            call.check_index(index, extent, wraps=True)
    flat, _ = flat_place(given, extents)
    first, last = axes[0], axes[-1] + 1
    shape = (*data.shape[:first], math.prod(extents), *data.shape[last:])
    return make("take", (build.reshape(data, shape), flat), {"axis": first})


def _take(call: Call, data: Node, index: Node) -> Node:
    call.check_index(index, data.type.numel, wraps=True)
    flat = build.reshape(data, (data.type.numel,))
    return make("take", (flat, wrapped(index, data.type.numel)), {"axis": 0})


def _one_hot(call: Call, classes: Node, count: int = -1) -> Node:
    if isinstance(count, int) and count < 0:
        raise NotSupported("how many classes there are depends on data: give `num_classes`")
    call.check_index(classes, count)
    rank = classes.type.rank
    column = build.iota((*[1] * rank, count), rank)
    pairs = build.reshape(build.cast(classes, "i64"), (*classes.shape, 1))
    return build.cast(call.fill(build.equal(pairs, column)), call.dtype)


ROWS: Rows = {
    "masked_scatter": _masked_scatter,
    "scatter": _scatter,
    "as_strided_scatter": _as_strided_scatter,
    "scatter_add": _scattered,
    "scatter_reduce": _reducing(_scattered),
    "index_add": _index_add,
    "index_copy": _rows_written,
    "index_fill": _index_fill,
    "index_reduce": _reducing(_rows_written),
    "index_put": _index_put,
    "_unsafe_index_put": partial(_index_put, is_checked=False),
    "embedding": _embedding,
    "gather": partial(_looked_up, "gather"),
    "index": _index,
    "_unsafe_index": partial(_index, is_checked=False),
    "index_select": partial(_looked_up, "take"),
    "one_hot": _one_hot,
    "take": _take,
}
