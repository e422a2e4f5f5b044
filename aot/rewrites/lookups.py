"""Scatters of few values as gathers: each element looks up what is written to it.

Such a scatter needs neither a launch of its own nor a copy of the data, and fuses with the ops
around it. It compares every element's place with every written place, so scatters of many values
are left to a kernel that writes them one after the other: on a CPU from a small number on, on a
GPU, which has thousands of lanes, from a much larger one. Dynamic sizes must be small at every
call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, made_for, make
from aotc.aot.ir.reductions import REDUCTIONS, Reduction
from aotc.aot.ir.size import Extent, proves_at_most

MOST_ON_GPU = 1 << 22  # comparisons of a place with a write
MOST_ON_CPU = 1 << 14
_OF_A_STATE = ("reshape", "cast", "scatter_rows")  # behind which its own memory is written


def look_up_on_gpu(graph: Graph) -> tuple[Graph, int]:
    """`graph` with few writes as lookups, and how many there are."""
    return _look_up(graph, MOST_ON_GPU)


def look_up_on_cpu(graph: Graph) -> tuple[Graph, int]:
    """The same for processors; what depends on no input is computed by the build, as lookups."""
    return _look_up(graph, MOST_ON_CPU)


def _look_up(graph: Graph, most: int) -> tuple[Graph, int]:
    given: set[Node] = set()  # what depends on an input
    wanted: set[Node] = set()
    states = set(graph.inputs[len(graph.given) :])
    for node in graph.nodes():
        if node.op == "input" or not given.isdisjoint(node.inputs):
            given.add(node)
        if node.op != "scatter_rows" or _is_state(node, states):
            continue
        if proves_at_most(_comparisons(node), most if node in given else MOST_ON_GPU):
            wanted.add(node)

    def change(node: Node, made: Node) -> Node:
        if node not in wanted:
            return made
        with made_for(node.source):
            return _looked_up(made)

    return graph.rebuilt(change), len(wanted)


def _is_state(node: Node, states: set[Node]) -> bool:
    while node.op in _OF_A_STATE:
        node = node.inputs[0]
    return node in states


def _comparisons(node: Node) -> Extent:
    """Places by writes: arithmetic looks at every element of the source, the last of several writes
    is found once for all elements with the same place."""
    _, index, source = node.inputs
    pairs = (index if node.attr("merge") == "replace" else source).type.numel
    return node.shape[node.attr("axis")] * pairs


def _looked_up(node: Node) -> Node:
    data, index, source = node.inputs
    axis, merge = node.attr("axis"), node.attr("merge")
    found = _writes(index, source, axis, data)
    if merge == "replace":
        literal = literal_of(source)
        return build.where(found.is_written, found.last if literal is None else literal, data)
    how = REDUCTIONS[merge]
    total = build.pointwise(how.combine, data, found.reduced(how))
    if merge == "sum" and data.type.kind == "float" and not _is_zero(data):
        total = build.where(found.changes_zeros, total, data)
    return total


def literal_of(source: Node) -> Node | None:
    """The number that all elements are."""
    while source.op in ("expand", "reshape"):
        (source,) = source.inputs
    return source if source.op == "scalar" else None


def _is_zero(data: Node) -> bool:
    """Whether every element is the literal 0.0."""
    while data.op in ("expand", "reshape", "cast"):
        data = data.inputs[0]
    return data.op == "scalar" and math.copysign(1.0, data.attr("value")) > 0 == data.attr("value")


@dataclass(frozen=True, slots=True)
class _Writes:
    """Values on their way to places along one axis: pairs `[.., n, m, ..]` at axis and axis + 1."""

    is_hit: Node  # bool, whether write m goes to place n
    axis: int
    source: Node  # values `[.., m, ..]`

    @property
    def is_written(self) -> Node:
        """Bool `[.., n, ..]`: whether anything is written to the place."""
        return self._dropped(build.reduce("any", self.is_hit, (self.axis + 1,)))

    @property
    def last(self) -> Node:
        """The value written last to each place, anything where none is."""
        rank = self.is_hit.type.rank
        order = build.counter(rank, self.axis + 1, self.is_hit.shape[self.axis + 1])
        order = build.cast(order, "i32")
        places = build.where(self.is_hit, order, 0)
        winner = self._dropped(build.reduce("max", places, (self.axis + 1,)))
        shape = list(self.source.shape)
        shape[self.axis] = winner.shape[self.axis]
        winner = build.expand(winner, shape)
        return make("gather", (self.source, winner), {"axis": self.axis})

    def reduced(self, how: Reduction) -> Node:
        """All values written to each place, reduced; the identity where there is none."""
        shape = self.source.shape
        across = build.reshape(self.source, (*shape[: self.axis], 1, *shape[self.axis :]))
        identity = how.identity(self.source.dtype)
        masked = build.where(self.is_hit, across, identity)
        return self._dropped(build.extreme(how.name, masked, (self.axis + 1,)))

    @property
    def changes_zeros(self) -> Node:
        """Bool `[.., n, ..]`: whether another float than -0.0 is written, which a sum that begins
        with 0.0 cannot tell from none."""
        shape, source = self.source.shape, self.source
        # 1 / -0.0 is -inf.
        has_sign = build.where(build.equal(source, 0.0), 1.0 / source, source) < 0.0
        changes = build.pointwise("ne", source, 0.0) | ~has_sign
        across = build.reshape(changes, (*shape[: self.axis], 1, *shape[self.axis :]))
        return self._dropped(build.reduce("any", self.is_hit & across, (self.axis + 1,)))

    def _dropped(self, data: Node) -> Node:
        return build.drop(data, (self.axis + 1,))


def _writes(index: Node, source: Node, axis: int, data: Node) -> _Writes:
    """Writes of `source` at the places `index`, both `[.., m, ..]`."""
    pairs = build.reshape(index, (*index.shape[:axis], 1, *index.shape[axis:]))
    counter = build.counter(index.type.rank + 1, axis, data.shape[axis])
    return _Writes(build.equal(pairs, build.cast(counter, index.dtype)), axis, source)
