"""Functionalises random ops of an ATen graph: drawn numbers become arguments of the graph.

An op that draws can be removed if its result depends only on sizes and numbers; the tensor that
some of them take only gives a layout. Others (`bernoulli` of tensors, `multinomial`, attention with
dropout on a CUDA device) stay in the graph without an import, and so do all draws after them: torch
runs these in the order of the graph (`regions.py`), so that each gets eager's numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from aotc.aot.capture.aten_graph import hints, read_dims
from aotc.aot.capture.sizes import Sizes, extent_of, reading
from aotc.aot.dynamo.devices import KINDS, ordinal_of
from aotc.aot.dynamo.random_ops import DROPOUT_MASK, RESTORING, SAVING, called, draws, may_draw
from aotc.aot.dynamo.recipe import Blank, RandomOp, RandomStep
from aotc.aot.ir.size import UndecidedSize
from aotc.aot.plan import SizeTable

FROM_SIZES = frozenset({
    "normal.float_float", "rand.default", "randint.default", "randint.low", "randn.default",
    "randperm.default",
})  # fmt: skip
FROM_A_LAYOUT = frozenset({
    "bernoulli.p", "cauchy.default", "exponential.default", "geometric.default",
    "log_normal.default", "normal_functional.default", "rand_like.default",
    "randint_like.default", "randint_like.low_dtype", "randn_like.default", "random.default",
    "random.from", "random.to", "uniform.default", f"{DROPOUT_MASK}.default",
})  # fmt: skip
VECTOR_BYTES = 16  # what kernels of torch read at once where addresses are multiples of it
PLAIN = int | float | bool | None | torch.dtype | torch.device | torch.layout | torch.memory_format


class _NotTaken(Exception):
    """The numbers that a node draws cannot be drawn before the graph runs."""


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A graph without the draws, whose last arguments are what they give."""

    drawn: RandomStep
    rest: GraphModule
    values: tuple[Any, ...]  # fake tensors, one a new argument


def keep_random(joint: GraphModule) -> None:
    """Mark random nodes so that the backward graph reads their numbers instead of drawing again."""
    for node in joint.graph.nodes:
        if may_draw(node.target):
            node.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)


def fix_states(module: GraphModule, examples: Sequence[Any]) -> list[Any]:
    """The examples of a graph, states of the generator as tensors of one size, which they have.

    torch's partitioner notes them with a size of the call, which nothing else shows, and notes
    nothing of what is drawn from them.
    """
    given = list(examples)
    places = {node: at for at, node in enumerate(module.graph.find_nodes(op="placeholder"))}
    for node in module.graph.nodes:
        if node.target is SAVING:
            for state in _parts(node, 0):
                state.meta["val"] = _at_its_size(state.meta["val"])
        elif node.target is RESTORING and node.args[0] in places:
            state, target, *args = node.args
            state.meta["val"] = given[places[state]] = _at_its_size(state.meta["val"])
            known = torch.fx.map_arg((args, node.kwargs), lambda each: each.meta["val"])
            with state.meta["val"].fake_mode:
                node.meta["val"] = target(*known[0], **known[1])
    return given


def _at_its_size(value: Any) -> Any:
    with value.fake_mode:
        return torch.empty(hints(value.shape), dtype=value.dtype)


