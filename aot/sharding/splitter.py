"""What a rank has of each value of a graph, and what makes parts and sums of values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy

from aotc.aot.ir import build
from aotc.aot.ir.constants import stored_constant
from aotc.aot.ir.graph import Constant, Graph, Node, State, fixed_constants, made_for, make
from aotc.aot.ir.infer import EXCHANGE_PROGRAMS
from aotc.aot.ir.rules import Context
from aotc.aot.ir.size import Shape, is_static, typical
from aotc.aot.ir.types import TensorType

TWO_STEPS_BYTES = 1 << 18  # of partial sums that are added up a part by each rank
RANK, STATUS = "rank", "exchange"


@dataclass(frozen=True, slots=True)
class Sharded:
    """A value of the model on a rank: whole, or one of equal parts along `axis`."""

    node: Node
    axis: int | None = None


class StateSplit(Exception):
    """A state is written with values that are split: it is split too, from the beginning."""


class Splitter:
    """Splits one graph; `constants` collects what it makes of weights."""

    def __init__(
        self,
        graph: Graph,
        ranks: int,
        state_axes: dict[str, int],
        least_bytes: int,
        rule: Callable[[Splitter, Node], Sharded],
    ) -> None:
        """state_axes: by the name of a state, of all entries; more are added. rule: what a rank
        has of a node, by what it has of its operands."""
        self.graph, self.ranks, self.least_bytes = graph, ranks, least_bytes
        self.state_axes = state_axes
        self.states = dict(zip(graph.inputs[len(graph.given) :], graph.states, strict=True))
        self.constants = dict(graph.constants)
        self.fixed = fixed_constants(graph.constants)  # whose values may be looked at
        self.exchanges = 0
        self._rule = rule
        self._values = {node: self._given(node) for node in graph.inputs}
        self._context = Context()
        self._whole: dict[Node, Node] = {}  # of parts
        zeros = build.expand(build.scalar(0, "i32"), (EXCHANGE_PROGRAMS,))
        self.status = make("copy", (zeros,), {"tag": STATUS})

    def _given(self, node: Node) -> Sharded:
        """What a rank has of an input: all, or its part of a state."""
        state = self.state_of(node)
        axis = None if state is None else self.state_axes.get(state.name)
        if axis is None:
            return Sharded(node)
        attrs = {**dict(node.attrs), "shape": self.local_shape(node.shape, axis)}
        return Sharded(make("input", (), attrs), axis)

    # What rules ask for.

    def value(self, node: Node) -> Sharded:
        """What a rank has of a node of the model, made when somebody asks."""
        found = self._values.get(node)
        if found is None:
            with made_for(node.source):
                found = self._values[node] = self._rule(self, node)
        return found

    def divides(self, shape: Shape, axis: int) -> bool:
        """Whether every rank can have an equal part along an axis."""
        extent = shape[axis]
        return isinstance(extent, int) and extent > 0 and extent % self.ranks == 0

    def is_worthwhile(self, weight: Node) -> bool:
        """Whether a value is a weight large enough to be split."""
        return self.is_constant(weight) and typical(weight.type.nbytes) >= self.least_bytes

    def is_constant(self, node: Node) -> bool:
        """Whether a value depends on no input."""
        return self._context.is_constant(node)

    def counts(self, node: Node) -> bool:
        """Whether a constant is 0, 1, 2 … in its order, and no program may have another one."""
        row = self.constants[node.attr("name")]
        is_fixed = not row.is_replaceable and row.type.kind == "int"
        return is_fixed and numpy.array_equal(row.array.reshape(-1), numpy.arange(row.array.size))

    def state_of(self, node: Node) -> State | None:
        """The state that an input of the graph holds."""
        return self.states.get(node)

    def split_state(self, node: Node, axis: int) -> None:
        """Have a state split along an axis; raises `StateSplit`, as its readers are known."""
        self.state_axes[self.states[node].name] = axis
        raise StateSplit

    def after_reshape(self, source: Shape, target: Shape, axis: int) -> int | None:
        """The axis of a reshaped tensor along which equal parts are those along `axis`: the one
        before which there are as many elements."""
        before = math.prod(source[:axis])
        for place in range(len(target)):
            if math.prod(target[:place]) == before and target[place] != 1:
                return place if self.divides(target, place) else None
        return None

    def local_shape(self, shape: Shape, axis: int) -> Shape:
        """That of a part."""
        extent = shape[axis]
        assert isinstance(extent, int)
        return (*shape[:axis], extent // self.ranks, *shape[axis + 1 :])

    def whole(self, value: Sharded) -> Node:
        """The value on every rank: gathered where it is split."""
        if value.axis is None:
            return value.node
        found = self._whole.get(value.node)
        if found is None:
            rows = self._exchanged(build.reshape(value.node, (1, *value.node.shape)))
            moved = build.move_axis(rows, 0, value.axis)
            shape = list(value.node.shape)
            shape[value.axis] = shape[value.axis] * self.ranks
            found = self._whole[value.node] = build.reshape(moved, shape)
        return found

    def part(self, node: Node, axis: int) -> Node:
        """This rank's part of what is whole on every rank."""
        if self.is_constant(node):
            found = self._constant_part(node, axis)
            if found is not None:
                return found
        extent = node.shape[axis]
        assert isinstance(extent, int)
        count = extent // self.ranks
        places = build.iota((count,), 0) + self.first(count)
        return make("take", (node, places), {"axis": axis})

    def first(self, count: int) -> Node:
        """i64 `[1]`: count · the number of the rank."""
        if RANK not in self.constants:
            every = Constant("ranks", TensorType("i64", (self.ranks,)), numpy.arange(self.ranks))
            self._store(RANK, build.constant(every.name, every.type), 0, {every.name: every})
        return build.constant(RANK, TensorType("i64", (1,))) * count

    def all_reduce(self, node: Node) -> Node:
        """The sum of every rank's value, on every rank: in the order of the ranks, in f32."""
        ranks, last = self.ranks, node.type.rank - 1
        is_large = ranks > 2 and typical(node.type.nbytes) >= TWO_STEPS_BYTES
        if is_large and self.divides(node.shape, last):  # each adds up a part, which all then get
            parts = (*node.shape[:-1], ranks, self.local_shape(node.shape, last)[-1])
            rows = build.move_axis(build.reshape(node, parts), last, 0)
            return self.whole(Sharded(self._added(self._exchanged(rows)), last))
        return self._added(self._exchanged(build.reshape(node, (1, *node.shape))))

    def combined(self, op: str, node: Node) -> Node:
        """What a reduction makes of every rank's value, on every rank."""
        rows = self._exchanged(build.reshape(node, (1, *node.shape)))
        return build.reshape(build.reduce(op, rows, (0,)), node.shape)

    # How.

    def _exchanged(self, rows: Node) -> Node:
        """`[1 or ranks, ..]` → `[ranks, ..]`; all exchanges have one order, by their status."""
        self.exchanges += 1
        both = [
            make("exchange", (rows, self.status), {"ranks": self.ranks, "result": number})
            for number in range(2)
        ]
        self.status = both[1]
        return both[0]

    def _added(self, rows: Node) -> Node:
        """Sum over the first axis, as terms that fuse with what reads them."""
        shape, dtype = rows.shape[1:], rows.dtype
        wide = dtype if dtype in ("f64", "f32") or rows.type.kind != "float" else "f32"
        total: Node | None = None
        for rank in range(self.ranks):
            row = build.reshape(build.slice_axis(rows, 0, rank, rank + 1), shape)
            row = build.cast(row, wide)
            total = row if total is None else total + row
        assert total is not None
        return build.cast(total, dtype)

    def _constant_part(self, node: Node, axis: int) -> Node | None:
        """The same expression of parts of constants; None where it is of no fixed shape."""
        if node.op == "permute":
            below = self._constant_part(node.inputs[0], node.attr("dims")[axis])
            return None if below is None else build.permute(below, node.attr("dims"))
        if node.op == "reshape":
            source = self.after_reshape(node.shape, node.inputs[0].shape, axis)
            if source is not None:
                below = self._constant_part(node.inputs[0], source)
                shape = self.local_shape(node.shape, axis)
                return None if below is None else build.reshape(below, shape)
        if node.op == "iota":
            part = build.iota(self.local_shape(node.shape, axis), node.attr("axis"))
            if node.attr("axis") != axis:
                return part
            first = self.first(part.shape[axis])  # type: ignore[arg-type]
            return part + build.reshape(first, (1,) * node.type.rank)
        if node.kind == "pointwise" and node.op != "copy":
            parts = [
                each if not each.shape or each.shape[axis] == 1 else self._constant_part(each, axis)
                for each in node.inputs
            ]
            return None if None in parts else node.on(tuple(parts))  # type: ignore[arg-type]
        if node.op == "expand":
            (data,) = node.inputs
            is_same = data.shape[axis] == node.shape[axis]
            below = self._constant_part(data, axis) if is_same else data
            shape = self.local_shape(node.shape, axis)
            return None if below is None else build.expand(below, shape)
        if not is_static(node.shape):
            return None
        name = f"{node.attr('name')}.part{axis}" if node.op == "constant" else ""
        return self._store(name, node, axis, self.constants)

    def _store(self, name: str, node: Node, axis: int, pool: dict[str, Constant]) -> Node:
        """A constant that is one part of an expression."""
        attrs = {"axis": axis, "ranks": self.ranks, "rank": 0}
        part = make("shard", (node,), attrs)
        name = name or f"part_{len(self.constants)}"
        self.constants.setdefault(name, stored_constant(name, part, pool))
        return build.constant(name, part.type)
