"""The plan stage: Schedule and the chosen kernels → LaunchPlan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aotc.aot.ir.graph import Node
from aotc.aot.lower.spec import Scratch
from aotc.aot.plan.arena import Lifetime, place
from aotc.aot.schedule.group import Schedule
from aotc.runtime.plan import PLAN_ABI, Argument, Buffer, Image, Kernel, Launch, LaunchPlan


@dataclass(frozen=True, slots=True)
class ChosenKernel:
    """What a group became: the symbol in the library, a name for people, the grid in programs.

    `image`: where the kernel lies by itself, on a GPU. `scratch`: memory beside its parameters.
    """

    symbol: str
    name: str
    grid: tuple[int, int, int]
    image: Image | None = None
    scratch: tuple[Scratch, ...] = ()


def plan(schedule: Schedule, chosen: Sequence[ChosenKernel], scratch_bytes: int) -> LaunchPlan:
    """One launch a group, in the schedule's order; `chosen[i]` is the kernel of group i.

    Inputs and outputs are the caller's memory, constants are weights by name, all other roots are
    parts of the arena. No kernel's store overlaps with what it reads.
    """
    places = _places(schedule)
    lifetimes = _lifetimes(schedule, places)
    offsets, arena_bytes = place(list(lifetimes.values()))
    for node, offset in zip(lifetimes, offsets, strict=True):
        places[node] = ("arena", offset)
    rows = zip(lifetimes.values(), offsets, strict=True)
    kernels = {kernel.symbol: kernel for kernel in chosen}
    numbers = {symbol: number for number, symbol in enumerate(kernels)}
    launches = [
        Launch(
            numbers[kernel.symbol],
            kernel.grid,
            tuple(places[node] for node in (*group.reads, *(root.node for root in group.roots))),
        )
        for group, kernel in zip(schedule.groups, chosen, strict=True)
    ]
    return LaunchPlan(
        abi=PLAN_ABI,
        arena_bytes=arena_bytes,
        scratch_bytes=scratch_bytes,
        buffers=tuple(Buffer(row.name, offset, row.nbytes) for row, offset in rows),
        kernels=tuple(Kernel(row.symbol, row.name, row.image) for row in kernels.values()),
        launches=tuple(launches),
    )


def _places(schedule: Schedule) -> dict[Node, Argument]:
    """Addresses outside the arena: inputs, outputs and weights."""
    graph = schedule.graph
    places: dict[Node, Argument] = {
        node: ("input", number) for number, node in enumerate(graph.inputs)
    }
    places |= {node: ("output", number) for number, node in enumerate(schedule.stored)}
    for group in schedule.groups:
        for node in group.reads:
            if node.op == "constant":
                places[node] = ("weight", node.attr("name"))
    return places


def _lifetimes(schedule: Schedule, places: dict[Node, Argument]) -> dict[Node, Lifetime]:
    """For each root in the arena the launches that need it."""
    found: dict[Node, Lifetime] = {}
    for number, group in enumerate(schedule.groups):
        for node in group.reads:
            if node in found:
                known = found[node]
                found[node] = Lifetime(known.name, known.nbytes, known.first, number)
        for place_in_group, root in enumerate(group.roots):
            if root.node not in places:
                name = f"{number}.{place_in_group} {group.label}"
                found[root.node] = Lifetime(name, root.node.type.nbytes, number, number)
    return found
