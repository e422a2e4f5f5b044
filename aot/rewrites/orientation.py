"""Orientation: constant right operands of matmuls lie along k, as a GPU's kernels stream them."""

from __future__ import annotations

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.rules import Context
from aotc.aot.rewrites.replace import replace_nodes


def orient_weights(graph: Graph) -> tuple[Graph, int]:
    """x · w for a constant w → x · transpose(transpose(w)), whose inner part is then folded."""
    context = Context()
    replaced: dict[Node, Node] = {}
    for node in graph.nodes():
        if node.op != "matmul" or not context.is_constant(node.inputs[1]):
            continue
        left, right = node.inputs
        swapped = build.transpose(right)
        if right.op == "permute" and swapped is right.inputs[0]:
            continue
        dims = (*range(right.type.rank - 2), right.type.rank - 1, right.type.rank - 2)
        view = make("permute", (make("permute", (right,), {"dims": dims}),), {"dims": dims})
        replaced[node] = make("matmul", (left, view), (), node.source)
    return graph.with_outputs(replace_nodes(graph.outputs, replaced)), len(replaced)
