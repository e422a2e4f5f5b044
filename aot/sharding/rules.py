"""How each operation goes on with operands that are split; one function a family of ops.

A rule is given a node of the model and its operands as a rank has them, and answers what the rank
has of the result, or None: then every operand is gathered first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.size import Extent, Shape
from aotc.aot.sharding.splitter import Sharded, Splitter

Rule = Callable[[Splitter, Node, Sequence[Sharded]], "Sharded | None"]
COMBINED = ("sum", "max", "min", "prod", "any", "all")  # of parts by the same reduction
STARTING = ("matmul", "take")  # ops that split whole operands


def sharded(splitter: Splitter, node: Node) -> Sharded:
    """What a rank has of a node whose operands are known."""
    written = _written_rows(splitter, node) if _is_of_rows_written(node) else None
    if written is not None:
        return written
    operands = [splitter.value(each) for each in node.inputs]
    is_split = any(each.axis is not None for each in operands)
    rule = RULES.get(node.op) or KIND_RULES.get(node.kind)
    if rule is not None and (is_split or node.op in STARTING) and not splitter.is_constant(node):
        found = rule(splitter, node, operands)
        if found is not None:
            return found
    return Sharded(node.on(tuple(splitter.whole(each) for each in operands)))


def _made(node: Node, operands: Sequence[Node], axis: int | None, **changed: Any) -> Sharded:
    made = make(node.op, tuple(operands), {**dict(node.attrs), **changed}, node.source)
    return Sharded(made, axis)


def _axis_of(operands: Sequence[Sharded]) -> int | None:
    """The one axis along which some are split; None where there are several."""
    found = {each.axis for each in operands if each.axis is not None}
    return found.pop() if len(found) == 1 else None


def _alike(splitter: Splitter, operands: Sequence[Sharded], axis: int) -> list[Node] | None:
    """The operands, those that are whole taken apart along an axis unless they have 1 there."""
    found = []
    for each in operands:
        shape = each.node.shape
        if each.axis == axis or not shape or (each.axis is None and shape[axis] == 1):
            found.append(each.node)
        elif each.axis is None and splitter.divides(shape, axis):
            found.append(splitter.part(each.node, axis))
        else:
            return None
    return found


def _pointwise(splitter: Splitter, node: Node, operands: Sequence[Sharded]) -> Sharded | None:
    axis = _axis_of(operands)
    if axis is None or node.op == "copy":
        return None
    alike = _alike(splitter, operands, axis)
    return None if alike is None else _made(node, alike, axis)


def _reduce(splitter: Splitter, node: Node, operands: Sequence[Sharded]) -> Sharded | None:
    (data,) = operands
    if data.axis not in node.attr("axes"):
        return _made(node, (data.node,), data.axis)
    if node.op not in COMBINED:
        return None
    part = _made(node, (data.node,), None)
    return Sharded(splitter.combined(node.op, part.node))


# -- movement --------------------------------------------------------------------------------------


def _reshape(splitter: Splitter, node: Node, operands: Sequence[Sharded]) -> Sharded | None:
    (data,) = operands
    assert data.axis is not None
    whole = node.inputs[0].shape
    axis = splitter.after_reshape(whole, node.shape, data.axis)
    if axis is None:
        return None
    return Sharded(build.reshape(data.node, splitter.local_shape(node.shape, axis)), axis)


def _permute(splitter: Splitter, node: Node, operands: Sequence[Sharded]) -> Sharded | None:
    (data,) = operands
    return _made(node, (data.node,), node.attr("dims").index(data.axis))


def _expand(splitter: Splitter, node: Node, operands: Sequence[Sharded]) -> Sharded | None:
    (data,) = operands
    assert data.axis is not None
    shape = splitter.local_shape(node.shape, data.axis)
    return Sharded(build.expand(data.node, shape), data.axis)


def _along_others(*names: str) -> Rule:
    """Of one operand, where none of the axes that these attributes name is split."""

    def rule(splitter: Splitter, node: Node, operands: Sequence[Sharded]) -> Sharded | None:
        (data,) = operands
        for name in names:
            value = node.attr(name)
            if data.axis in (value if isinstance(value, tuple) else (value,)):
                return None
        return _made(node, (data.node,), data.axis)

    return rule


def _slice(splitter: Splitter, node: Node, operands: Sequence[Sharded]) -> Sharded | None:
    (data,) = operands
    if data.axis is None or data.axis != node.attr("axis"):
        return _made(node, (data.node,), data.axis)
    if not splitter.divides(node.shape, data.axis):
        return None
    before = _sliced_before(splitter, node, node.inputs[0])
    return None if before is None else splitter.value(before)


def _sliced_before(splitter: Splitter, node: Node, data: Node) -> Node | None:
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
        before = _sliced_before(splitter, node, data.inputs[0])
        return None if before is None else build.reshape(before, (*data.shape[:-1], node.shape[-1]))
    if data.op == "matmul" and splitter.is_worthwhile(data.inputs[1]):
        right = _sliced_before(splitter, node, data.inputs[1])
        return None if right is None else data.on((data.inputs[0], right))
    if data.kind == "pointwise" and data.op != "copy":
        parts = [
            each if not each.shape or each.shape[-1] == 1 else _sliced_before(splitter, node, each)
            for each in data.inputs
        ]
        return None if None in parts else data.on(tuple(parts))  # type: ignore[arg-type]
    return None


def _pad(splitter: Splitter, node: Node, operands: Sequence[Sharded]) -> Sharded | None:
    (data,) = operands
    assert data.axis is not None
    if node.attr("low")[data.axis] or node.attr("high")[data.axis]:
        return None
    return _made(node, (data.node,), data.axis)


def _concat(splitter: Splitter, node: Node, operands: Sequence[Sharded]) -> Sharded | None:
    axis = _axis_of(operands)
    if axis is None or axis == node.attr("axis"):
        return None
    parts = [
        each if each.axis == axis or not splitter.divides(each.node.shape, axis)
        else Sharded(splitter.part(each.node, axis), axis)
        for each in operands
    ]  # fmt: skip
    if any(each.axis != axis for each in parts):
        return None
    return _made(node, [each.node for each in parts], axis)


# -- rows at places --------------------------------------------------------------------------------


def _take(splitter: Splitter, node: Node, operands: Sequence[Sharded]) -> Sharded | None:
    data, indices = operands
    along, more = node.attr("axis"), indices.node.type.rank - 1
    if data.axis is not None and indices.axis is None and data.axis != along:
        axis = data.axis if data.axis < along else data.axis + more
        return _made(node, (data.node, indices.node), axis)
    if data.axis is None and indices.axis is not None:
        return _made(node, (data.node, indices.node), along + indices.axis)
    is_table = along == 0 and data.axis is indices.axis is None
    if not (is_table and splitter.is_worthwhile(data.node)):
        return None
    return _looked_up(splitter, data.node, indices.node)


def _looked_up(splitter: Splitter, table: Node, indices: Node) -> Sharded | None:
    """Rows of a table of which each rank has some: zeros for those of others, added up."""
    if not splitter.divides(table.shape, 0) or table.type.kind != "float":
        return None
    rows = splitter.part(table, 0)
    count, rank = rows.shape[0], indices.type.rank
    first = build.reshape(splitter.first(count), (1,) * rank)  # type: ignore[arg-type]
    places = build.cast(indices, "i64") - first
    is_here = (places >= 0) & (places < count)
    found = make("take", (rows, build.where(is_here, places, 0)), {"axis": 0})
    inside = build.reshape(is_here, (*is_here.shape, *(1,) * (found.type.rank - rank)))
    return Sharded(splitter.all_reduce(build.where(inside, found, 0.0)))


def _gather(splitter: Splitter, node: Node, operands: Sequence[Sharded]) -> Sharded | None:
    axis = _axis_of(operands)
    if axis is None or axis == node.attr("axis"):
        return None
    shapes = [each.shape[axis] for each in node.inputs]
    alike = _alike(splitter, operands, axis) if shapes[0] == shapes[1] != 1 else None
    return None if alike is None else _made(node, alike, axis)


def _scatter_rows(splitter: Splitter, node: Node, operands: Sequence[Sharded]) -> Sharded | None:
    data, index, source = operands
    axis = _axis_of((data, source))
    if axis is None or axis == node.attr("axis") or index.axis not in (None, axis):
        return None
    is_state = data.axis is None and splitter.state_of(node.inputs[0]) is not None
    if is_state and splitter.divides(data.node.shape, axis):
        splitter.split_state(node.inputs[0], axis)
    alike = _alike(splitter, operands, axis)
    return None if alike is None else _made(node, alike, axis)


# A write of rows at explicit places along several dims, as torch's `index_put` of a cache is: rows
# of `[d0 · d1 · .., ..]` at ((i0 · d1 + i1) · d2 + i2 ..). Where one of the places is counted along
# an axis of the rows, each rank writes the rows of its part of that axis into its part of the dim.


def _is_of_rows_written(node: Node) -> bool:
    """Whether a node is a tensor of which rows of a flat view are written."""
    if node.op != "reshape" or node.inputs[0].op != "scatter_rows":
        return False
    data, index, source = node.inputs[0].inputs
    is_flat = data.op == source.op == "reshape" and data.inputs[0].shape == node.shape
    return is_flat and node.inputs[0].attr("axis") == 0 and index.type.rank == data.type.rank


def _written_rows(splitter: Splitter, node: Node) -> Sharded | None:
    written = node.inputs[0]
    data, index, source = written.inputs
    before, rows = data.inputs[0], source.inputs[0]
    merged = node.type.rank - data.type.rank + 1
    places = _places(index, node.shape[:merged])
    value = splitter.value(rows)
    axis = value.axis
    if places is None or axis is None or rows.shape != (*places[0].shape, *node.shape[merged:]):
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
    while flat.op in ("cast", "maximum", "minimum"):  # the last two keep what is outside away
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


# -- products --------------------------------------------------------------------------------------


def _matmul(splitter: Splitter, node: Node, operands: Sequence[Sharded]) -> Sharded | None:
    left, right = operands
    rank = node.type.rank
    rows, last = rank - 2, rank - 1
    if left.axis == last or right.axis == rows:
        return _sum_of_parts(splitter, node, left, right)
    axes = {each.axis for each in operands if each.axis is not None}
    if axes and axes <= set(range(rows)):
        axis = _axis_of(operands)
        alike = None if axis is None else _alike(splitter, operands, axis)
        return None if alike is None else _made(node, alike, axis)
    if axes == {rows} and right.axis is None:
        return _made(node, (left.node, right.node), rows)
    if axes == {last} and left.axis is None:
        return _made(node, (left.node, right.node), last)
    is_weight = not axes and splitter.is_worthwhile(right.node)
    if is_weight and splitter.divides(right.node.shape, last):
        return _made(node, (left.node, splitter.part(right.node, last)), last)
    return None


def _sum_of_parts(splitter: Splitter, node: Node, left: Sharded, right: Sharded) -> Sharded | None:
    """Each rank has a part of the inner dimension."""
    rank = node.type.rank
    if left.axis not in (None, rank - 1) or right.axis not in (None, rank - 2):
        return None
    rows, columns = left.node, right.node
    if left.axis is None:
        rows = splitter.part(rows, rank - 1)
    if right.axis is None:
        columns = splitter.part(columns, rank - 2)
    return Sharded(splitter.all_reduce(_made(node, (rows, columns), None).node))


def _attention(splitter: Splitter, node: Node, operands: Sequence[Sharded]) -> Sharded | None:
    axis = _axis_of(operands)
    if axis not in (0, 1):
        return None
    alike = _alike(splitter, operands, axis)
    return None if alike is None else _made(node, alike, axis)


RULES: dict[str, Rule] = {
    "reshape": _reshape,
    "permute": _permute,
    "expand": _expand,
    "slice": _slice,
    "flip": _along_others("axes"),
    "window": _along_others("axes"),
    "scan": _along_others("axis"),
    "pad": _pad,
    "concat": _concat,
    "take": _take,
    "gather": _gather,
    "scatter_rows": _scatter_rows,
    "matmul": _matmul,
    "attention": _attention,
}
KIND_RULES: dict[str, Rule] = {"pointwise": _pointwise, "reduce": _reduce}
