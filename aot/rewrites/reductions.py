"""Reductions over dims that are not adjacent (CPU): the last ones first, then the rest.

Statistics of channels reduce the dims before and after the channels: `x.sum((0, 2, 3))`. A row
kernel vectorises along the reduced elements if they are contiguous in runs of whole vectors; other
runs it would gather one by one. As a reduction of its own a run is read in order, and the rest of
the reduction has lanes along the channels.
"""

from __future__ import annotations

from math import prod

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.reductions import REDUCTIONS
from aotc.aot.ir.size import is_static
from aotc.aot.ir.types import SHORT_FLOATS

SHORTEST_RUN = 16  # elements of the last dims
VECTOR = 16  # elements of the widest vector


def part_reductions(graph: Graph) -> tuple[Graph, int]:
    """Σ over o, i of x[o, k, i] → Σ over o of Σ over i of x[o, k, i]; how many."""
    parted: dict[Node, Node] = {}

    def change(node: Node, new: Node) -> Node:
        last = _last_axes(new)
        if not last:
            return new
        parted[node] = new
        return _parted(new, last)

    found = graph.rebuilt(change)
    return (found, len(parted)) if parted else (graph, 0)


def _last_axes(node: Node) -> tuple[int, ...]:
    """The reduced axes that are the last ones, where they are to be reduced first; else none."""
    row = REDUCTIONS.get(node.op)
    if row is None or row.is_search or row.result:
        return ()
    (data,) = node.inputs
    if not is_static(data.shape) or not _lies_in_order(data):
        return ()
    axes, extents = set(node.attr("axes")), data.shape
    first = len(extents)
    while first and (first - 1 in axes or extents[first - 1] == 1):
        first -= 1
    run, outer = prod(extents[first:]), [axis for axis in sorted(axes) if axis < first]
    is_apart = prod(extents[axis] for axis in outer) > 1
    if not is_apart or run < SHORTEST_RUN or run % VECTOR == 0:
        return ()
    return tuple(axis for axis in sorted(axes) if axis >= first)


def _parted(node: Node, last: tuple[int, ...]) -> Node:
    (data,) = node.inputs
    is_short = node.dtype in SHORT_FLOATS  # what is summed on is not rounded in between
    data = build.cast(data, "f32") if is_short else data
    rest = tuple(axis for axis in node.attr("axes") if axis not in last)
    whole = build.reduce(node.op, build.reduce(node.op, data, last), rest)
    return build.cast(whole, node.dtype)


def _lies_in_order(node: Node) -> bool:
    """Whether neighbours along the last dim are neighbours in the memory behind it."""
    while node.kind == "pointwise":
        whole = [operand for operand in node.inputs if operand.shape == node.shape]
        if not whole:
            return True
        node = whole[0]
    return node.op != "permute" or node.attr("dims")[-1] == node.type.rank - 1
