"""Legality of a whole graph, checked after each stage: rows of (what must hold, test)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from aotc.aot.errors import InternalError
from aotc.aot.ir.graph import Graph, Node, make, walk
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.types import DTYPES

# Kinds that the stage "rewrite" must have replaced by the time the schedule sees the graph.
REWRITTEN_KINDS = frozenset({"convolution", "memory"})


def _signature(graph: Graph, _: Sequence[Node]) -> Iterator[str]:
    if len(graph.inputs) != len(graph.input_names):
        yield f"{len(graph.inputs)} inputs have {len(graph.input_names)} names"
    if len(graph.outputs) != len(graph.output_names):
        yield f"{len(graph.outputs)} outputs have {len(graph.output_names)} names"
    for kind, names in (("input", graph.input_names), ("output", graph.output_names)):
        if len(set(names)) != len(names):
            yield f"{kind} names repeat: {', '.join(names)}"


def _states(graph: Graph, _: Sequence[Node]) -> Iterator[str]:
    before = graph.inputs[len(graph.given) :]
    for state, old, new in zip(graph.states, before, graph.new_states, strict=True):
        if old.type != new.type:
            yield f"state `{state.name}` is {old.type}, and {new.type} after a call"


def _leaves(graph: Graph, nodes: Sequence[Node]) -> Iterator[str]:
    declared = frozenset(graph.inputs)
    for node in graph.inputs:
        if node.op != "input":
            yield f"`{node.op}` stands among the inputs"
    for node in nodes:
        if node.op == "input" and node not in declared:
            yield f"input `{node.attr('name')}` is not in the signature"


def _constants(graph: Graph, nodes: Sequence[Node]) -> Iterator[str]:
    read = {node.attr("name"): node for node in nodes if node.op == "constant"}
    for name, node in read.items():
        constant = graph.constants.get(name)
        if constant is None:
            yield f"constant `{name}` has no value"
            continue
        if callable(constant.values):  # computed as its node says
            continue
        stored = (constant.array.shape, constant.array.dtype.name)
        if constant.type != node.type or stored != (node.shape, DTYPES[node.dtype].numpy):
            yield f"constant `{name}` is {stored[1]}{list(stored[0])}, expected {node.type}"
    for name in sorted(set(graph.constants) - set(read)):
        yield f"constant `{name}` is not read"


def _types(_: Graph, nodes: Sequence[Node]) -> Iterator[str]:
    for node in nodes:
        if node.op not in OPS:
            yield f"there is no op `{node.op}`"
        elif make(node.op, node.inputs, node.attrs) is not node:
            yield f"`{node!r}` was not built by `make`"


Rule = Callable[[Graph, Sequence[Node]], Iterator[str]]  # of a graph and what its outputs need
RULES: tuple[Rule, ...] = (
    _signature, _states, _leaves, _constants, _types,
)  # fmt: skip


def violations(graph: Graph, without_kinds: frozenset[str] = frozenset()) -> list[str]:
    """All that is illegal in `graph`; `without_kinds` are kinds an earlier stage had to remove."""
    nodes = tuple(walk(graph.outputs))
    found = [reason for rule in RULES for reason in rule(graph, nodes)]
    left = sorted({node.op for node in nodes if without_kinds and node.kind in without_kinds})
    return [*found, *(f"`{op}` should have been rewritten" for op in left)]


def check(graph: Graph, stage: str, without_kinds: frozenset[str] = frozenset()) -> Graph:
    """`graph` itself; raises `InternalError` naming `stage` and every violation."""
    found = violations(graph, without_kinds)
    if found:
        raise InternalError(stage=stage, detail="; ".join(found))
    return graph
