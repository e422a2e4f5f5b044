"""Gradients of q, k and v that are only read beside each other are written beside each other.

Where one linear makes all three, its gradients read `concat(dq, dk, dv)`: one product, whose rows
are then plain memory.
"""

from __future__ import annotations

from aotc.aot.ir.graph import Graph, Node, made_for
from aotc.aot.ir.own_attention import joined
from aotc.aot.rewrites.replace import replace_nodes


def join_gradients(graph: Graph) -> tuple[Graph, int]:
    """`graph` with such calls giving one result, and how many there are."""
    users = graph.users()
    replaced: dict[Node, Node] = {}
    for node in graph.nodes():
        if node.op != "concat" or node.attr("axis") != node.type.rank - 1:
            continue
        is_read_elsewhere = any(
            users[part] != (node,) or part in graph.outputs for part in node.inputs
        )
        if not is_read_elsewhere:
            with made_for(node.source):
                found = joined(node.inputs)
            if found is not None and found.type == node.type:
                replaced[node] = found
    return graph.with_outputs(replace_nodes(graph.outputs, replaced)), len(replaced)
