"""Inner graphs: the graph arguments of calls of torch's higher-order ops."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses import FakeTensor
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
    """The attribute of the owning module that a node reads."""
    found: Any = node.graph.owning_module
    for name in str(node.target).split("."):
        found = getattr(found, name, None)
    return found


def constants_given(module: GraphModule) -> list[Node]:
    """The constants among a graph's results."""
    (output,) = module.graph.find_nodes(op="output")
    return [each for each in output.all_input_nodes if each.op == "get_attr"]


def has_effect_inside(module: GraphModule) -> bool:
    """Whether an op with an effect, such as one that checks its data, stands inside of control
    flow: torch then gives a token for it that has no data."""
    return any(isinstance(attribute_at(each), FakeTensor) for each in constants_given(module))
