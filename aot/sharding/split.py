"""One graph for every rank of a program that is split over GPUs (tensor parallelism).

All ranks run the same graph. A value of the model is whole on each of them, or each has one of
equal parts along an axis. Weights of products begin it: a product of a whole left operand has a
part of its columns on each rank, one whose left operand is split along its columns has a part of
the sum, which an all-reduce adds up (Megatron-LM, Shoeybi et al. 2019). What stands between them,
activations, heads of attention and their caches, is split as its operands are, by the table of
`rules.py`; where that has no rule a value is gathered first, so that any graph can be split.

What differs between ranks are constants alone: a `shard` of a weight stands in the expression of a
stored constant, and rank k's weights are those expressions with its number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aotc.aot.ir import build
from aotc.aot.ir.constants import stored_constant
from aotc.aot.ir.graph import Graph, Node, State, make, walk
from aotc.aot.ir.recursion import deep_recursion
from aotc.aot.sharding.rules import sharded
from aotc.aot.sharding.splitter import STATUS, Sharded, Splitter, StateSplit

STACK_FRAMES, FRAMES_A_NODE = 2000, 8  # of calls of Python, for a chain of nodes
LEAST_BYTES = 1 << 18  # of a weight that is split: a smaller one is read in the time of an exchange


def _split(splitter: Splitter) -> Graph:
    """The graph of every rank; raises `StateSplit` where states turn out to be split."""
    graph = splitter.graph
    inputs = tuple(splitter.value(node).node for node in graph.inputs)
    returned = tuple(_own(splitter.whole(splitter.value(node))) for node in graph.returned)
    states, new_states = [], []
    for state, node in zip(graph.states, graph.new_states, strict=True):
        axis, value = splitter.state_axes.get(state.name), splitter.value(node)
        if value.axis != axis:
            whole = splitter.whole(value)
            value = Sharded(whole if axis is None else splitter.part(whole, axis), axis)
        new_states.append(_own(value.node))
        states.append(_local_state(splitter, state, axis))
    checks = tuple(splitter.whole(splitter.value(node)) for node in graph.checks)
    outputs, names = (*returned, *new_states, *checks), graph.output_names
    if splitter.exchanges:
        attrs = {"kind": STATUS, "operation": STATUS, "place": "", "low": 0, "high": 0}
        outputs = (*outputs, make("check", (splitter.status,), attrs))
        names = (*names, STATUS)
    parts = (graph.input_names, names, splitter.constants, tuple(states))
    return Graph(inputs, outputs, *parts).with_outputs(outputs)


def _own(node: Node) -> Node:
    """A value that goes out of the graph: not the memory that other ranks have written to."""
    viewed = node
    while viewed.op in ("reshape", "permute"):
        (viewed,) = viewed.inputs
    return make("copy", (node,), {"tag": STATUS}) if viewed.op == "exchange" else node


def _local_state(splitter: Splitter, state: State, axis: int | None) -> State:
    """What a rank has of a state."""
    if axis is None or state.initial is None:
        return state
    whole = state.initial
    node = build.constant(whole.name, whole.type)
    part = make("shard", (node,), {"axis": axis, "ranks": splitter.ranks, "rank": 0})
    name = f"{whole.name}.part{axis}"
    return replace(state, initial=stored_constant(name, part, {whole.name: whole}))


def split(graphs: Sequence[Graph], ranks: int, least_bytes: int = LEAST_BYTES) -> list[Graph]:
    """The graphs of a model's entries for each of `ranks` GPUs; their states are split alike.

    least_bytes: of weights that are worth it.
    """
    state_axes: dict[str, int] = {}
    nodes = max(len(graph.nodes()) for graph in graphs)
    with deep_recursion(STACK_FRAMES + FRAMES_A_NODE * nodes):
        return _split_alike(graphs, ranks, state_axes, least_bytes)


def _split_alike(
    graphs: Sequence[Graph], ranks: int, state_axes: dict[str, int], least_bytes: int
) -> list[Graph]:
    while True:  # again with each state that turns out to be split; once for each at most
        known = dict(state_axes)
        found = []
        for graph in graphs:
            try:
                found.append(_split(Splitter(graph, ranks, state_axes, least_bytes, sharded)))
            except StateSplit:
                break
        if len(found) == len(graphs) and state_axes == known:
            return found


def of_rank(node: Node, rank: int) -> Node:
    """An expression of constants as one rank has it: parts are slices that begin at its own."""
    known: dict[Node, Node] = {}
    for each in walk((node,)):
        operands = tuple(known[operand] for operand in each.inputs)
        if each.op == "shard":
            axis, (data,) = each.attr("axis"), operands
            count = each.shape[axis]
            known[each] = build.slice_axis(data, axis, rank * count, (rank + 1) * count)
        else:
            known[each] = each.on(operands)
    return known[node]


def is_of_a_rank(node: Node) -> bool:
    """Whether ranks have other values of an expression."""
    return any(each.op == "shard" for each in walk((node,)))
