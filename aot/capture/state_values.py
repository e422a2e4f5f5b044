"""Which nodes are values of mutable state: rows of writes keep these in place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from aotc.aot.ir.graph import Node

_KEPT: ContextVar[set[Node] | None] = ContextVar("kept", default=None)


@contextmanager
def keeping() -> Iterator[None]:
    """Inside, `keep` and `is_kept` know each other."""
    token = _KEPT.set(set())
    try:
        yield
    finally:
        _KEPT.reset(token)


def keep(node: Node) -> Node:
    """Note that a node is a state's value, and return it."""
    kept = _KEPT.get()
    if kept is not None:
        kept.add(node)
    return node


def is_kept(node: Node) -> bool:
    """Whether the node is a state's value, itself or reshaped."""
    while node.op == "reshape":
        node = node.inputs[0]
    return node in (_KEPT.get() or ())
