"""The order in which groups run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heappop, heappush

from aotc.aot.errors import InternalError
from aotc.aot.ir.graph import Node
from aotc.aot.ir.size import typical
from aotc.aot.schedule.calls import MEMORY_KINDS
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.trace import STORED

# Results smaller than this stay where the graph has them.
MOVED_BYTES = 1 << 20


def ordered(groups: Sequence[Group], kept: Collection[Node]) -> tuple[Group, ...]:
    """Topological order; among those that are ready, the one made first by the graph's order.

    A group that could run long before anything reads its results, as copies of what a backward
    graph is given could, runs just before its first reader: nothing holds its memory meanwhile.
    kept: outputs, whose memory is not the arena's.
    """
    return _late(_topological(groups), kept)


def _topological(groups: Sequence[Group]) -> list[Group]:
    readers: dict[Node, list[int]] = {}  # numbers of the groups that wait for a node
    missing: list[int] = []  # nodes that each group waits for
    for number, group in enumerate(groups):
        reads = {node for node in group.reads if node.op not in STORED}
        missing.append(len(reads))
        for node in reads:
            readers.setdefault(node, []).append(number)
    ready = [number for number, count in enumerate(missing) if not count]  # sorted, so a heap
    found: list[Group] = []
    while ready:
        found.append(groups[heappop(ready)])
        for root in found[-1].roots:
            for number in readers.pop(root.node, ()):
                missing[number] -= 1
                if not missing[number]:
                    heappush(ready, number)
    if len(found) < len(groups):
        left = (group.label for group, count in zip(groups, missing, strict=True) if count)
        detail = f"kernels wait for each other: {', '.join(left)}"
        raise InternalError(stage="schedule", detail=detail)
    return found


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
