"""Operations that are split together with those before them: writes of rows at flat places, slices
of joint projections. Each says what has to hold of the nodes that it looks back at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.ranges import is_within, range_of
from aotc.aot.ir.size import Extent, Shape, proves_at_most
from aotc.aot.sharding.splitter import Sharded, Splitter


def sliced_before(splitter: Splitter, node: Node, data: Node) -> Node | None:
    """A slice along the last axis of what products with weights make, as a product with a slice of
    the weights: one layer that makes queries, keys and values is three; None of anything else."""
    axis, start, stop, step = (node.attr(name) for name in ("axis", "start", "stop", "step"))
    last = data.type.rank - 1
    if splitter.is_constant(data):
        if data.op == "permute":
            (rows,) = data.inputs
            part = build.slice_axis(rows, data.attr("dims")[last], start, stop, step)
            return build.permute(part, data.attr("dims"))
        return build.slice_axis(data, last, start, stop, step)
    if axis != node.type.rank - 1:
        return None
    if data.op == "reshape" and data.inputs[0].shape[-1] == data.shape[-1]:
        before = sliced_before(splitter, node, data.inputs[0])
        return None if before is None else build.reshape(before, (*data.shape[:-1], node.shape[-1]))
    if data.op == "matmul" and splitter.is_worthwhile(data.inputs[1]):
        right = sliced_before(splitter, node, data.inputs[1])
        return None if right is None else data.on((data.inputs[0], right))
    if data.kind == "pointwise" and data.op != "copy":
        parts = [
            each if not each.shape or each.shape[-1] == 1 else sliced_before(splitter, node, each)
            for each in data.inputs
        ]
        return None if None in parts else data.on(tuple(parts))  # type: ignore[arg-type]
    return None


# A write of rows at explicit places along several dims, as torch's `index_put` of a cache is: rows
# of `[d0 · d1 · .., ..]` at ((i0 · d1 + i1) · d2 + i2 ..). Where one of the places is counted along
# an axis of the rows, each rank writes the rows of its part of that axis into its part of the dim.


def is_of_rows_written(node: Node) -> bool:
    """Whether a node is a tensor of which rows of a flat view are written."""
    if node.op != "reshape" or node.inputs[0].op != "scatter_rows":
        return False
    data, index, source = node.inputs[0].inputs
    is_flat = data.op == source.op == "reshape" and data.inputs[0].shape == node.shape
    return is_flat and node.inputs[0].attr("axis") == 0 and index.type.rank == data.type.rank


def written_rows(splitter: Splitter, node: Node) -> Sharded | None:
    written = node.inputs[0]
    data, index, source = written.inputs
    before, rows = data.inputs[0], source.inputs[0]
    merged = node.type.rank - data.type.rank + 1
    places = _places(index, node.shape[:merged])
    value = splitter.value(rows)
    axis = value.axis
    if places is None or axis is None or rows.shape != (*places[0].shape, *node.shape[merged:]):
        return None
    if axis >= places[0].type.rank or not all(
        _is_inside(splitter, place, extent)
        for place, extent in zip(places[1:], node.shape[:merged], strict=True)
    ):
        return None
    along = next(
        (
            at
            for at, place in enumerate(places[1:])
            if splitter.divides(node.shape, at)
            and _is_counted(splitter, place, axis, node.shape[at])
        ),
        None,
    )
    if along is None:
        return None
    old = splitter.value(before)
    if old.axis is None and splitter.state_of(before) is not None:
        splitter.split_state(before, along)
    distinct = _distinct_of_part(splitter, written.attr("distinct"), places[0].shape, axis)
    if old.axis not in (None, along) or distinct is None:
        return None
    kept = old.node if old.axis == along else splitter.part(old.node, along)
    shape = splitter.local_shape(node.shape, along)
    parts = [splitter.whole(splitter.value(each)) for each in places[1:]]
    parts = [each if each.shape[axis] == 1 else splitter.part(each, axis) for each in parts]
    parts[along] = build.counter(rows.type.rank - len(shape[merged:]), axis, shape[along])
    local = _flat(parts, shape[:merged])
    operands = (
        build.reshape(kept, (math.prod(shape[:merged]), *shape[merged:])),
        build.cast(build.reshape(local, (local.type.numel, *index.shape[1:])), index.dtype),
        build.reshape(value.node, (local.type.numel, *shape[merged:])),
    )
    found = make("scatter_rows", operands, {**dict(written.attrs), "distinct": distinct})
    return Sharded(build.reshape(found, shape), along)


def _places(index: Node, extents: Shape) -> list[Node] | None:
    """Of flat places along dims of these extents: the places as they were before their shape was
    one column, and those along each dim; None where they were not computed so."""
    flat = index
    while flat.op == "cast" or _keeps_inside(flat, math.prod(extents)):
        flat = flat.inputs[0]
    flat = _not_below_zero(flat.inputs[0] if flat.op == "reshape" else flat)
    flat = rest = flat.inputs[0] if flat.op == "reshape" else flat
    found: list[Node] = []
    for extent in reversed(extents[1:]):
        parts = _product_and_rest(rest, extent)
        if parts is None:
            return None
        rest, last = parts
        found.insert(0, last)
    return [flat, rest, *found]


def _keeps_inside(node: Node, count: Extent) -> bool:
    """Whether a node leaves places from 0 up to `count` as they are, and moves others outside."""
    limit = node.inputs[1] if node.op in ("maximum", "minimum") else node
    if limit.op != "scalar":
        return False
    value = limit.attr("value")
    return value < 0 if node.op == "maximum" else proves_at_most(count, value)


def _is_inside(splitter: Splitter, place: Node, extent: Extent) -> bool:
    """Whether places are proved to be of a dim: by their range, or by a check of the call's data
    that they are from -extent on, to which the extent is added below 0."""
    data = _not_below_zero(place)
    if is_within(range_of(data, splitter.fixed), (0, extent - 1)):
        return True
    if data is place or place.inputs[1] is not data + extent:
        return False
    looked_at = _unviewed(data)
    return any(
        check.attr("kind") == "index"
        and _unviewed(check.inputs[0]) is looked_at
        and is_within((check.attr("low"), check.attr("high")), (-extent, extent - 1))
        for check in splitter.graph.checks
    )


def _unviewed(node: Node) -> Node:
    """What a view without another order views."""
    while node.op in ("reshape", "cast"):
        (node,) = node.inputs
    return node


def _product_and_rest(node: Node, factor: Extent) -> tuple[Node, Node] | None:
    """a, b of a · factor + b."""
    for product, rest in (node.inputs, node.inputs[::-1]) if node.op == "add" else ():
        if product.op == "mul":
            for term, other in (product.inputs, product.inputs[::-1]):
                if other.op == "scalar" and other.attr("value") == factor:
                    return term, rest
    return None


def _not_below_zero(node: Node) -> Node:
    """x of `where(x < 0, x + n, x)`, which is x where that counts from the beginning."""
    if node.op == "where" and node.inputs[0].op == "lt":
        (data, zero), (_, chosen, other) = node.inputs[0].inputs, node.inputs
        is_zero = zero.op == "scalar" and zero.attr("value") == 0
        if is_zero and other is data and chosen.op == "add" and data in chosen.inputs:
            return data
    return node


def _is_counted(splitter: Splitter, node: Node, axis: int, extent: Extent) -> bool:
    """Whether places count from 0 along one axis, to an extent."""
    node = _not_below_zero(node)
    if not node.shape[axis] == extent == math.prod(node.shape):
        return False
    while node.op in ("reshape", "cast"):
        (node,) = node.inputs
    if node.op == "constant":
        return splitter.counts(node)
    return node.op == "iota" and node.shape[node.attr("axis")] == extent


def _flat(places: Sequence[Node], extents: Shape) -> Node:
    """((i0 · d1 + i1) · d2 + i2) .., for places below their extents."""
    found = places[0]
    for place, extent in zip(places[1:], extents[1:], strict=True):
        found = found * extent + place
    return found


def _distinct_of_part(splitter: Splitter, distinct: Extent, shape: Shape, axis: int) -> Any:
    """Of how many rows in a part no two have one place, where of `distinct` rows none have: those
    of the axes from some one on; None where it is not so."""
    for first in range(len(shape) + 1):
        if math.prod(shape[first:]) == distinct:
            local = splitter.local_shape(shape, axis)
            return math.prod(local[first:])
    return None
