"""Rotary embedding: queries and keys that lie side by side are rotated by one kernel.

`x·cos + [-x₂ x₁]·sin` over `[B, T, heads, size]`, or `[B, heads, 1, size]` in decoding, written
once for the queries and once for the keys, becomes one expression over the heads of both, sliced
afterwards: slices cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, made_for, make
from aotc.aot.ir.match import any_node, call, match
from aotc.aot.ir.size import Shape, fixed

x, cos, sin = any_node("x"), any_node("cos"), any_node("sin")
_ROTATED = call(
    "concat", -call("slice", x, name="second"), call("slice", x, name="first"), axis="a"
)
_ROTARY = x * cos + _ROTATED * sin
SIZE = 3  # the axis along a head


@dataclass(frozen=True, slots=True)
class _Rotary:
    """One such expression: its factors, and the columns of `source` that hold its heads."""

    node: Node
    heads: int  # the axis along the heads
    cos: Node
    sin: Node
    source: Node
    start: int
    stop: int

    @property
    def key(self) -> tuple[object, ...]:
        """What those that can be joined have in common."""
        others = tuple(0 if at == self.heads else dim for at, dim in enumerate(self.node.shape))
        return self.source, self.cos, self.sin, others, self.heads


def join_rotaries(graph: Graph) -> tuple[Graph, int]:
    """`graph` with rotary embeddings of neighbouring heads in one, and how many were joined."""
    groups: dict[tuple[object, ...], list[_Rotary]] = {}
    for node in graph.nodes():
        found = _rotary(node)
        if found is not None:
            groups.setdefault(found.key, []).append(found)
    replaced: dict[Node, Node] = {}
    for members in groups.values():
        members.sort(key=lambda member: member.start)
        are_neighbours = all(left.stop == right.start for left, right in pairwise(members))
        if len(members) > 1 and are_neighbours:
            with made_for(members[0].node.source):
                replaced.update(_joined(members))
    return graph.replaced(replaced), len(replaced)


def _rotary(node: Node) -> _Rotary | None:
    """The node as a rotary embedding of heads cut out of the columns of a matrix, if it is one."""
    found = match(_ROTARY, node) if node.op == "add" and node.type.rank == SIZE + 1 else None
    if found is None or found["x"].shape != node.shape or found["x"].op != "reshape":
        return None
    size = fixed(node.shape[SIZE])
    halves = (found["first"], 0, size // 2), (found["second"], size // 2, size)
    is_half = size % 2 == 0 and found["a"] == SIZE
    if not is_half or not all(_cuts(part, SIZE, *ends) for part, *ends in halves):
        return None
    (columns,) = found["x"].inputs
    if columns.op != "slice" or columns.type.rank != 2 or columns.attr("axis") != 1:
        return None
    heads = _heads(node.shape, columns.shape)
    factors = [factor for factor in (found["cos"], found["sin"]) if factor.type.rank]
    if heads is None or any(factor.shape[heads] != 1 for factor in factors):
        return None
    start, stop = columns.attr("start"), columns.attr("stop")
    if stop - start != columns.shape[1]:
        return None
    return _Rotary(node, heads, found["cos"], found["sin"], columns.inputs[0], start, stop)


def _heads(shape: Shape, columns: Shape) -> int | None:
    """The axis of the heads, where each row of a matrix holds all heads side by side."""
    if columns == (shape[0] * shape[1], shape[2] * shape[3]):
        return 2
    return 1 if shape[2] == 1 and columns == (shape[0], shape[1] * shape[3]) else None


def _cuts(part: Node, axis: int, start: int, stop: int) -> bool:
    """Whether a slice takes the elements from start to stop of the axis."""
    wanted = {"axis": axis, "start": start, "stop": stop, "step": 1}
    return dict(part.attrs) == wanted


def _joined(members: list[_Rotary]) -> dict[Node, Node]:
    """Each expression as a slice of the one over all heads."""
    first, last = members[0], members[-1]
    axis, size = first.heads, fixed(first.node.shape[SIZE])
    columns = build.slice_axis(first.source, 1, first.start, last.stop)
    shape = list(first.node.shape)
    shape[axis] = sum(member.node.shape[axis] for member in members)
    whole = build.reshape(columns, shape)
    second = -build.slice_axis(whole, SIZE, size // 2, size)
    rotated = build.concat([second, build.slice_axis(whole, SIZE, 0, size // 2)], SIZE)
    result = make("mul", (whole, first.cos)) + make("mul", (rotated, first.sin))
    found, start = {}, 0
    for member in members:
        stop = start + fixed(member.node.shape[axis])
        found[member.node] = build.slice_axis(result, axis, start, stop)
        start = stop
    return found
