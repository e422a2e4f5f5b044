"""Finds the nodes that hold values of mutable state: writes of rows update these in place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from aotc.aot.ir.graph import Node

_STATE_VALUES: ContextVar[set[Node] | None] = ContextVar("values", default=None)


@contextmanager
def marking_states() -> Iterator[None]:
    """Inside, `mark_state` and `is_state_value` share one set."""
    token = _STATE_VALUES.set(set())
    try:
        yield
    finally:
        _STATE_VALUES.reset(token)


def mark_state(node: Node) -> Node:
    """Note that a node is a state's value, and return it."""
    values = _STATE_VALUES.get()
    if values is not None:
        values.add(node)
    return node


def is_state_value(node: Node) -> bool:
    """Whether the node is a state's value, itself or reshaped."""
    while node.op == "reshape":
        node = node.inputs[0]
    return node in (_STATE_VALUES.get() or ())
