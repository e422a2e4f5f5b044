"""Lookups at constant places that form few runs, as concatenations of slices (CPU).

torch decomposes a roll into a lookup of `(i + shift) % n`, and reflection and replication padding
into lookups of distances. A processor would gather such elements one by one; runs of consecutive,
reversed or equal elements are read by vectors. Rows of at least a vector are read by vectors
anyway, so there the lookup stays, one place for each row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, make, walk
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.size import is_static, proves_at_most

ROW = 16  # elements within a place, from which it is a row
MOST_RUNS = 4  # each is read with a mask of its own
MOST_PLACES = 1 << 16  # that are computed at build time
FROM_COUNTERS = frozenset({"iota", "scalar", "reshape", "expand", "cast"})
STEPS = (1, -1, 0)  # of places that follow each other


def join_runs(graph: Graph) -> tuple[Graph, int]:
    """x[places] → the runs of places, joined; how many."""
    joined: set[Node] = set()

    def change(node: Node, new: Node) -> Node:
        runs = _runs_of(new)
        if not runs:
            return new
        joined.add(node)
        (data, _), axis = new.inputs, new.attr("axis")
        return build.concat([_part(data, axis, run) for run in runs], axis)

    found = graph.rebuilt(change)
    return (found, len(joined)) if joined else (graph, 0)


def _runs_of(node: Node) -> list[list[int]]:
    """The places of a look-up in runs; none where they are not known, or in too many."""
    if node.op != "take" or node.inputs[1].type.rank != 1:
        return []
    data, places = node.inputs
    extent, (count,) = data.shape[node.attr("axis")], places.shape
    if not is_static((extent, count)) or not 1 < count <= MOST_PLACES:
        return []
    if proves_at_most(ROW, math.prod(data.shape[node.attr("axis") + 1 :])):
        return []
    if not all(map(_is_counted, walk((places,)))):
        return []
    (found,) = interpret(Graph((), (places,), (), ("places",), {}), [])
    values = [int(each) for each in found]
    if not 0 <= min(values) <= max(values) < extent:
        return []  # the look-up says what these are
    runs = _split(values)
    return runs if len(runs) <= MOST_RUNS else []


def _is_counted(node: Node) -> bool:
    """Whether what a node gives is known where its operands are."""
    is_computed = node.op in FROM_COUNTERS or node.kind == "pointwise"
    return is_computed and not OPS[node.op].is_opaque


def _split(values: Sequence[int]) -> list[list[int]]:
    """Numbers in runs that go up by 1, down by 1 or stay."""
    runs = [[values[0]]]
    for before, value in pairwise(values):
        step, last = value - before, runs[-1]
        goes_on = step in STEPS if len(last) == 1 else step == last[1] - last[0]
        if goes_on:
            last.append(value)
        else:
            runs.append([value])
    return runs


def _part(data: Node, axis: int, run: Sequence[int]) -> Node:
    """The elements of one run along an axis."""
    low, high = min(run), max(run)
    part = build.slice_axis(data, axis, low, high + 1)
    if low == high:
        return build.expand(part, (*part.shape[:axis], len(run), *part.shape[axis + 1 :]))
    return part if run[0] == low else make("flip", (part,), {"axes": (axis,)})
