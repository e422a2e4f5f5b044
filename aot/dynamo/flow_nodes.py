"""Decides which control-flow calls of a torch graph become steps of a recipe, and makes these
steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import getitem
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from aotc.aot.capture.aten_graph import memory_order
from aotc.aot.capture.aten_signature import CHOSEN, RELAID
from aotc.aot.dynamo.control_flow import CALLS, Argument, ControlFlow, Inner, Order
from aotc.aot.dynamo.eager_graph import changes
from aotc.aot.dynamo.inner_graphs import attribute_at, graph_at, graphs_of


def choose(calls: Iterable[Node]) -> None:
    """Note which of these calls run as steps of control flow, with the parts of their results."""
    for node in filter(_is_taken, calls):
        for each in (node, *node.users):
            each.meta[CHOSEN] = True


def _is_taken(node: Node) -> bool:
    """Whether an op has a row, its graphs change nothing and what they take and give is known."""
    graphs = graphs_of(node)
    is_known = str(node.target) in CALLS and bool(graphs) and not node.kwargs
    return (
        is_known
        and all(user.target is getitem for user in node.users)
        and not _changes_arguments(node)
        and all(map(_is_pure, graphs))
    )


def _changes_arguments(node: Node) -> bool:
    """Whether a loop is said to change what it is given."""
    return str(node.target).startswith("while_loop") and any(node.args[4:])


def _is_pure(graph: GraphModule) -> bool:
    placeholders = graph.graph.find_nodes(op="placeholder")
    nodes = graph.graph.nodes
    return all("val" in each.meta for each in placeholders) and not any(map(changes, nodes))


def is_control_flow(node: Node) -> bool:
    """Whether a call was chosen as a step of control flow."""
    return CHOSEN in node.meta and str(node.target) in CALLS


def prepared(graph: GraphModule) -> GraphModule:
    """A copy of a graph that is as those of AOTAutograd are: it gives a tuple, and takes dense
    tensors.

    What a graph of a loop is given is not as it was traced but in the first turn.
    """
    own = Graph()
    found = own.graph_copy(graph.graph, {})
    own.output(tuple(found) if isinstance(found, tuple | list) else (found,))
    for node in own.find_nodes(op="placeholder"):
        value = node.meta["val"]
        if isinstance(value, Tensor) and memory_order(value) is None:
            with value.fake_mode:  # type: ignore[attr-defined]
                dense = torch.empty(value.shape, dtype=value.dtype, device=value.device)
            node.meta |= {"val": dense, RELAID: value}
    return GraphModule(graph, own)


def examples_of(graph: GraphModule) -> list[Any]:
    """What a prepared graph's arguments are."""
    return [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]


def control_flow(
    node: Node, prepared: Sequence[GraphModule], arguments: Sequence[Node], results: Sequence[Node]
) -> ControlFlow:
    """The call of a chosen node as data. prepared: its graphs; arguments and results: those of its
    step."""
    graphs = graphs_of(node)
    places = {each: place for place, each in enumerate(arguments)}

    def plain(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple(map(plain, value))
        if isinstance(value, Node):
            if value in places:
                return Argument(places[value])
            inside = graph_at(value)
            return attribute_at(value) if inside is None else Inner(graphs.index(inside))
        return value

    given = tuple(tuple(map(_order, examples_of(graph))) for graph in prepared)
    asked = tuple((int(each.args[1]), _order(each.meta["val"])) for each in results)
    return ControlFlow(str(node.target), tuple(map(plain, node.args)), given, asked)


def _order(value: Any) -> Order:
    return memory_order(value) if isinstance(value, Tensor) else None
