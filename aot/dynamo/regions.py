"""Partitions a graph into regions that aotc compiles and regions that it leaves to torch.

A region is all nodes of one level. The level of a node is the smallest one of the right parity that
is not below those of its arguments: even levels are compiled by aotc. So regions depend only on
lower ones, and there are as few of them, one after the other, as the graph allows. A node that
draws random numbers is not below the one that drew before it, so that the generator is used in the
graph's order.

Elementwise ops on values that no kernel of their region computes move to the first region that
reads them. Otherwise the backward graph of a deep model would recompute the activations of all
layers in its first region and keep them, instead of fusing this into the kernels that read them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import torch
from torch.fx import Graph, GraphModule, Node

from aotc.aot.capture.aten_graph import COMPUTED, is_view
from aotc.aot.capture.aten_signature import READ_AS_IT_LIES
from aotc.aot.dynamo.eager_graph import changes, is_attention
from aotc.aot.dynamo.flow_nodes import is_control_flow
from aotc.aot.dynamo.inner_graphs import attribute_at, constants_given
from aotc.aot.dynamo.random_ops import draws

CONVERSION = torch.ops.aten._to_copy.default


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Nodes of the whole graph as a graph of their own."""

    module: GraphModule
    is_left: bool  # whether aotc cannot compile it
    arguments: tuple[Node, ...]  # of the whole graph, one a placeholder
    results: tuple[Node, ...]  # of the whole graph, one an output
    nodes: frozenset[Node]  # of the whole graph
    flow: Node | None = None  # of the whole graph: the op of control flow that the region is


def regions(module: GraphModule, left: AbstractSet[Node]) -> list[Region]:
    """The regions in the order in which they run; `left` are the nodes that aotc cannot compile.

    A constant that the graph gives becomes a copy of it, which a region makes.
    """
    _copy_constants(module)
    levels = _sunk(module.graph, _levels(module.graph, left))
    rows: dict[tuple[int, Node | None], list[Node]] = {}
    for node, level in levels.items():
        rows.setdefault((level, _flow_of(node)), []).append(node)
    return [_region(module, rows[row], *row) for row in sorted(rows, key=lambda row: row[0])]


def _copy_constants(module: GraphModule) -> None:
    (output,) = module.graph.find_nodes(op="output")
    constants = constants_given(module)
    for node in constants:
        with module.graph.inserting_before(output):
            made = module.graph.call_function(torch.ops.aten.clone.default, (node,))
        made.meta = {"val": attribute_at(node), **node.meta}
        output.replace_input_with(node, made)
    if constants:
        module.recompile()


def _levels(graph: Graph, left: AbstractSet[Node]) -> dict[Node, int]:
    """The level of each call; the parts of a result stay with it."""
    levels: dict[Node, int] = {}
    last_draw = 0
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is operator.getitem:
            levels[node] = levels[node.args[0]]
            continue
        least = max((levels.get(each, 0) for each in node.all_input_nodes), default=0)
        if draws(node):
            least = max(least, last_draw)
        # Beside a call of control flow nothing of its level is read or reads, or draws.
        is_flow = is_control_flow(node)
        if is_flow or any(map(_flow_of, node.all_input_nodes)):
            least += least % 2
        levels[node] = least + (least % 2 != (node in left))
        if draws(node):
            last_draw = levels[node] + is_flow
    return levels


def _flow_of(node: Node) -> Node | None:
    """The op of control flow that a node is, or a part of whose results."""
    made = node.args[0] if node.target is operator.getitem else node
    return made if isinstance(made, Node) and is_control_flow(made) else None


def _sunk(graph: Graph, levels: Mapping[Node, int]) -> Mapping[Node, int]:
    """The levels, where elementwise nodes have the last even one that all their users allow."""
    if any(map(changes, levels)):
        return levels  # what moves might read what was written meanwhile
    moved = dict(levels)
    may_move: set[Node] = set()
    for node, level in levels.items():
        inputs = [each for each in node.all_input_nodes if levels.get(each) == level]
        if level % 2 == 0 and _is_elementwise(node) and may_move.issuperset(inputs):
            may_move.add(node)
    for node in reversed(graph.nodes):
        users = [moved[user] for user in node.users if user in moved]
        if node in may_move and users:
            least = min(users)
            moved[node] = least - least % 2
    return moved


def _is_elementwise(node: Node) -> bool:
    """Whether a call computes elements one by one, moves them, or makes them of nothing."""
    if not isinstance(node.target, torch._ops.OpOverload) or draws(node):
        return False
    is_one_by_one = torch.Tag.pointwise in node.target.tags or node.target is CONVERSION
    return is_one_by_one or not node.all_input_nodes or is_view(node)


def _region(module: GraphModule, nodes: Sequence[Node], level: int, flow: Node | None) -> Region:
    """Nodes as a graph module that shares the constants of the whole one."""
    inside = set(nodes)
    graph, copies = Graph(), {}
    arguments = tuple(dict.fromkeys(each for node in nodes for each in _read(node, inside)))
    for node in arguments:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
        if node.op != "placeholder":
            copies[node].meta[COMPUTED] = True
    for node in nodes:
        for each in node.all_input_nodes:
            if each.op == "get_attr" and each not in copies:
                copies[each] = graph.node_copy(each)
        copies[node] = graph.node_copy(node, copies.__getitem__)
    results = tuple(node for node in nodes if any(user not in inside for user in node.users))
    for node in results:
        if any(is_attention(user) for user in node.users if user not in inside):
            copies[node].meta[READ_AS_IT_LIES] = True
    graph.output(tuple(copies[node] for node in results))
    is_left = bool(level % 2)
    return Region(GraphModule(module, graph), is_left, arguments, results, frozenset(nodes), flow)


def _read(node: Node, inside: AbstractSet[Node]) -> Iterator[Node]:
    """What a node takes from outside of its region, but for constants."""
    for each in node.all_input_nodes:
        if each not in inside and each.op != "get_attr":
            yield each
