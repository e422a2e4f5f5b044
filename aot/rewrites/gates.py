"""Gates of recurrent steps beside each other: columns of a product that one element needs.

A step of an LSTM multiplies its state by a matrix of four parts, and each element of its result
needs one column of each part. With these columns beside each other the product's kernel has all
four, and computes the step.
"""

from __future__ import annotations

from collections.abc import Mapping

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.rules import Context

GATES = 4
CHANGED = frozenset({"pointwise", "view", "matmul"})  # kinds of what is read by parts
Users = Mapping[Node, tuple[Node, ...]]


def interleave_gates(graph: Graph) -> tuple[Graph, int]:
    """x·w + y, read by fourths of its columns → columns of x·w' + y', of which every fourth is one
    of such a part: w' and y' have them in that order."""
    users, order, outputs = graph.users(), _Order(Context()), frozenset(graph.outputs)
    replaced: dict[Node, Node] = {}
    has_product = False
    for node in graph.nodes():
        starts = _starts(node, users)
        if starts is None or node in outputs:
            continue
        moved = order.of(node)
        if moved is None:
            return graph, 0  # the others would compute what they share twice
        has_product |= any(each.op == "matmul" for each in order.own(node))
        axis, width = node.type.rank - 1, node.shape[-1]
        for start, part in starts.items():
            attrs = {"axis": axis, "start": start, "stop": width, "step": GATES}
            replaced[part] = make("slice", (moved,), attrs, part.source)
    return (graph.replaced(replaced), len(replaced)) if has_product else (graph, 0)


def _starts(node: Node, users: Users) -> dict[int, Node] | None:
    """The slices that are all readers of a node, by which fourth of its columns they are."""
    is_static = bool(node.shape) and isinstance(node.shape[-1], int)
    if node.kind not in CHANGED or len(users[node]) != GATES or not is_static:
        return None
    width, axis = node.shape[-1] // GATES, node.type.rank - 1
    found = {
        part.attr("start") // width: part
        for part in users[node]
        if width
        and part.op == "slice"
        and (part.attr("axis"), part.attr("step")) == (axis, 1)
        and part.attr("stop") - part.attr("start") == width
        and part.attr("start") % width == 0
    }
    return (
        found if sorted(found) == list(range(GATES)) and width * GATES == node.shape[-1] else None
    )


class _Order:
    """Values with their columns in the other order, each made once."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._found: dict[Node, Node | None] = {}

    def of(self, node: Node) -> Node | None:
        """The value with its columns in the other order; None where a part cannot be so."""
        if node not in self._found:
            self._found[node] = self._made(node)
        return self._found[node]

    def own(self, root: Node) -> list[Node]:
        """What of a value was made anew."""
        waiting, seen = [root], {root}
        for node in waiting:
            new = [each for each in node.inputs if each in self._found and each not in seen]
            seen.update(new)
            waiting += new
        return waiting

    def _made(self, node: Node) -> Node | None:
        width, axis = node.shape[-1], node.type.rank - 1
        if width == 1:
            return node
        if self._context.is_constant(node):
            shape = (*node.shape[:-1], GATES, width // GATES)
            dims = (*range(axis), axis + 1, axis)
            return build.reshape(build.permute(build.reshape(node, shape), dims), node.shape)
        if node.op == "matmul":
            if not self._context.is_constant(node.inputs[1]):
                return None
            return self._on(node, (node.inputs[0],), node.inputs[1:])
        keeps = node.op == "slice" and node.attr("axis") != axis
        keeps |= node.op == "reshape" and node.inputs[0].shape[-1:] == (width,)
        keeps |= node.op == "permute" and node.attr("dims")[-1] == axis
        keeps |= node.op == "flip" and axis not in node.attr("axes")
        keeps |= node.op in ("add", "cast")
        return self._on(node, (), node.inputs) if keeps else None

    def _on(self, node: Node, kept: tuple[Node, ...], operands: tuple[Node, ...]) -> Node | None:
        moved = tuple(map(self.of, operands))
        found = tuple(each for each in moved if each is not None)
        return node.on((*kept, *found)) if len(found) == len(moved) else None
