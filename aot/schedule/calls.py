"""Kernels that the user wrote, ops that torch runs, graphs that run as data decides: each call is a
group of its own.

Its operands are memory: nothing is computed inside it, and nothing behind it joins it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.index import Symbol
from aotc.aot.ir.size import typical
from aotc.aot.ir.types import DTYPES
from aotc.aot.schedule.attention import product_operations
from aotc.aot.schedule.group import Domain, Group, GroupKind, Root
from aotc.aot.schedule.grow import Cluster
from aotc.aot.schedule.trace import LEAVES

MEMORY_KINDS = frozenset({"call", "torch", "control"})
UPDATING_KINDS = frozenset({"call", "control"})  # of them, those with results in operands' memory
# Function on memory → products of scores' shape over the elements of keys, and of values.
SCORE_PRODUCTS = {"attention": (1, 1), "attention_backward": (3, 2)}
_ONE = Domain(Symbol("z", 1), Symbol("x", 1), Symbol("y", 1))


def with_memory(graph: Graph) -> Graph:
    """The graph with operands of calls as memory: literals are copied, reshapes left out.

    What a call updates nothing else reads: where something does, the call gets a copy.
    """
    readers = {node: tuple(found) for node, found in readers_of(graph).items()}

    def on_memory(node: Node, made: Node) -> Node:
        if node.kind not in MEMORY_KINDS:
            return made
        memory = list(map(_memory, made.inputs))
        for _, place in node.attr("updates") if node.kind in UPDATING_KINDS else ():
            others = readers[base_of(node.inputs[place])]
            if len(others) > 1:
                tag = f"for reader {others.index(node.result(0))}"
                memory[place] = make("copy", (memory[place],), {"tag": tag})
        return made.on(tuple(memory))

    return graph.rebuilt(on_memory)


def readers_of(graph: Graph) -> dict[Node, dict[Node | None, None]]:
    """Who reads each node, itself or reshaped: nodes, one a call, and None for the caller."""
    found: dict[Node, dict[Node | None, None]] = {}
    for node in graph.nodes():
        if node.op == "reshape":
            continue
        reader = node.result(0) if node.kind in UPDATING_KINDS else node
        for operand in node.inputs:
            found.setdefault(base_of(operand), {})[reader] = None
    for output in graph.outputs:
        found.setdefault(base_of(output), {})[None] = None
    return found


def base_of(operand: Node) -> Node:
    """What a tensor is in memory: itself, or what it reshapes."""
    while operand.op == "reshape":
        operand = operand.inputs[0]
    return operand


def _memory(operand: Node) -> Node:
    operand = base_of(operand)
    is_literal = operand.op in LEAVES
    return make("copy", (operand,), {"tag": "literal"}) if is_literal else operand


def call_clusters(graph: Graph) -> list[Cluster]:
    """One cluster for each call: those of its results that are read."""
    found: dict[Node, Cluster] = {}
    for node in graph.nodes():
        if node.kind in MEMORY_KINDS:
            kind: Any = node.kind
            first = node.result(_first_result(node))
            cluster = found.setdefault(first, Cluster(kind, node, node, set()))
            cluster.members.add(node)
    return list(found.values())


def _first_result(call: Node) -> int:
    """The number of a call's first result that has memory."""
    return next(number for number, kind in enumerate(call.attr("results")) if kind)


def call_group(results: Sequence[Node]) -> Group:
    """The group of a call, given those of its results that are read; a kernel stores them all."""
    call = results[0]
    if call.kind == "torch":
        ordered = sorted(results, key=lambda node: int(node.attr("result")))
        return _group("torch", call.attr("operator"), call, ordered)
    results = [call.result(number) for number in range(len(call.attr("results")))]
    updates = ((call.inputs[operand], results[at]) for at, operand in call.attr("updates"))
    if call.kind == "control":
        return _group("control", call.attr("form"), call, results, tuple(updates))
    return _group("call", call.attr("function"), call, results, tuple(updates))


def _group(
    kind: GroupKind,
    label: str,
    call: Node,
    results: Sequence[Node],
    updates: tuple[tuple[Node, Node], ...] = (),
) -> Group:
    """A group that stores the results of one call."""
    reads = tuple(dict.fromkeys(call.inputs))
    return Group(
        kind=kind,
        label=label,
        domain=_ONE,
        root_op=call,
        roots=tuple(Root(node, ()) for node in results),
        nodes=tuple(results),
        reads=reads,
        bytes=_bytes(call, (*reads, *results)),
        operations=_operations(call, results),
        updates=updates,
    )


def _bytes(call: Node, memories: Sequence[Node]) -> int:
    """Bytes that a call reads and stores: of what rows are written into only these rows."""
    if call.op == "placed" and call.attr("function") == "scatter_rows":
        how, width = dict(call.attr("stored")[0][1]), DTYPES[call.dtype].itemsize_bytes
        rows = sum(prod(shape) for _, _, shape, _ in call.attr("operands")[2::3])
        (places,) = {number for number, *_ in call.attr("operands")[1::3]}
        rows_bytes = typical(rows) * width * (2 if how["merge"] == "replace" else 3)
        return typical(call.inputs[places].type.nbytes) + rows_bytes
    return sum(typical(node.type.nbytes) for node in memories)


def _operations(call: Node, results: Sequence[Node]) -> int:
    """Operations of a call: those of products, where it is known to compute them, else one for each
    element that it stores."""
    function = call.attr("function") if call.op == "placed" else ""
    if function in SCORE_PRODUCTS:
        query, key, value = (shape for _, _, shape, _ in call.attr("operands")[:3])
        ((_, attributes, *_), *_) = call.attr("stored")
        of_keys, of_values = SCORE_PRODUCTS[function]
        width = of_keys * query[3] + of_values * value[3]
        return product_operations(query, key, width, dict(attributes))
    if function == "grouped_matmul":
        (_, _, left, _), *_ = call.attr("operands")
        ((*_, (_, _, product, _)), *_) = call.attr("stored")
        return typical(2 * prod(left) * product[-1])
    return sum(typical(node.type.numel) for node in results)
