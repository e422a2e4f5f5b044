"""BufferAssignment: which memory each launch reads and writes, before anything has an address.

It is what the plan stage needs of a schedule. A bundle keeps it in its sources, so that the plan
can be made anew around other kernels where neither the model nor its graph is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aotc.aot.errors import InternalError
from aotc.aot.ir.graph import Constant, Graph, Node
from aotc.aot.ir.size import Extent, fixed
from aotc.aot.ir.types import DTYPES
from aotc.aot.plan.arena import Lifetime
from aotc.aot.schedule.group import Group, Schedule
from aotc.runtime.bundle.control_steps import CONDITION_BYTES, CONDITIONAL, ControlStep
from aotc.runtime.bundle.plan import CHECK_BYTES, Check, StateSlot
from aotc.runtime.bundle.torch_calls import CallTensor, TorchCall

Place = tuple[str, "int | str"]  # (space, value)
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

    Lifetimes count steps: launches and, between them, calls of torch and marks of blocks, each with
    how many launches come before it. A buffer that a block uses and that is not of the block alone
    lives as long as the whole of it. Memory of these is named as operands name it, ("buffer",
    number) where the plan will say ("arena", offset).
    """

    buffers: tuple[Lifetime, ...]
    launches: tuple[LaunchBuffers, ...]
    calls: tuple[tuple[int, TorchCall | ControlStep], ...] = ()
    states: tuple[StateSlot, ...] = ()
    checks: tuple[Check, ...] = ()  # their ends extents of the graph

    def with_states(
        self, numbers: Sequence[int], states: tuple[StateSlot, ...]
    ) -> BufferAssignment:
        """The assignment with its states numbered among those of all entry points: `numbers` gives
        the new number of each."""

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
    writer = _Writer()
    ends = _Ends(
        tuple(("input", number) for number in range(len(graph.given))),
        tuple(("output", number) for number in range(len(graph.returned))),
        tuple(("state", number) for number in range(len(graph.states))),
        writer.add_checks(graph),
    )
    places = writer.schedule(schedule, ends)
    _write_earlier(schedule.groups, places, writer.buffers)
    return BufferAssignment(
        tuple(writer.buffers),
        tuple(writer.launches),
        tuple(writer.calls),
        states,
        tuple(writer.checks),
    )


@dataclass(frozen=True, slots=True)
class _Ends:
    """Where a graph's inputs, outputs, states and checks lie."""

    given: tuple[Place, ...]
    returned: tuple[Place, ...]
    states: tuple[Place, ...]
    first_check: int


@dataclass(slots=True)
class _Writer:
    """Writes the launches and calls of schedules one after the other, with the buffers between."""

    buffers: list[Lifetime] = field(default_factory=list)
    launches: list[LaunchBuffers] = field(default_factory=list)
    calls: list[tuple[int, TorchCall | ControlStep]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """How many there are by now."""
        return len(self.launches) + len(self.calls)

    def add_checks(self, graph: Graph) -> int:
        """The number of the first of a graph's checks."""
        first = len(self.checks)
        self.checks += (Check(**dict(node.attrs)) for node in graph.checks)
        return first

    def schedule(self, schedule: Schedule, ends: _Ends) -> dict[Node, Place]:
        """Where everything in it lies, once its steps are written."""
        places = _places(schedule, ends)
        updated = {before: after for group in schedule.groups for before, after in group.updates}
        for group in schedule.groups:
            first = self.steps
            own = []
            for place_in_group, root in enumerate(group.roots):
                if root.node not in places:
                    name = f"{first}.{place_in_group} {group.label}"
                    places[root.node] = self._buffer(name, root.node.type.nbytes)
                    if root.node in updated:
                        places[updated[root.node]] = places[root.node]
                    own.append(places[root.node])
            if group.kind == "control":
                self._control(group, places)
            elif group.kind == "torch":
                self.calls.append((len(self.launches), _call(group, places)))
            else:
                nodes = (*group.reads, *(root.node for root in group.roots))
                operands = tuple(_operand(group, node, *places[node]) for node in nodes)
                self.launches.append(LaunchBuffers(operands, len(group.roots)))
            # All of a block is one step to what it reads and stores: it may run again.
            for place in (*own, *(places[node] for node in group.reads)):
                self._keep(place)
            for root in group.roots if group.kind == "control" else ():
                self._keep(places[root.node])
        return places

    def _buffer(self, name: str, nbytes: Extent) -> Place:
        """A new buffer from here on."""
        self.buffers.append(Lifetime(name, nbytes, self.steps, self.steps))
        return "buffer", len(self.buffers) - 1

    def _keep(self, place: Place) -> None:
        """Extend a buffer's lifetime to the last step that is written."""
        space, value = place
        if space == "buffer" and isinstance(value, int):
            self.buffers[value] = replace(self.buffers[value], last=self.steps - 1)

    def _control(self, group: Group, places: Mapping[Node, Place]) -> None:
        """Writes a block of steps between control steps. Bodies read the node's operands in place,
        and store its results there."""
        call = group.root_op
        assert call is not None
        operands = [places[node] for node in call.inputs]
        results = [places[root.node] for root in group.roots]
        form, carried = call.attr("form"), len(call.attr("updates"))
        condition: Place | None = None
        if form == "branch":
            condition, *operands = operands
        elif form == "while":
            condition = self._buffer(f"{self.steps} condition", CONDITION_BYTES)
        given = tuple(operands[: len(operands) - carried])
        checks = {id(body): self.add_checks(body.graph) for body in group.bodies}
        for word, schedules in group.blocks:
            if word:
                named = condition if word in CONDITIONAL else None
                count: Any = call.attr("count") if word == "repeat" else 0
                self.calls.append((len(self.launches), ControlStep(word, named, count)))
            for body in schedules:
                first_check = checks[id(body)]
                if body.graph.states:
                    ends = _Ends(given, (), tuple(results), first_check)
                elif form == "while":
                    assert condition is not None
                    ends = _Ends((*given, *results), (condition,), (), first_check)
                else:
                    ends = _Ends(given, tuple(results), (), first_check)
                self.schedule(body, ends)
        if condition is not None:
            self._keep(condition)


def _places(schedule: Schedule, ends: _Ends) -> dict[Node, Place]:
    """Where the nodes are that are not buffers between the schedule's steps."""
    graph = schedule.graph
    given, returned = len(graph.given), len(graph.returned)
    places: dict[Node, Place] = dict(zip(graph.given, ends.given, strict=True))
    places |= zip(schedule.stored[:returned], ends.returned, strict=True)
    with_states = returned + len(graph.states)
    for nodes in (graph.inputs[given:], schedule.stored[returned:with_states]):
        places |= zip(nodes, ends.states, strict=True)
    for number, node in enumerate(schedule.stored[with_states:]):
        places.setdefault(node, ("check", ends.first_check + number))  # at some sizes two are one
    reads = (node for group in schedule.groups for node in group.reads)
    places |= {node: ("weight", node.attr("name")) for node in reads if node.op == "constant"}
    # What a call updates lies where its result will.
    updated = {before: after for group in schedule.groups for before, after in group.updates}
    for before, after in reversed(
        updated.items()
    ):  # the last of those that follow each other first
        if after in places:
            places[before] = places[after]
    return places


def _write_earlier(
    groups: Sequence[Group], places: Mapping[Node, tuple[str, int | str]], buffers: list[Lifetime]
) -> None:
    """Extend the lifetimes of buffers that other ranks write to back to the exchange before:
    another rank may have passed that one as soon as this rank has begun it."""
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
    """The memory of a graph's states, with their initial values."""
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
