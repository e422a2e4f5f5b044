"""Blocks of memory for tensors that a forward program saves for its backward program.

Tensors that only the backward graph will see are placed in one block for each program that computes
them. The block also holds intermediates: of the forward program where no result is written yet, of
a backward program where no argument is read any more (`plan/blocks.py`). Other intermediates use
memory of torch's allocator for the duration of a call. So the peak of a step is not far above what
is saved, and sessions hold hardly any memory between calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from aotc.aot.capture.aten_graph import STORAGE_OFFSETS, base_of
from aotc.aot.capture.aten_signature import Given, Made, Passed, Taken, Viewed
from aotc.aot.dynamo.call_blocks import Blocks, CallBlock
from aotc.aot.dynamo.joint_graph import READS_STORAGE, Ends, JointGraph, Kept
from aotc.aot.dynamo.regions import Region
from aotc.aot.ir.graph import Graph
from aotc.aot.ir.graph import Node as GraphNode
from aotc.aot.ir.size import fixed
from aotc.aot.plan.arena import aligned
from aotc.aot.plan.blocks import Block, Member, Scratch
from aotc.aot.plan.plan import GPU_ALIGNMENT_BYTES
from aotc.runtime.bundle.signature import TensorSpec

ON_PROCESSORS = False  # there fresh memory costs more than an arena that stays
LEAST_BYTES = 1 << 20  # of a block
SMALL_BYTES = 1 << 18  # of a result, below which it lies with others of its size
UNSAFE_VIEW = torch.ops.aten._unsafe_view.default  # whose schema does not say that it is one
Results = Sequence[Any]


@dataclass(frozen=True, slots=True)
class GivenBlock:
    """A block that arguments of a region lie in. members: (place of the argument, where it lies) of
    those that nothing reads after the region; held: as `plan.blocks.Block` has it."""

    nbytes: int
    members: tuple[tuple[int, Kept], ...]
    held: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class RegionEnds:
    """What a region has to do with blocks. results: those that may lie in one, by number, with
    their number among the arguments of the backward graph; given: blocks of its arguments."""

    joint: JointGraph | None = None
    results: Mapping[int, int] = field(default_factory=dict)
    given: tuple[GivenBlock, ...] = ()


NO_REGION_ENDS = RegionEnds()


def note_storage_reads(forward: GraphModule, backward: GraphModule) -> None:
    """Note on a forward graph whether it or its backward graph asks for places in storages, which
    would be others in a block."""
    nodes = (*forward.graph.nodes, *backward.graph.nodes)
    if any(node.target in STORAGE_OFFSETS for node in nodes):
        (output,) = forward.graph.find_nodes(op="output")
        output.meta[READS_STORAGE] = True


# -- what regions have of blocks -------------------------------------------------------------------


def whole_ends(module: GraphModule, ends: Ends) -> RegionEnds:
    """The ends of a graph that is one region."""
    own = _donated(module, ends)
    numbered = {at: own[node] for at, node in enumerate(_results(module)) if node in own}
    if not ends.arguments:
        return RegionEnds(ends.joint, numbered)
    arguments = module.graph.find_nodes(op="placeholder")
    needed = set(map(_memory, _nodes(module)))
    return RegionEnds(ends.joint, numbered, _given(ends, arguments, arguments, needed, set()))


def region_ends(module: GraphModule, parts: Sequence[Region], ends: Ends) -> list[RegionEnds]:
    """The ends of each region of a graph."""
    own = _donated(module, ends)
    rows = [
        {at: own[node] for at, node in enumerate(part.results) if node in own} for part in parts
    ]
    if not ends.arguments:
        return [RegionEnds(ends.joint, row) for row in rows]
    placeholders = module.graph.find_nodes(op="placeholder")
    later = set(map(_memory, _nodes(module)))
    found: list[tuple[GivenBlock, ...]] = []
    for part in reversed(parts):
        seen = Counter(map(_memory, part.arguments))
        shared = {node for node, count in seen.items() if count > 1}
        needed = later | set(map(_memory, part.results))
        found.append(_given(ends, placeholders, part.arguments, needed, shared))
        later |= set(seen)
    return [RegionEnds(ends.joint, *pair) for pair in zip(rows, reversed(found), strict=True)]


def _donated(module: GraphModule, ends: Ends) -> dict[Node, int]:
    """Results that may lie in a block, by what argument of the backward graph they are: no other
    result is a view of the same memory."""
    results, counts = _results(module), Counter(map(_memory, _nodes(module)))
    return {
        results[at]: argument
        for at, argument in ends.results.items()
        if isinstance(results[at], Node) and counts[_memory(results[at])] == 1
    }


def _memory(node: Node) -> Node:
    """The node in whose memory a node lies."""
    base = base_of(node)
    while base.target is UNSAFE_VIEW and isinstance(base.args[0], Node):
        base = base_of(base.args[0])
    return base


def _nodes(module: GraphModule) -> list[Node]:
    return [each for each in _results(module) if isinstance(each, Node)]


def _given(
    ends: Ends,
    placeholders: Sequence[Node],
    arguments: Sequence[Node],
    needed: set[Node],
    shared: set[Node],
) -> tuple[GivenBlock, ...]:
    """The blocks in which arguments of a region lie that nothing reads after it.

    needed: whose memory is read later or is a result's; shared: whose memory several arguments are.
    """
    assert ends.joint is not None
    kept = {placeholders[at]: row for at, row in ends.arguments.items()}
    places = {node: at for at, node in enumerate(arguments)}
    members: dict[int, list[tuple[int, Kept]]] = {}
    for node, at in places.items():
        if node in kept and node not in needed and node not in shared:
            members.setdefault(kept[node].block, []).append((at, kept[node]))
    read = set(map(_memory, arguments))
    found = []
    for number, rows in members.items():
        own = {at for at, _ in rows}
        held = tuple(
            (row.start, row.start + row.nbytes)
            for node, row in kept.items()
            if row.block == number and places.get(node) not in own and node in needed | read
        )
        found.append(GivenBlock(ends.joint.sizes[number], tuple(rows), held))
    return tuple(found)


def _results(module: GraphModule) -> Results:
    (node,) = module.graph.find_nodes(op="output")
    return node.args[0]  # type: ignore[no-any-return]


# -- what programs and calls have of them ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Laid:
    """The blocks of a region's program, for the plan and for its calls; kept: where results lie,
    by the argument of the backward graph. None where all intermediates are the arena's."""

    blocks: tuple[Block, ...] | None = None
    calls: tuple[CallBlock, ...] = ()
    kept: Mapping[int, Kept] = field(default_factory=dict)

    def at_calls(self, more: Sequence[TensorSpec]) -> Blocks:
        """Those of calls of the program; more: its outputs beyond the graph's."""
        found = [Scratch.of(spec) for spec in more]
        own = (
            (CallBlock(0, True, ()),) if any(row.block == len(self.calls) for row in found) else ()
        )
        rows = []
        for at, each in enumerate((*self.calls, *own)):
            ends = (row.alone + row.nbytes for row in found if row.block == at)
            rows.append(replace(each, scratch_bytes=max(ends, default=0)))
        return Blocks(tuple(rows), tuple((row.block, row.start, row.alone) for row in found))

    def register(self, joint: JointGraph | None) -> None:
        """Note where results lie, once there is a program that lays them so."""
        if joint is not None and self.kept:
            joint.kept.update(self.kept)
            joint.sizes += [each.nbytes for each in self.calls if each.is_made]


