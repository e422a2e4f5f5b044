"""How each operation goes on with operands that are split; one function a family of ops.

A rule is given a node of the model and its operands as a rank has them, and answers what the rank
has of the result, or None: then every operand is gathered first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.sharding.patterns import is_of_rows_written, sliced_before, written_rows
from aotc.aot.sharding.splitter import Sharded, Splitter

Rule = Callable[[Splitter, Node, Sequence[Sharded]], "Sharded | None"]
COMBINED = ("sum", "max", "min", "prod", "any", "all")  # of parts by the same reduction
STARTING = ("matmul", "take")  # ops that split whole operands


def sharded(splitter: Splitter, node: Node) -> Sharded:
    """What a rank has of a node whose operands are known."""
    written = written_rows(splitter, node) if is_of_rows_written(node) else None
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
    before = sliced_before(splitter, node, node.inputs[0])
    return None if before is None else splitter.value(before)


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
