"""Values that are compared with elements chosen among them: each is computed once.

`x == x.amax()` holds where the largest element lies only if both sides are the same bits. Two
kernels that compute a value may round it differently: whether a product and a sum become one fused
multiply-add depends on what else reads the product. Such a value is stored, and both sides read it.
"""

from __future__ import annotations

from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.ops import OPS
from aotc.aot.schedule.trace import LEAVES, STORED

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def compared(graph: Graph) -> frozenset[Node]:
    """Computed floats that both sides of a comparison are chosen from, moved on one side."""
    found: set[Node] = set()
    for node in graph.nodes():
        if node.op not in COMPARISONS or node.inputs[0].type.kind != "float":
            continue
        right = _sources(node.inputs[1])
        left = _sources(node.inputs[0]) if right else {}  # a literal has none
        common = left.keys() & right.keys()
        found.update(source for source in common if left[source] or right[source])
    return frozenset(source for source in found if source.type.numel)


def _sources(value: Node) -> dict[Node, bool]:
    """What the elements are chosen from, and whether at other places on the way there."""
    found: dict[Node, bool] = {}
    seen: set[tuple[Node, bool]] = set()
    waiting = [(value, False)]
    while waiting:
        node, is_moved = entry = waiting.pop()
        if entry in seen or node.type.kind != "float" or node.op in (*STORED, *LEAVES):
            continue
        seen.add(entry)
        if OPS[node.op].is_choice or node.op == "cast":
            moves = is_moved or node.kind != "pointwise"
            waiting += [(operand, moves) for operand in node.inputs]
        else:
            found[node] = found.get(node, False) or is_moved
    return found
