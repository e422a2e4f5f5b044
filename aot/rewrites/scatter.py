"""Sums at few places, on a GPU: each place's sum over all rows, as a reduction of its own.

Programs of the kernel for `scatter_rows` have a share of the places each and go over the rows of
their share in turn. With few places there are few programs, with many rows each. Comparing every
row with every place is more work, but all programs do it at once.
"""

from __future__ import annotations

from math import ceil, prod

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, made_for, make
from aotc.aot.ir.size import is_static, typical

TURN_NS = 3000.0  # a row's read, sum and write, on an H200
COMPARED_NS = 0.001  # a comparison, a choice and a sum there
PROGRAMS = 2048  # that a GPU runs at once
MOST_COMPARED = 1 << 30  # comparisons of one kernel, whose numbers have 32 bits
INNER_BLOCK = 64  # elements within an index that a program has


def sum_few_places(graph: Graph) -> tuple[Graph, int]:
    """`graph` with sums over rows in place of rows added at few places, and how many there are."""
    wanted = {node for node in graph.nodes() if node.op == "scatter_rows" and _is_better(node)}

    def expand(node: Node, made: Node) -> Node:
        if node not in wanted:
            return made
        with made_for(node.source):
            return _sums(made)

    return graph.rebuilt(expand), len(wanted)


def _is_better(node: Node) -> bool:
    if not node.attr("adds") or not is_static((*node.shape, *node.inputs[2].shape)):
        return False
    axis = node.attr("axis")
    outer, inner = (typical(prod(ends)) for ends in (node.shape[:axis], node.shape[axis + 1 :]))
    rows, places = typical(node.inputs[2].shape[axis]), typical(node.shape[axis])
    programs = min(places, max(1, PROGRAMS // (outer * ceil(inner / INNER_BLOCK))))
    in_turn_ns = rows / node.attr("distinct") / programs * TURN_NS
    compared_ns = outer * places * inner * rows * COMPARED_NS
    return bool(compared_ns < in_turn_ns)


def _sums(node: Node) -> Node:
    """data + Σ over rows of source where the row's place is the element's"""
    data, index, source = node.inputs
    axis, rows = node.attr("axis"), typical(source.shape[node.attr("axis")])
    most = max(1, MOST_COMPARED * rows // typical(source.type.numel * data.shape[axis]))
    for start in range(0, rows, most):
        end = min(start + most, rows)
        part = build.slice_axis(source, axis, start, end)
        data = make("add", (data, _sum(node, build.slice_axis(index, axis, start, end), part)))
    return data


def _sum(node: Node, index: Node, source: Node) -> Node:
    """The sums over some of the rows."""
    data, axis = node.inputs[0], node.attr("axis")
    rows = build.reshape(source, (*source.shape[:axis], 1, *source.shape[axis:]))
    places = build.reshape(index, (*index.shape[:axis], 1, *index.shape[axis:]))
    own = build.counter(rows.type.rank, axis, data.shape[axis])
    is_own = build.equal(build.cast(places, "i64"), own)
    chosen = build.where(is_own, rows, build.cast(build.scalar(0, "i32"), data.dtype))
    return build.drop(build.reduce("sum", chosen, (axis + 1,)), (axis + 1,))
