"""A set of nodes of which something is known, filled and read while a program is imported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from aotc.aot.ir.graph import Node


class NodeSet:
    """Empty, and empty it stays, outside of `collecting`."""

    def __init__(self, name: str) -> None:
        self._nodes: ContextVar[set[Node] | None] = ContextVar(name, default=None)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Inside, nodes that are added are in the set; it is a new one each time."""
        token = self._nodes.set(set())
        try:
            yield
        finally:
            self._nodes.reset(token)

    def add(self, node: Node) -> Node:
        """Add a node, and return it."""
        nodes = self._nodes.get()
        if nodes is not None:
            nodes.add(node)
        return node

    def __contains__(self, node: Node) -> bool:
        return node in (self._nodes.get() or ())
