"""Graphs inside of a graph: those that a call of one of torch's higher-order ops is given."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node


def graphs_of(node: Node) -> tuple[GraphModule, ...]:
    """The graphs among the arguments of a call, in their order."""
    if not isinstance(node.target, torch._ops.HigherOrderOperator):
        return ()
    found = map(graph_at, node.args)
    return tuple(each for each in found if each is not None)


def graph_at(value: Any) -> GraphModule | None:
    """The graph that an argument of a call is, if it is one."""
    if not isinstance(value, Node) or value.op != "get_attr":
        return None
    found = attribute_at(value)
    return found if isinstance(found, GraphModule) else None


def attribute_at(node: Node) -> Any:
    """What a node reads of the module that owns its graph."""
    found: Any = node.graph.owning_module
    for name in str(node.target).split("."):
        found = getattr(found, name, None)
    return found
