"""Hoists products out of loops over rows: one product for all rows before the loop.

    repeat: f(x[i] · w, …)  →  p = x · w; repeat: f(p[i], …)

A recurrent step multiplies its input row and its state by weights. The product of the state depends
on the iteration before; that of the input does not, and as one product for all rows it reads the
weights once.
"""

from __future__ import annotations

from aotc.aot.ir import build
from aotc.aot.ir.control import (
    Operand,
    given_of,
    on_operands,
    operand,
    with_counted_bodies,
    with_graphs,
)
from aotc.aot.ir.graph import Graph, Node, make, walk
from aotc.aot.ir.size import proves_at_most, typical

MOST_WIDER = 4  # times the elements of a row, that a row of the product may have
MOST_ROWS = 16  # of a turn; with more of them there is work enough for each read of the weights


def multiply_rows_before(graph: Graph) -> tuple[Graph, int]:
    """`graph` with such products before their loops, and how many there are, in bodies too."""
    graph, count = with_counted_bodies(graph, multiply_rows_before)
    known: dict[tuple[object, ...], tuple[Graph, list[Operand]]] = {}

    def change(node: Node, made: Node) -> Node:
        if node.op != "control" or node.attr("form") != "repeat":
            return made
        key = made.attr("bodies"), made.inputs  # the results of a loop share them
        if key not in known:
            known[key] = _divided(made)
        body, more = known[key]
        return with_graphs(made, [body], more) if more else made

    if any(node.op == "control" for node in graph.nodes()):
        graph = graph.rebuilt(change)
    return graph, count + sum(len(more) for _, more in known.values())


def _divided(loop: Node) -> tuple[Graph, list[Operand]]:
    """The body without the products of rows, and these as operands."""
    graph: Graph = loop.attr("bodies")[0].graph
    given = dict(zip(graph.inputs, given_of(loop), strict=False))
    more: list[Operand] = []
    replaced: dict[Node, Node] = {}
    for node in graph.nodes():
        taken = _row_of(node, given)
        if taken is None or not _is_worth_it(node):
            continue
        data, index = taken.inputs
        rows, depth = node.inputs[0].shape
        count = data.shape[0]
        whole = build.reshape(given[data], (count * rows, depth))
        product = make("matmul", (whole, on_operands(node.inputs[1], given)))
        row = operand(f"product_{len(more)}", build.reshape(product, (count, *node.shape)))
        more.append(row)
        replaced[node] = build.reshape(make("take", (row.inside, index), {"axis": 0}), node.shape)
    return (graph.replaced(replaced) if replaced else graph), more


def _row_of(node: Node, given: dict[Node, Node]) -> Node | None:
    """The look-up of a row of something given, if the node is a product of it by what is given."""
    if node.op != "matmul" or node.type.rank != 2:
        return None
    left, right = node.inputs
    leaves = [each for each in walk((right,)) if not each.inputs]
    is_given = all(each in given or each.op == "scalar" for each in leaves)
    while left.op == "reshape":
        (left,) = left.inputs
    is_row = left.op == "take" and left.attr("axis") == 0 and left.inputs[0] in given
    return left if is_given and is_row and left.inputs[1].type.numel == 1 else None


def _is_worth_it(node: Node) -> bool:
    """Whether the product of all rows is not much larger than they are, and a turn has few, for
    which its weights would be read."""
    (rows, depth), columns = node.inputs[0].shape, node.shape[1]
    return typical(rows) <= MOST_ROWS and proves_at_most(columns, MOST_WIDER * depth)
