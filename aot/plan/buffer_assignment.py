"""BufferAssignment: which memory each launch reads and writes, before anything has an address.

It is what the plan stage needs of a schedule. A bundle keeps it in its sources, so that the plan
can be made anew around other kernels where neither the model nor its graph is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aotc.aot.errors import InternalError
from aotc.aot.ir.graph import Constant, Graph, Node
from aotc.aot.ir.size import Extent, fixed
from aotc.aot.ir.types import DTYPES
from aotc.aot.plan.arena import Lifetime
from aotc.aot.schedule.group import Group, Schedule
from aotc.runtime.bundle.plan import CHECK_BYTES, Check, StateSlot
from aotc.runtime.bundle.torch_calls import CallTensor, TorchCall

SPACES = ("buffer", "weight", "input", "output", "state", "check")


@dataclass(frozen=True, slots=True)
class Operand:
    """The memory behind one argument of a launch.

    `value` is the number of a buffer, input, output, state or check, or the name of a weight;
    `nbytes` the size of the tensor; `start_bytes` where in a buffer the pointer is given from.
    """

    space: str
    value: int | str
    nbytes: Extent
    start_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LaunchBuffers:
    """The arguments of one launch in the order of its kernel's parameters; the last are stored."""

    operands: tuple[Operand, ...]
    stored: int  # how many


@dataclass(frozen=True, slots=True)
class BufferAssignment:
    """All launches of a call in order, and the buffers between them with their lifetimes.

    Lifetimes count steps: launches and, between them, calls of torch, each with how many launches
    come before it. Memory of these is named as operands name it, ("buffer", number) where the plan
    will say ("arena", offset).
    """

    buffers: tuple[Lifetime, ...]
    launches: tuple[LaunchBuffers, ...]
    calls: tuple[tuple[int, TorchCall], ...] = ()
    states: tuple[StateSlot, ...] = ()
    checks: tuple[Check, ...] = ()  # their ends extents of the graph

    def with_states(
        self, numbers: Sequence[int], states: tuple[StateSlot, ...]
    ) -> BufferAssignment:
        """The same among the states of all entries: `numbers` says which of them each of its own
        is."""

        def number(space: str, value: Any) -> Any:
            return numbers[value] if space == "state" else value

        launches = tuple(
            LaunchBuffers(
                tuple(replace(each, value=number(each.space, each.value)) for each in row.operands),
                row.stored,
            )
            for row in self.launches
        )
        calls = tuple(
            (at, call.moved(lambda space, value: (space, number(space, value))))
            for at, call in self.calls
        )
        return replace(self, launches=launches, calls=calls, states=states)

    def step(self, launch: int) -> int:
        """The step that a launch is."""
        return launch + sum(after <= launch for after, _ in self.calls)


