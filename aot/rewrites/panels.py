"""Packs, joins and transposes quantised weights before they are widened, so that stored bits stay
few.

A quantised weight is stored in few bits and widened where it is read. If its widened numbers were
packed into panels, constant folding would store these. So the stored codes are reordered instead:
pack(f(a, b)) = f(pack(a), pack(b)), and repeated numbers, such as scales of groups, stay repeated.
Weights of products that share an input are joined in the same way: join(f(a, b), f(c, d)) =
f(join(a, c), join(b, d)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, walk
from aotc.aot.ir.infer import PACK_N
from aotc.aot.ir.size import Extent, fixed, typical
from aotc.aot.ir.types import DTYPES

CONVERSIONS = frozenset({"cast", "bitcast"})


def is_widened(node: Node) -> bool:
    """Whether a constant expression converts constants that take fewer bytes than it does."""
    order = list(walk((node,)))
    stored_bytes = sum(typical(each.type.nbytes) for each in order if each.op == "constant")
    widens = any(
        each.op in CONVERSIONS
        and DTYPES[each.inputs[0].dtype].itemsize_bytes < DTYPES[node.dtype].itemsize_bytes
        for each in order
    )
    return widens and 0 < stored_bytes < typical(node.type.nbytes)


def transposed(node: Node) -> Node:
    """A matrix with its axes exchanged, below arithmetic on its elements: f(a, b)ᵀ = f(aᵀ, bᵀ)."""
    if node.type.rank == 0:
        return node
    if node.kind == "pointwise":
        return node.on(tuple(map(transposed, node.inputs)))
    return build.transpose(node)


Join = Callable[[Sequence[Node], int], Node]


def joined(nodes: Sequence[Node], axis: int, join: Join) -> Node:
    """`join(nodes, axis)`, whose dim `axis` is the sum of theirs, joined below equal arithmetic."""
    first = nodes[0]
    alike = {(each.op, each.attrs if each.kind == "pointwise" else ()) for each in nodes}
    if len(alike) > 1 or not first.inputs:
        return join(nodes, axis)
    if first.kind == "pointwise":
        found = [_joined_operands(nodes, each, axis, join) for each in range(len(first.inputs))]
        operands = [each for each in found if each is not None]
        return first.on(tuple(operands)) if len(operands) == len(found) else join(nodes, axis)
    extent = sum(each.shape[axis] for each in nodes)
    shape = (*first.shape[:axis], extent, *first.shape[axis + 1 :])
    inner = [each.inputs[0] for each in nodes]
    if first.op == "permute" and len({each.attr("dims") for each in nodes}) == 1:
        dims = first.attr("dims")
        return build.permute(joined(inner, dims[axis], join), dims)
    if first.op == "reshape":
        places = {_axis_before(each, axis) for each in nodes}
        (place,) = places if len(places) == 1 else (None,)
        if place is not None and len({_others(each.shape, place) for each in inner}) == 1:
            return build.reshape(joined(inner, place, join), shape)
    return join(nodes, axis)


def _joined_operands(nodes: Sequence[Node], place: int, axis: int, join: Join) -> Node | None:
    """One operand of pointwise nodes, joined; None where they share none that fits all."""
    operands = [node.inputs[place] for node in nodes]
    is_same = len(set(operands)) == 1
    if operands[0].type.rank == 0:
        return operands[0] if is_same else None
    if is_same and operands[0].shape[axis] == 1:
        return operands[0]
    whole = [
        build.expand(each, (*each.shape[:axis], node.shape[axis], *each.shape[axis + 1 :]))
        for each, node in zip(operands, nodes, strict=True)
    ]
    return joined(whole, axis, join)


def panels_of(weight: Node) -> Node:
    """A matrix [K, N] as panels [ceil(N / PACK_N), K, PACK_N], zeros in columns that it lacks."""
    inner, columns = weight.shape
    packed = _packed(weight, 1, {})
    return build.expand(packed, (math.ceil(columns / PACK_N), inner, PACK_N))


def _packed(node: Node, axis: int, known: dict[tuple[Node, int], Node]) -> Node:
    """`node` as [panels, *its other dims, PACK_N columns], where `axis` is that of the columns.

    A node of one column has one panel of one column, and a literal stays as it is.
    """
    if node.type.rank == 0:
        return node
    if (node, axis) not in known:
        known[node, axis] = _moved(node, axis, known)
    return known[node, axis]


def _moved(node: Node, axis: int, known: dict[tuple[Node, int], Node]) -> Node:
    if node.kind == "pointwise":
        return node.on(tuple(_packed(each, axis, known) for each in node.inputs))
    if node.op == "permute":
        dims = node.attr("dims")
        inner = _packed(node.inputs[0], dims[axis], known)
        others = [each for each in range(node.type.rank) if each != dims[axis]]
        places = [others.index(dims[each]) + 1 for each in range(node.type.rank) if each != axis]
        return build.permute(inner, (0, *places, inner.type.rank - 1))
    if node.op == "expand":
        data = node.inputs[0]
        inner = _packed(build.align(data, node.type.rank), axis, known)
        ends = _ends(node.shape[axis])
        return build.expand(inner, (ends[0], *_others(node.shape, axis), ends[1]))
    if node.op == "reshape":
        found = _axis_before(node, axis)
        if found is not None:
            inner = _packed(node.inputs[0], found, known)
            shape = (inner.shape[0], *_others(node.shape, axis), inner.shape[-1])
            return build.reshape(inner, shape)
    if node.op == "concat" and node.attr("axis") != axis:
        place = node.attr("axis") + (1 if node.attr("axis") < axis else 0)
        return build.concat([_packed(each, axis, known) for each in node.inputs], place)
    return _leaf(node, axis)


def _axis_before(node: Node, axis: int) -> int | None:
    """The operand's dim that a reshape leaves as the dim `axis` of its result."""
    data = node.inputs[0]
    if not data.type.rank:
        return None
    before = math.prod(node.shape[:axis])
    for place, extent in enumerate(data.shape):
        if extent == node.shape[axis] and math.prod(data.shape[:place]) == before:
            return place
    return None


def _leaf(node: Node, axis: int) -> Node:
    rank, columns = node.type.rank, node.shape[axis]
    ends = _ends(columns)
    last = build.move_axis(node, axis, rank - 1)
    missing = ends[0] * ends[1] - columns
    padded = build.pad(last, (0,) * rank, (*[0] * (rank - 1), missing), 0)
    split = build.reshape(padded, (*padded.shape[:-1], *ends))
    return build.move_axis(split, rank - 1, 0)


def _ends(columns: Extent) -> tuple[int, int]:
    """How many panels columns have, and how many columns a panel."""
    return (1, 1) if columns == 1 else (math.ceil(fixed(columns) / PACK_N), PACK_N)


def _others(shape: Sequence[Extent], axis: int) -> tuple[Extent, ...]:
    return tuple(extent for each, extent in enumerate(shape) if each != axis)
