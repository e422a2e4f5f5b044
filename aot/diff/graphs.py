"""What changed in a graph: nodes that only one of two has, and nodes that read others.

Two nodes correspond where they are the same op with the same attributes and type at corresponding
places of the two graphs' fixed orders: a longest common subsequence, as text comparisons take.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from aotc.aot.facts.graph_file import GraphFile, Line, Variant

COMPARED_LIMIT = 4000  # lines between equal ends; more are compared by their number alone


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node that is in one graph only (`removed`, `added`), or that reads other nodes
    (`rewired`): as the first graph has it, where it does, then as the second one."""

    kind: str
    call: str
    type: str
    source: str
    other: str = ""

    def __str__(self) -> str:
        sign = {"removed": "-", "added": "+", "rewired": "~"}[self.kind]
        became = f" → {self.other}" if self.other else ""
        source = f"  # {self.source}" if self.source else ""
        return f"{sign} {self.call} : {self.type}{became}{source}"


def changes(
    one: tuple[GraphFile, Variant], other: tuple[GraphFile, Variant]
) -> Iterator[NodeChange]:
    """What differs between two graphs, in the order of their nodes."""
    left, right = (list(file.lines(variant)) for file, variant in (one, other))
    pairs = _pairs(left, right)
    found = [(at, _change("removed", left[at])) for at in range(len(left)) if at not in pairs]
    places = {to: at for at, to in pairs.items()}
    after = [len(left)]  # backwards: the place in the first graph that each stands before
    for to in reversed(range(len(right))):
        after.append(places.get(to, after[-1]))
    found += [
        (place, _change("added", line))
        for to, (line, place) in enumerate(zip(right, reversed(after), strict=False))
        if to not in places
    ]
    for at, to in pairs.items():
        ours = [pairs.get(operand) for operand in left[at].operands]
        theirs = list(right[to].operands)
        if ours != theirs and None not in ours:
            change = _change("rewired", left[at])
            found.append((at, NodeChange(*_parts(change), other=right[to].call)))
    found.sort(key=lambda row: row[0])
    yield from (change for _, change in found)


def _parts(change: NodeChange) -> tuple[str, str, str, str]:
    return change.kind, change.call, change.type, change.source


def _change(kind: str, line: Line) -> NodeChange:
    return NodeChange(kind, f"%{line.number} = {line.call}", line.type, line.source)


def _pairs(left: Sequence[Line], right: Sequence[Line]) -> dict[int, int]:
    """Place in the first → place in the second graph of the nodes that correspond, as many as can
    be; equal ends are found first, so that a small change in a large graph costs little."""
    ours, theirs = (
        [(line.op, line.attributes, line.type) for line in each] for each in (left, right)
    )
    shorter = min(len(ours), len(theirs))
    head = next((at for at in range(shorter) if ours[at] != theirs[at]), shorter)
    rest = shorter - head
    tail = next((at for at in range(rest) if ours[-1 - at] != theirs[-1 - at]), rest)
    high, end = len(ours) - tail, len(theirs) - tail
    pairs = {at: at for at in range(head)}
    if max(high, end) - head <= COMPARED_LIMIT:
        inside = _common(ours[head:high], theirs[head:end])
        pairs |= {head + at: head + to for at, to in inside}
    return pairs | {high + at: end + at for at in range(tail)}


def _common(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> list[tuple[int, int]]:
    """The places of a longest common subsequence, last first.

    Row `to` of the table of its lengths is a number whose bit `at` is 0 where the length grows from
    `at` to `at + 1` (Hyyrö, Bit-parallel LCS-length computation revisited, 2004): time and memory
    are those of the product of both lengths in bits.
    """
    masks: dict[Hashable, int] = {}
    for at, line in enumerate(ours):
        masks[line] = masks.get(line, 0) | 1 << at
    whole = (1 << len(ours)) - 1
    rows = [whole]
    for line in theirs:
        row = rows[-1]
        same = row & masks.get(line, 0)
        rows.append(((row + same) | (row - same)) & whole)
    found = []
    at, to = len(ours), len(theirs)
    while at and to:
        if ours[at - 1] == theirs[to - 1]:
            at, to = at - 1, to - 1
            found.append((at, to))
        elif rows[to] >> (at - 1) & 1:
            at -= 1
        else:
            to -= 1
    return found