def assign_buffers(schedule: Schedule, whole: Graph | None = None) -> BufferAssignment:
    """Inputs and outputs are the caller's memory, states the session's, constants are weights by
    name, all other roots are buffers.

    whole: the graph for all sizes, of which the schedule serves a range: a session's states have
    one size in all ranges.
    """
    graph, states = schedule.graph, slots_of(whole or schedule.graph)
    given, returned = len(graph.given), len(graph.returned)
    places: dict[Node, tuple[str, int | str]] = {
        node: ("input", number) for number, node in enumerate(graph.given)
    }
    places |= {node: ("output", number) for number, node in enumerate(schedule.stored[:returned])}
    with_states = returned + len(graph.states)
    for ends in (graph.inputs[given:], schedule.stored[returned:with_states]):
        places |= {node: ("state", number) for number, node in enumerate(ends)}
    for number, node in enumerate(schedule.stored[with_states:]):
        places.setdefault(node, ("check", number))  # at some sizes two are one
    reads = (node for group in schedule.groups for node in group.reads)
    places |= {node: ("weight", node.attr("name")) for node in reads if node.op == "constant"}
    # What a call updates lies where its result will.
    updated = {before: after for group in schedule.groups for before, after in group.updates}
    for before, after in reversed(
        updated.items()
    ):  # the last of those that follow each other first
        if after in places:
            places[before] = places[after]
    buffers: list[Lifetime] = []
    launches: list[LaunchBuffers] = []
    calls: list[tuple[int, TorchCall]] = []
    for number, group in enumerate(schedule.groups):
        for place_in_group, root in enumerate(group.roots):
            if root.node not in places:
                name = f"{number}.{place_in_group} {group.label}"
                places[root.node] = ("buffer", len(buffers))
                if root.node in updated:
                    places[updated[root.node]] = places[root.node]
                buffers.append(Lifetime(name, root.node.type.nbytes, number, number))
        if group.kind == "torch":
            calls.append((len(launches), _call(group, places)))
        else:
            nodes = (*group.reads, *(root.node for root in group.roots))
            operands = tuple(_operand(group, node, *places[node]) for node in nodes)
            launches.append(LaunchBuffers(operands, len(group.roots)))
        for space, value in (places[node] for node in group.reads):
            if space == "buffer" and isinstance(value, int):
                buffers[value] = replace(buffers[value], last=number)
    _write_earlier(schedule.groups, places, buffers)
    checks = tuple(Check(**dict(node.attrs)) for node in graph.checks)
    return BufferAssignment(tuple(buffers), tuple(launches), tuple(calls), states, checks)


def _write_earlier(
    groups: Sequence[Group], places: Mapping[Node, tuple[str, int | str]], buffers: list[Lifetime]
) -> None:
    """Have buffers that other ranks of a program write to live from the exchange before on: those
    may be past that one as soon as this rank has begun it."""
    before = 0
    for number, group in enumerate(groups):
        for root in group.roots:
            node = root.node
            if node.op != "placed" or node.attr("function") != "exchange" or node.attr("result"):
                continue
            space, value = places[node]
            if space != "buffer" or not isinstance(value, int):
                detail = f"`{group.label}` stores into memory that other GPUs do not know"
                raise InternalError(stage="plan", detail=detail)
            buffers[value] = replace(buffers[value], first=before)
            before = number


def slots_of(graph: Graph) -> tuple[StateSlot, ...]:
    """The memory of a graph's states, with what they start with."""
    rows = zip(graph.states, graph.inputs[len(graph.given) :], strict=True)
    return tuple(_slot(state.initial, node.type.nbytes) for state, node in rows)


def _slot(initial: Constant | None, nbytes: Any) -> StateSlot:
    if initial is None:
        return StateSlot(nbytes)
    own_bytes = fixed(initial.type.nbytes)
    return StateSlot(nbytes, initial.name, 0 if own_bytes == nbytes else own_bytes)


def _operand(group: Group, node: Node, space: str, value: int | str) -> Operand:
    start_bytes = group.start(node) * DTYPES[node.dtype].itemsize_bytes
    if start_bytes and space != "buffer":
        detail = f"`{group.label}` reads memory of space `{space}` from byte {start_bytes}"
        raise InternalError(stage="plan", detail=detail)
    nbytes = CHECK_BYTES if space == "check" else node.type.nbytes
    return Operand(space, value, nbytes, start_bytes)


def _call(group: Group, places: Mapping[Node, tuple[str, int | str]]) -> TorchCall:
    call = group.root_op
    assert call is not None
    stored = {int(root.node.attr("result")): root.node for root in group.roots}
    operands = zip(call.inputs, call.attr("operands"), strict=True)
    return TorchCall(
        call.attr("operator"),
        tuple(CallTensor(dtype, places[node], shape) for node, (dtype, shape) in operands),
        tuple(
            CallTensor(kind[0], places[stored[number]], kind[1]) if number in stored else None
            for number, kind in enumerate(call.attr("results"))
        ),
        call.attr("arguments"),
    )
