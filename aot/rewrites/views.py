"""Views: chains of reshape, permute, slice and expand merged; broadcasts left implicit."""

from __future__ import annotations

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.infer import broadcast_shape
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.reductions import REDUCTIONS
from aotc.aot.ir.rules import Rule, rule_for
from aotc.aot.ir.size import Extent, Shape

POINTWISE = tuple(op.name for op in OPS.values() if op.kind == "pointwise")
_RELAYING = frozenset({"reshape", "expand"})  # views through which one element stays one element


def _same(root: Node) -> Node | None:
    """A view that changes nothing → its operand."""
    (data,) = root.inputs
    moves = root.op == "permute" and root.attr("dims") != tuple(range(data.type.rank))
    return data if root.type == data.type and not moves else None


def _reshape_reshape(root: Node) -> Node | None:
    """reshape(reshape(x, s), t) → reshape(x, t)"""
    (data,) = root.inputs
    return build.reshape(data.inputs[0], root.shape) if data.op == "reshape" else None


def _permute_permute(root: Node) -> Node | None:
    """permute(permute(x, p), q) → permute(x, p ∘ q)"""
    (data,) = root.inputs
    if data.op != "permute":
        return None
    inner = data.attr("dims")
    return build.permute(data.inputs[0], [inner[dim] for dim in root.attr("dims")])


def _permute_ones(root: Node) -> Node | None:
    """permute(x, p) → reshape(x) when only dims of 1 move"""
    long = [dim for dim in root.attr("dims") if root.inputs[0].shape[dim] != 1]
    return build.reshape(root.inputs[0], root.shape) if long == sorted(long) else None


def _permute_broadcast(root: Node) -> Node | None:
    """permute(op(x, y), p) → op(x', y') where of each operand only dims of 1 move"""
    (data,) = root.inputs
    if data.kind != "pointwise":
        return None
    found = []
    for operand in data.inputs:
        if operand.type.rank:
            shape = tuple(operand.shape[dim] for dim in root.attr("dims"))
            long = [dim for dim in root.attr("dims") if operand.shape[dim] != 1]
            if long != sorted(long):
                return None
            operand = build.reshape(operand, shape)
        found.append(operand)
    return make(data.op, tuple(found), data.attrs)


def _expand_expand(root: Node) -> Node | None:
    """expand(expand(x, s), t) → expand(x, t)"""
    (data,) = root.inputs
    return build.expand(data.inputs[0], root.shape) if data.op == "expand" else None


def _flips_of_scan(root: Node) -> Node | None:
    """flip(scan(flip(x))) along the scan's axis → scan(x) the other way round"""
    (scan,) = root.inputs
    if scan.op != "scan" or scan.attr("kind").endswith("_place"):
        return None
    (rows,) = scan.inputs
    axes = (scan.attr("axis"),)
    if rows.op != "flip" or not rows.attr("axes") == root.attr("axes") == axes:
        return None
    reverse = {**dict(scan.attrs), "is_reversed": not scan.attr("is_reversed")}
    return make("scan", rows.inputs, reverse)


def _narrowest(operand: Node) -> Node:
    """The operand without views that only repeat it, as far as ranks stay 0 or the same."""
    source = operand
    while source.op in _RELAYING and source.inputs[0].type.numel == 1:
        source = source.inputs[0]
    if source.type.rank == 0:
        return source
    return operand.inputs[0] if operand.op == "expand" else operand


def _gives(shapes: tuple[Shape, ...], wanted: Shape) -> bool:
    return broadcast_shape(shapes) == wanted


def _one_narrow_operand(root: Node) -> Node | None:
    """op(expand(x), y) → op(x, y) where y alone gives the shape, one operand at a time"""
    for place, operand in enumerate(root.inputs):
        narrow = _narrowest(operand)
        operands = (*root.inputs[:place], narrow, *root.inputs[place + 1 :])
        shapes = tuple(item.shape for item in operands)
        if narrow is not operand and _gives(shapes, root.shape):
            return make(root.op, operands, root.attrs)
    return None


def _sink_expand(root: Node) -> Node | None:
    """op(expand(x), s) → expand(op(x, s)) where nothing else gives the shape"""
    operands = tuple(_narrowest(operand) for operand in root.inputs)
    if operands == root.inputs or not any(operand.type.rank for operand in operands):
        return None
    narrow = make(root.op, operands, root.attrs)
    return build.expand(narrow, root.shape) if narrow.shape != root.shape else None


