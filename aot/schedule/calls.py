"""Kernels that the user wrote and ops that torch runs: each call is a group of its own.

Its operands are memory: nothing is computed inside it, and nothing behind it joins it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.index import Symbol
from aotc.aot.ir.size import typical
from aotc.aot.schedule.group import Domain, Group, Root
from aotc.aot.schedule.grow import Cluster
from aotc.aot.schedule.trace import LEAVES

MEMORY_KINDS = frozenset({"call", "torch"})
_ONE = Domain(Symbol("z", 1), Symbol("x", 1), Symbol("y", 1))


def with_memory(graph: Graph) -> Graph:
    """The graph with operands of calls as memory: literals are copied, reshapes left out.

    What a call updates is a copy of its own, also where another call updates an equal one.
    """
    new: dict[Node, Node] = {}
    owners: dict[Node, Node] = {}
    for node in graph.nodes():
        inputs = tuple(new[operand] for operand in node.inputs)
        if node.kind in MEMORY_KINDS:
            inputs = tuple(_memory(operand) for operand in inputs)
            inputs = _owned(node, inputs, owners)
        same = inputs == node.inputs
        new[node] = node if same else make(node.op, inputs, node.attrs, node.source)
    return graph.with_outputs(tuple(new[node] for node in graph.outputs))


def _owned(call: Node, inputs: tuple[Node, ...], owners: dict[Node, Node]) -> tuple[Node, ...]:
    """The operands; each one that is updated, and by another call of `owners` too, as a copy."""
    found = list(inputs)
    for _, place in call.attr("updates"):
        before, number = found[place], 0
        while owners.setdefault(found[place], result_of(call, 0)) != result_of(call, 0):
            number += 1
            found[place] = make("copy", (before,), {"tag": f"again.{number}"})
    return tuple(found)


def _memory(operand: Node) -> Node:
    while operand.op == "reshape":
        operand = operand.inputs[0]
    is_literal = operand.op in LEAVES
    return make("copy", (operand,), {"tag": "literal"}) if is_literal else operand


def call_clusters(graph: Graph) -> list[Cluster]:
    """One cluster for each call: those of its results that are read."""
    found: dict[Node, Cluster] = {}
    for node in graph.nodes():
        if node.kind in MEMORY_KINDS:
            kind: Literal["call", "torch"] = "call" if node.kind == "call" else "torch"
            first = result_of(node, _first_result(node))
            cluster = found.setdefault(first, Cluster(kind, node, node, set()))
            cluster.members.add(node)
    return list(found.values())


def _first_result(call: Node) -> int:
    """The number of a call's first result that has memory."""
    return next(number for number, kind in enumerate(call.attr("results")) if kind)


def result_of(call: Node, number: int) -> Node:
    """Another result of the same call."""
    attrs = {**dict(call.attrs), "result": number}
    return make(call.op, call.inputs, attrs, call.source)


def call_group(call: Node) -> Group:
    """The group of a call, given one of its results; it stores them all."""
    results = [result_of(call, number) for number in range(len(call.attr("results")))]
    reads = tuple(dict.fromkeys(call.inputs))
    return Group(
        kind="call",
        label=call.attr("function"),
        domain=_ONE,
        anchor=call,
        roots=tuple(Root(node, ()) for node in results),
        nodes=tuple(results),
        reads=reads,
        bytes=sum(typical(node.type.nbytes) for node in (*reads, *results)),
        operations=sum(typical(node.type.numel) for node in results),
        updates=tuple(
            (call.inputs[operand], results[number]) for number, operand in call.attr("updates")
        ),
    )


def torch_group(results: Sequence[Node]) -> Group:
    """The group of a call of torch, given those of its results that are read."""
    call = results[0]
    roots = sorted(results, key=lambda node: int(node.attr("result")))
    reads = tuple(dict.fromkeys(call.inputs))
    return Group(
        kind="torch",
        label=call.attr("operator"),
        domain=_ONE,
        anchor=call,
        roots=tuple(Root(node, ()) for node in roots),
        nodes=tuple(roots),
        reads=reads,
        bytes=sum(typical(node.type.nbytes) for node in (*reads, *roots)),
        operations=sum(typical(node.type.numel) for node in roots),
    )
