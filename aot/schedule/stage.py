"""Copies that a convolution reads instead of its input, where that lies badly for it.

An implicit GEMM reads windows of its input in runs of channels. Where channels are few or not the
contiguous axis, it would gather element by element and check bounds for each. Then the input is
copied once, padding included and channels last, so that a whole row of a window is one run.
"""

from __future__ import annotations

from aotc.aot.ir.build import STORED_TAG
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.size import Extent
from aotc.aot.schedule.domain import contiguous_run, matmul_domain
from aotc.aot.schedule.grow import MATMULS

_MOVES = frozenset({"view", "pad", "window"})


def staged(graph: Graph) -> tuple[Graph, frozenset[Node]]:
    """The graph with such copies put in, and the nodes that are the copies."""
    copies: dict[Node, Node] = {}
    replaced: dict[Node, Node] = {}
    for node in graph.nodes():
        inputs = tuple(replaced[operand] for operand in node.inputs)
        made = node if inputs == node.inputs else make(node.op, inputs, node.attrs, node.source)
        if made.kind in MATMULS:
            made = _with_copy(made, copies)
        replaced[node] = made
    outputs = tuple(replaced[node] for node in graph.outputs)
    found = graph.with_outputs(outputs)
    asked = (node for node in found.nodes() if node.op == "copy" and node.attr("tag") == STORED_TAG)
    return found, frozenset([*copies.values(), *asked])


def _with_copy(anchor: Node, copies: dict[Node, Node]) -> Node:
    """The matmul on windows of a copy of their input, if it then reads longer runs."""
    path = [anchor.inputs[0]]
    while path[-1].kind == "view" and path[-1].op in ("reshape", "permute"):
        path.append(path[-1].inputs[0])
    if path[-1].op != "window" or _run(anchor, None) > 0:
        return anchor
    source = path[-1].inputs[0]
    axes = path[-1].attr("axes")
    first = [axis for axis in range(len(source.shape)) if axis not in axes]
    order = (*first[:1], *axes, *first[1:])
    copy = make("permute", (source,), {"dims": order})
    back = tuple(order.index(axis) for axis in range(len(order)))
    moved = make("permute", (copy,), {"dims": back})
    for node in reversed(path):
        moved = make(node.op, (moved,), node.attrs, node.source)
    changed = make(anchor.op, (moved, *anchor.inputs[1:]), anchor.attrs, anchor.source)
    if _run(changed, copy) == 0:
        return anchor
    copies[source] = copy
    return changed


def _run(anchor: Node, copy: Node | None) -> Extent:
    """Elements of k in one run, if the matmul reads the copy, or what is behind its views."""

    def is_boundary(node: Node) -> bool:
        return node is copy or (copy is None and node.kind not in _MOVES)

    return contiguous_run(anchor, matmul_domain(anchor), is_boundary)
