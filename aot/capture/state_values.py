"""Finds the nodes that hold values of mutable state: writes of rows update these in place."""

from __future__ import annotations

from aotc.aot.capture.node_set import NodeSet
from aotc.aot.ir.graph import Node

STATE_VALUES = NodeSet("state values")
mark_state = STATE_VALUES.add


def is_state_value(node: Node) -> bool:
    """Whether the node is a state's value, itself or reshaped."""
    while node.op == "reshape":
        node = node.inputs[0]
    return node in STATE_VALUES
