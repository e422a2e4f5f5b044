"""Cheap branches of `cond`: both are computed, and `where` selects between the results.

    cond(c, f, g)(x) → where(c, f(x), g(x))

The result fuses with the ops around it, and no one waits for the condition, which on a device would
first have to be copied to the host. A branch is left alone if it reads much data, or if it checks
its data.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotc.aot.ir import build
from aotc.aot.ir.control import on_operands, with_counted_bodies
from aotc.aot.ir.graph import Graph, Node, walk
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.size import typical

KINDS = frozenset({"input", "pointwise", "view", "scalar", "extent", "iota"})
# Of both branches, by the costs of ops: together, and where it is more for an element of a result.
FEW_OPERATIONS, MOST_OPERATIONS = 1 << 16, 12
MOST_BYTES = 1 << 20  # that are read whatever the branches' shares of them are
MOST_SHARE = 1.25  # of what the larger branch reads, more than which both may not read


def choose_both(graph: Graph) -> tuple[Graph, int]:
    """`graph` with cheap branches as choices, and how many there are, in bodies too."""
    graph, count = with_counted_bodies(graph, choose_both)
    wanted = {node for node in graph.nodes() if node.op == "control" and _is_cheap(node)}

    def change(node: Node, made: Node) -> Node:
        return _chosen(made) if node in wanted else made

    calls = {node.result(0) for node in wanted}
    return (graph.rebuilt(change) if wanted else graph), count + len(calls)


def _is_cheap(node: Node) -> bool:
    if node.attr("form") != "branch":
        return False
    graphs = [body.graph for body in node.attr("bodies")]
    nodes = [list(walk(graph.outputs)) for graph in graphs]
    if any(each.kind not in KINDS or OPS[each.op].is_opaque for row in nodes for each in row):
        return False
    elements = sum(typical(each.type.numel) for each in graphs[0].outputs)
    if sum(map(_operations, nodes)) > max(FEW_OPERATIONS, MOST_OPERATIONS * elements):
        return False
    read = [{each for each in row if each.op == "input"} for row in nodes]
    both, larger = _bytes(read[0] | read[1]), max(map(_bytes, read))
    return both <= max(MOST_BYTES, MOST_SHARE * larger)


def _operations(nodes: Sequence[Node]) -> float:
    return sum(OPS[each.op].cost * typical(each.type.numel) for each in nodes)


def _bytes(nodes: set[Node]) -> int:
    return sum(typical(each.type.nbytes) for each in nodes)


def _chosen(node: Node) -> Node:
    """A result of both branches."""
    condition, *operands = node.inputs
    pair = []
    for body in node.attr("bodies"):
        values = dict(zip(body.graph.inputs, operands, strict=True))
        pair.append(on_operands(body.graph.outputs[node.attr("result")], values))
    flag = build.expand(build.reshape(condition, [1] * node.type.rank), node.shape)
    return build.where(flag, *pair)
