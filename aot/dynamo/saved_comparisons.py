"""Saves the operands of comparisons for the backward graph, instead of recomputing them.

The gradient of a maximum asks which elements equal it. If an element is recomputed, fused
differently, it may differ in its last bit, and then no element equals the saved maximum: 0 / 0. So
for such a comparison in a joint graph, the rounded results that it depends on are saved, or its own
result.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator

import torch
from torch.fx import GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from aotc.aot.capture.custom_ops import base_name
from aotc.aot.capture.rounding_sensitivity import EXACT

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def keep_compared(joint: GraphModule) -> None:
    """Mark what comparisons of two floats depend on as saved instead of recomputed. What the user
    asked to recompute is still recomputed."""
    seen: set[Node] = set()
    for node in joint.graph.nodes:
        if base_name(node.target) in COMPARISONS and len(operands := [*_operands(node)]) > 1:
            for each in operands:
                _keep(each, seen)


def _keep(first: Node, seen: set[Node]) -> None:
    """Mark the results that round, from which ops that round nothing make a value."""
    waiting = [first]
    while waiting:
        node = waiting.pop()
        if node in seen or node.op != "call_function":
            continue
        seen.add(node)
        if node.target is operator.getitem or base_name(node.target) in EXACT:
            waiting += _operands(node)
        else:
            node.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)


def _operands(node: Node) -> Iterator[Node]:
    """Operands that are floating-point tensors, or several results of one op."""
    for each in node.all_input_nodes:
        value = each.meta.get("val")
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        if is_float or isinstance(value, tuple | list):
            yield each