def split(module: GraphModule, examples: Sequence[Any], sizes: Sizes) -> Split | None:
    """What a graph draws, and the rest of it; None where it draws nothing that can be taken out."""
    places = {node: at for at, node in enumerate(module.graph.find_nodes(op="placeholder"))}
    reader = _Reader(places, SizeTable(sizes.dims))
    found: list[tuple[Node, RandomOp]] = []
    with reading(sizes):
        for node in filter(draws, module.graph.nodes):
            draw = reader.draw(node)
            if draw is not None:
                found.append((node, draw))
            elif node.target is not RESTORING:  # which leaves the generator as it was
                break
    if not found:
        return None
    dims = read_dims(examples, sizes)
    drawn = RandomStep(tuple(draw for _, draw in found), dims, tuple(reader.table.rows))
    rows = [row for node, draw in found for row in _results(node, draw)]
    values = tuple(value for _, value in rows)
    return Split(drawn, _rest(module, list(places), rows, [node for node, _ in found]), values)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads nodes that draw; fills the table with the sizes that they need."""

    places: dict[Node, int]
    table: SizeTable

    def draw(self, node: Node) -> RandomOp | None:
        """The draw that a node is, if it can be taken out."""
        target, args = called(node)
        state: Any = node.args[0] if node.target is RESTORING else None
        is_known = state is None or state in self.places
        if not is_known or target.namespace not in ("aten", "aotc"):
            return None
        name = f"{target._schema.name.partition('::')[2]}.{target._overloadname}"
        if name not in FROM_SIZES | FROM_A_LAYOUT:
            return None
        try:
            given = tuple(map(self._plain, args))
            named = tuple((key, self._plain(each)) for key, each in node.kwargs.items())
        except (_NotTaken, UndecidedSize):
            return None
        place = None if state is None else self.places[state]
        ordinals = [each.ordinal for each in given if isinstance(each, Blank)]
        ordinals += [ordinal_of(each) for _, each in named]
        ordinal = next((each for each in ordinals if each is not None), None)
        return RandomOp(name, given, named, node.target is SAVING, place, ordinal)

    def _plain(self, value: Any) -> Any:
        """An argument as data; raises `_NotTaken`, `UndecidedSize`."""
        if isinstance(value, Node):
            return self._known(value.meta.get("val"))
        if isinstance(value, list | tuple):
            return tuple(map(self._plain, value))
        is_elsewhere = isinstance(value, torch.device) and value.type not in KINDS
        if is_elsewhere or not isinstance(value, PLAIN):
            raise _NotTaken
        return value

    def _known(self, value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            return self.table.numbered(extent_of(value))
        if not isinstance(value, torch.Tensor) or value.device.type not in KINDS:
            raise _NotTaken
        shape, strides = (
            tuple(self.table.numbered(extent_of(each)) for each in row)
            for row in (value.shape, value.stride())
        )
        if not value.is_cuda:
            return Blank(shape, strides, value.dtype)
        offset = self.table.numbered(extent_of(value.storage_offset()))
        if not isinstance(offset, int):
            raise _NotTaken
        begin = offset % (VECTOR_BYTES // value.element_size())
        return Blank(shape, strides, value.dtype, value.device.index or 0, begin)


def _results(node: Node, draw: RandomOp) -> list[tuple[tuple[Node, ...], Any]]:
    """For each tensor that a draw gives: the nodes that it is, and its fake value."""
    if not draw.saves_state:
        return [((node,), node.meta["val"])]
    rows = (_parts(node, place) for place in range(2))
    return [(row, row[0].meta["val"] if row else None) for row in rows]


def _parts(node: Node, place: int) -> tuple[Node, ...]:
    """The nodes that are one of a node's results."""
    users = (each for each in node.users if each.target is operator.getitem)
    return tuple(each for each in users if each.args[1] == place)


def _rest(
    module: GraphModule,
    placeholders: Sequence[Node],
    rows: Sequence[tuple[tuple[Node, ...], Any]],
    random_nodes: Sequence[Node],
) -> GraphModule:
    """The graph with an argument for each of `rows` behind its own."""
    graph = Graph()
    copies = {node: graph.node_copy(node) for node in placeholders}
    for number, (nodes, value) in enumerate(rows):
        given = graph.placeholder(f"drawn_{number}")
        given.meta["val"] = value
        copies.update(dict.fromkeys(nodes, given))
        # Of the others the parts are read, not they.
        unread = [node for node in random_nodes if node not in copies]
    copies.update(dict.fromkeys(unread, next(iter(copies.values()), None)))
    graph.output(graph.graph_copy(module.graph, copies))
    graph.eliminate_dead_code()
    return GraphModule(module, graph)
