"""The order in which groups run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush

from aotc.aot.errors import InternalError
from aotc.aot.ir.graph import Node
from aotc.aot.ir.size import typical
from aotc.aot.schedule.calls import MEMORY_KINDS
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.trace import STORED

_Place = tuple[int, int]
# Results smaller than this do not move to their readers; nor do others for less at the peak.
MOVED_BYTES = 1 << 20


def ordered(groups: Sequence[Group], kept: Collection[Node]) -> tuple[Group, ...]:
    """Groups in topological order; among those that are ready, in the order of the graph.

    A group that could run long before its results are read, such as a copy of what a backward graph
    is given, runs just before its first reader, so that its memory is free until then. Groups that
    no other group depends on, such as gradients of weights, run as early as possible if that lowers
    the peak of memory, since their operands are then freed early. kept: outputs, whose memory is
    not in the arena.
    """
    made = _topological(groups, [(0, number) for number in range(len(groups))])
    found = _late(made, kept)
    other = _late(_topological(made, _with_ends_early(made)), kept)
    return other if _peak_bytes(other, kept) + MOVED_BYTES <= _peak_bytes(found, kept) else found


def _with_ends_early(groups: Sequence[Group]) -> list[_Place]:
    """The places of groups, which are in topological order, with each group that no other depends
    on moved behind the last one that it depends on. Groups that only it depends on move with it, if
    they depend on nothing but arguments and each other."""
    maker = {root.node: number for number, group in enumerate(groups) for root in group.roots}
    awaited = [{maker[node] for node in group.reads if node in maker} for group in groups]
    readers: list[set[int]] = [set() for _ in groups]
    for number, makers in enumerate(awaited):
        for each in makers:
            readers[each].add(number)
    updated = {node for group in groups for pair in group.updates for node in pair}
    is_moved = [
        group.kind not in MEMORY_KINDS
        and updated.isdisjoint((*group.reads, *(root.node for root in group.roots)))
        for group in groups
    ]
    is_free: list[bool] = []  # waits for nothing but arguments
    for number, makers in enumerate(awaited):
        is_free.append(is_moved[number] and all(is_free[at] for at in makers))
    found = [(number, 0) for number in range(len(groups))]
    for number in range(len(groups)):
        if readers[number] or not is_moved[number]:
            continue
        own, waiting = {number}, [-at for at in awaited[number]]
        heapify(waiting)
        while waiting:  # the last first, behind all its readers
            at = -heappop(waiting)
            if is_free[at] and at not in own and readers[at] <= own:
                own.add(at)
                for each in awaited[at]:
                    heappush(waiting, -each)
        others = {each for at in own for each in awaited[at]} - own
        if others:
            for at in own:
                found[at] = max(others), 1
    return found


def _topological(groups: Sequence[Group], order: Sequence[_Place]) -> list[Group]:
    """Among those that are ready, the one first by `order`, and by number."""
    readers: dict[Node, list[int]] = {}  # numbers of the groups that wait for a node
    missing: list[int] = []  # nodes that each group waits for
    for number, group in enumerate(groups):
        reads = {node for node in group.reads if node.op not in STORED}
        missing.append(len(reads))
        for node in reads:
            readers.setdefault(node, []).append(number)
    ready = [(order[number], number) for number, count in enumerate(missing) if not count]
    heapify(ready)
    found: list[Group] = []
    while ready:
        found.append(groups[heappop(ready)[1]])
        for root in found[-1].roots:
            for number in readers.pop(root.node, ()):
                missing[number] -= 1
                if not missing[number]:
                    heappush(ready, (order[number], number))
    if len(found) < len(groups):
        left = (group.label for group, count in zip(groups, missing, strict=True) if count)
        detail = f"kernels wait for each other: {', '.join(left)}"
        raise InternalError(stage="schedule", detail=detail)
    return found


def _peak_bytes(groups: Sequence[Group], kept: Collection[Node]) -> int:
    """The largest number of bytes that results occupy at a time, without those of `kept`, each from
    the group that stores it to its last reader. What is updated in place counts twice."""
    last = {node: number for number, group in enumerate(groups) for node in group.reads}
    ending: dict[int, int] = {}
    live = peak = 0
    for number, group in enumerate(groups):
        for root in group.roots:
            if root.node not in kept:
                nbytes = _nbytes(root.node)
                live += nbytes
                end = last.get(root.node, number)
                ending[end] = ending.get(end, 0) + nbytes
        peak = max(peak, live)
        live -= ending.pop(number, 0)
    return peak


def _late(groups: Sequence[Group], kept: Collection[Node]) -> tuple[Group, ...]:
    """Groups moved to just before their first readers where that keeps less memory: where what
    they store is larger than what is kept for them to read until then."""
    readers: dict[Node, list[int]] = {}
    for number, group in enumerate(groups):
        for node in group.reads:
            readers.setdefault(node, []).append(number)
    updated = {before for group in groups for before, _ in group.updates}
    place = list(range(len(groups)))  # each group runs before the one that had this number
    for number in reversed(range(len(groups))):
        group = groups[number]
        own = [root.node for root in group.roots]
        behind = [place[reader] for node in own for reader in readers.get(node, ())]
        if group.kind in MEMORY_KINDS or not behind or updated.intersection(own, group.reads):
            continue
        last = min(behind)
        stored = sum(_nbytes(node) for node in own if node not in kept)
        held = sum(
            _nbytes(node)
            for node in group.reads
            if node.op not in STORED and max(place[each] for each in readers[node]) < last
        )
        if stored >= MOVED_BYTES and stored > held:
            place[number] = last
    numbers = sorted(range(len(groups)), key=lambda number: (place[number], number))
    return tuple(groups[number] for number in numbers)


def _nbytes(node: Node) -> int:
    return typical(node.type.nbytes)
