"""Interleaves the gates of recurrent cells, so that one program has all columns that an element
needs.

A step of an LSTM multiplies its state by a matrix of four parts, and each element of its result
needs one column of each part. With these columns next to each other the product's kernel has all
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
    parts = {
        node: found
        for node in graph.nodes()
        if (found := _parts(node, users)) and node not in outputs and order.of(node)
    }
    while True:
        moved = {each for node in parts for each in order.behind(node)}
        ends = {part for found in parts.values() for part in found.values()}
        torn = {node for node in moved if node in outputs or not {*users[node]} <= moved | ends}
        left = {node: row for node, row in parts.items() if torn.isdisjoint(order.behind(node))}
        if len(left) == len(parts):
            break
        parts = left  # what others read too would be computed twice
    if not any(node.op == "matmul" for node in moved):
        return graph, 0
    replaced: dict[Node, Node] = {}
    for node, found in parts.items():
        axis, width = node.type.rank - 1, node.shape[-1]
        for number, part in found.items():
            attrs = {"axis": axis, "start": number, "stop": width, "step": GATES}
            replaced[part] = make("slice", (order.moved(node),), attrs, part.source)
    return graph.replaced(replaced), len(replaced)


def _parts(node: Node, users: Users) -> dict[int, Node] | None:
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

    def moved(self, node: Node) -> Node:
        """The value with its columns in the other order, which it can be in."""
        found = self.of(node)
        assert found is not None
        return found

    def of(self, node: Node) -> Node | None:
        """The same; None where a part of it cannot."""
        if node not in self._found:
            self._found[node] = self._made(node)
        return self._found[node]

    def behind(self, root: Node) -> list[Node]:
        """The value and what of its operands, constants left out, is in the other order, too."""
        waiting, seen = [root], {root}
        for node in waiting:
            for each in node.inputs[1:] if node.op == "matmul" else node.inputs:
                if each not in seen and each in self._found and not self._context.is_constant(each):
                    seen.add(each)
                    waiting.append(each)
        return waiting

    def _made(self, node: Node) -> Node | None:
        if node.shape[-1:] in ((), (1,)):
            return node
        width, axis = node.shape[-1], node.type.rank - 1
        if self._context.is_constant(node):
            shape = (*node.shape[:-1], GATES, width // GATES)
            dims = (*range(axis), axis + 1, axis)
            return build.reshape(build.permute(build.reshape(node, shape), dims), node.shape)
        if node.op == "matmul":
            left, right = node.inputs
            is_constant = self._context.is_constant(right)
            return node.on((left, self.moved(right))) if is_constant else None
        keeps = node.op == "slice" and node.attr("axis") != axis
        keeps |= node.op == "reshape" and node.inputs[0].shape[-1:] == (width,)
        keeps |= node.op == "permute" and node.attr("dims")[-1] == axis
        keeps |= node.op == "flip" and axis not in node.attr("axes")
        if not (keeps or node.op in ("add", "cast")):
            return None
        found = [each for operand in node.inputs if (each := self.of(operand)) is not None]
        return node.on(tuple(found)) if len(found) == len(node.inputs) else None
