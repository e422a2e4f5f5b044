"""Matmuls of one input whose results meet element by element → one matmul of interleaved weights.

silu(x·v) * (x·w) reads the even and the odd columns of x·[v₀ w₀ v₁ w₁ …]: both factors of an
element then lie side by side in one tile, and a GPU's matmul kernel multiplies them at its end.
"""

from __future__ import annotations

from collections.abc import Mapping

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, made_for, make
from aotc.aot.ir.rules import Context
from aotc.aot.rewrites.replace import replace_nodes

Users = Mapping[Node, tuple[Node, ...]]


def pair_matmuls(graph: Graph) -> tuple[Graph, int]:
    """x·v and x·w that one operation combines → even and odd columns of one product."""
    users, context = graph.users(), Context()
    replaced: dict[Node, Node] = {}
    count = 0
    for node in graph.nodes():
        if node.kind != "pointwise" or len(node.inputs) != 2:
            continue
        sources = [_source(operand, users, context) for operand in node.inputs]
        left, right = sources
        if left is None or right is None or not _may_pair(left, right, graph, replaced):
            continue
        with made_for(left.source):
            replaced.update(_interleaved(left, right))
        count += 1
    return graph.with_outputs(replace_nodes(graph.outputs, replaced)), count


def _source(node: Node, users: Users, context: Context) -> Node | None:
    """The matmul behind operations on single elements that nothing else reads."""
    while len(users[node]) == 1:
        if node.op == "matmul":
            return node
        varying = [operand for operand in node.inputs if not context.is_constant(operand)]
        is_step = node.kind == "pointwise" or node.op == "reshape"
        if not is_step or len(varying) != 1 or varying[0].type.numel != node.type.numel:
            return None
        node = varying[0]
    return None


def _may_pair(left: Node, right: Node, graph: Graph, replaced: Mapping[Node, Node]) -> bool:
    context = Context()
    is_new = left is not right and left not in replaced and right not in replaced
    is_inner = left not in graph.outputs and right not in graph.outputs
    is_alike = left.inputs[0] is right.inputs[0] and left.shape == right.shape
    weights = (left.inputs[1], right.inputs[1])
    are_weights = all(weight.type.rank == 2 and context.is_constant(weight) for weight in weights)
    return is_new and is_inner and is_alike and are_weights


def _interleaved(left: Node, right: Node) -> dict[Node, Node]:
    inner, columns = left.inputs[1].shape
    parts = [
        build.reshape(build.transpose(matmul.inputs[1]), (columns, 1, inner))
        for matmul in (left, right)
    ]
    rows = build.reshape(build.concat(parts, 1), (2 * columns, inner))
    product = make("matmul", (left.inputs[0], build.transpose(rows)))
    axis = product.type.rank - 1
    return {
        matmul: build.slice_axis(product, axis, start, 2 * columns, 2)
        for start, matmul in enumerate((left, right))
    }
