"""Replaces nodes of a graph and rebuilds what depends on them."""

from __future__ import annotations

from collections.abc import Mapping

from aotc.aot.ir.graph import Node


def replace_nodes(outputs: tuple[Node, ...], replaced: Mapping[Node, Node]) -> tuple[Node, ...]:
    """`outputs` with the keys of `replaced` exchanged for their values."""
    new: dict[Node, Node] = {}
    for root in outputs:
        stack = [root]
        while stack:
            node = stack[-1]
            if node in new:
                stack.pop()
                continue
            target = replaced.get(node)
            needed = (target,) if target is not None else node.inputs
            waiting = [operand for operand in needed if operand not in new]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            operands = tuple(new[operand] for operand in needed)
            if target is not None:
                new[node] = operands[0]
            else:
                new[node] = node.on(operands)
    return tuple(new[root] for root in outputs)