def laid(
    ends: RegionEnds, graph: Graph, taken: Sequence[Any], made: Sequence[Made], results: Results
) -> Laid:
    """The blocks of a program: that of its own results, and those that its arguments lie in.

    taken, made, results: as `Interface` has them; the graph's shapes are fixed.
    """
    blocks: list[Block] = []
    calls: list[CallBlock] = []
    kept: dict[int, Kept] = {}
    rows = _in_order(_alone(ends, made, results), graph)
    if rows and ends.joint is not None:
        number, end = len(ends.joint.sizes), 0
        members = []
        for output, argument in rows:
            nbytes = fixed(graph.returned[output].type.nbytes)
            members.append(Member("output", output, end, nbytes))
            kept[argument] = Kept(number, end, nbytes)
            end += aligned(nbytes, GPU_ALIGNMENT_BYTES)
        if end >= LEAST_BYTES:
            blocks.append(Block(end, tuple(members)))
            calls.append(CallBlock(end, True, tuple((each.number, each.start) for each in members)))
        else:
            kept.clear()
    shown = {each.place for each in results if isinstance(each, Passed)}
    shown |= {each.place for each in results if isinstance(each, Viewed) and each.is_argument}
    for block in ends.given:
        read = [
            Member("input", number, row.start, row.nbytes)
            for place, row in block.members
            for number, each in enumerate(taken)
            if isinstance(each, Taken) and each.place == place
        ]
        also = [row for place, row in block.members if place in shown]
        held = (*block.held, *((row.start, row.start + row.nbytes) for row in also))
        if read:
            blocks.append(Block(block.nbytes, tuple(read), held))
            places = tuple((each.number, each.start) for each in read)
            calls.append(CallBlock(block.nbytes, False, places))
    return Laid(tuple(blocks), tuple(calls), kept)


def _in_order(rows: Sequence[tuple[int, int]], graph: Graph) -> list[tuple[int, int]]:
    """Results in the order in which they can be made, which the backward graph reads the other way
    round: what is free at a time lies together. Small ones, some of which are read late, go first,
    where they part no space."""
    depths: dict[GraphNode, int] = {}
    for node in graph.nodes():
        depths[node] = 1 + max((depths[each] for each in node.inputs), default=0)

    def place(row: tuple[int, int]) -> tuple[bool, int, tuple[int, int]]:
        node = graph.returned[row[0]]
        return fixed(node.type.nbytes) >= SMALL_BYTES, depths[node], row

    return sorted(rows, key=place)


def _alone(ends: RegionEnds, made: Sequence[Made], results: Results) -> list[tuple[int, int]]:
    """(output, argument of the backward graph) for results that are an output as it lies, and in
    whose memory no other result is."""
    outputs = Counter(each.number for each in results if isinstance(each, Given))
    outputs.update(
        each.place for each in results if isinstance(each, Viewed) and not each.is_argument
    )
    found = []
    for at, argument in ends.results.items():
        row = results[at]
        if isinstance(row, Given) and outputs[row.number] == 1 and made[row.number].strides is None:
            found.append((row.number, argument))
    return sorted(found)