def _slice_slice(root: Node) -> Node | None:
    """x[a:b:s][c:d:t] → x[a+c·s : … : s·t] along one axis"""
    (data,) = root.inputs
    if data.op != "slice" or data.attr("axis") != root.attr("axis"):
        return None
    inner_step = data.attr("step")
    start = data.attr("start") + root.attr("start") * inner_step
    count = root.shape[root.attr("axis")]
    step = inner_step * root.attr("step")
    stop = min(data.attr("stop"), start + count * step)
    return build.slice_axis(data.inputs[0], root.attr("axis"), start, stop, step)


def _slice_concat(root: Node) -> Node | None:
    """concat(x, y)[a:b] → a slice of the one part that holds it"""
    (data,) = root.inputs
    axis = root.attr("axis")
    if data.op != "concat" or data.attr("axis") != axis:
        return None
    start, stop, step = (root.attr(name) for name in ("start", "stop", "step"))
    for part in data.inputs:
        extent = part.shape[axis]
        if start >= 0 and stop <= extent and start < extent:
            return build.slice_axis(part, axis, start, stop, step)
        start, stop = start - extent, stop - extent
        if start < 0:
            return None
    return None


def _concat_concat(root: Node) -> Node | None:
    """concat(concat(x, y), z) → concat(x, y, z) along one axis"""
    axis = root.attr("axis")
    parts: list[Node] = []
    for part in root.inputs:
        is_inner = part.op == "concat" and part.attr("axis") == axis
        parts.extend(part.inputs if is_inner else (part,))
    return build.concat(parts, axis) if len(parts) != len(root.inputs) or len(parts) == 1 else None


def _concat_slices(root: Node) -> Node | None:
    """concat(x[a:b], x[b:c]) → x[a:c] along one axis"""
    axis, (first, *others) = root.attr("axis"), root.inputs
    stop: Extent = 0
    for part in (first, *others):
        if part.op != "slice" or part.attr("axis") != axis or part.attr("step") != 1:
            return None
        if part.inputs != first.inputs or (part is not first and stop != part.attr("start")):
            return None
        stop = part.attr("start") + part.shape[axis]
    return build.slice_axis(first.inputs[0], axis, first.attr("start"), stop)


def _reduce_ones(root: Node) -> Node | None:
    """max … over dims of 1 → x; sum → x + 0.0, which is 0.0 of -0.0"""
    (data,) = root.inputs
    if REDUCTIONS[root.op].result:
        return None
    axes = tuple(axis for axis in root.attr("axes") if data.shape[axis] != 1)
    if axes == root.attr("axes"):
        return None
    if axes:
        return build.reduce(root.op, data, axes)
    return data + 0.0 if root.op == "sum" and data.type.kind == "float" else data


def _reduce_nothing(root: Node) -> Node | None:
    """a reduction over no axes → x"""
    is_same = not (root.attr("axes") or REDUCTIONS[root.op].result)
    return root.inputs[0] if is_same else None


def _take_expand(root: Node) -> Node | None:
    """take(x, expand(i)) → expand(take(x, i))"""
    data, indices = root.inputs
    if indices.op != "expand":
        return None
    few = make("take", (data, indices.inputs[0]), root.attrs)
    return build.expand(few, root.shape)


RULES: tuple[Rule, ...] = (
    rule_for(("reshape", "expand", "slice", "pad", "permute"), "view-same", _same),
    rule_for(("reshape",), "reshape-reshape", _reshape_reshape),
    rule_for(("permute",), "permute-permute", _permute_permute),
    rule_for(("permute",), "permute-ones", _permute_ones),
    rule_for(("permute",), "permute-broadcast", _permute_broadcast),
    rule_for(("expand",), "expand-expand", _expand_expand),
    rule_for(("take",), "take-expand", _take_expand),
    rule_for(("slice",), "slice-slice", _slice_slice),
    rule_for(("slice",), "slice-concat", _slice_concat),
    rule_for(("concat",), "concat-concat", _concat_concat),
    rule_for(("concat",), "concat-slices", _concat_slices),
    rule_for(("flip",), "flips-of-scan", _flips_of_scan),
    rule_for(POINTWISE, "broadcast-operand", _one_narrow_operand),
    rule_for(POINTWISE, "expand-sink", _sink_expand),
    rule_for(REDUCTIONS, "reduce-ones", _reduce_ones),
    rule_for(REDUCTIONS, "reduce-nothing", _reduce_nothing),
)
