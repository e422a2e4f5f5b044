"""Graphs drawn at random as training has them: norms, products and activations, of which any value
between may be a result too."""

from __future__ import annotations

import random

from case_graphs import graph_of, op, operand, weight

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import Graph, Node

UNARY = ("sin", "tanh", "sigmoid", "gelu", "silu", "erf", "relu", "neg", "abs")
WIDTHS = (24, 32, 40, 64, 96)
ROWS = ((2, 8), (3, 5), (1, 24), (5, 13), (4, 32))


class _Drawer:
    """Values over the same rows, each seen as [outer, inner, width] or [rows, width]."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.outer, self.inner = rng.choice(ROWS)
        self.count = 0
        self.values = [self._input(rng.choice(WIDTHS)) for _ in range(rng.randint(1, 3))]
        self.sums: list[Node] = []  # of rows or columns

    def step(self) -> None:
        """One more value, or a sum."""
        kinds = (self._unary, self._binary, self._norm, self._sum, self._product, self._gate,
                 self._softmax, self._scaled, self._reshaped, self._narrow,
                 self._moved, self._of_a_sum)  # fmt: skip
        self.rng.choice(kinds)()

    def graph(self) -> Graph:
        """What nothing reads is a result, and some of the rest."""
        found = [*self.values, *self.sums]
        read = {operand for node in found for operand in node.inputs}
        outputs = [node for node in found if node not in read or self.rng.random() < 0.4]
        computed = [node for node in outputs if node.op != "input"]
        return graph_of(computed or [op("neg", self.values[0])])

    def _input(self, width: int) -> Node:
        self.count += 1
        shape = (self.outer, self.inner, width)
        if self.rng.random() < 0.5:
            shape = (self.outer * self.inner, width)
        return operand(f"x{self.count}", *shape)

    def _weight(self, *shape: int) -> Node:
        self.count += 1
        return weight(f"w{self.count}", *shape)

    def _any(self) -> Node:
        return self.rng.choice(self.values[-6:])

    def _like(self, node: Node) -> Node:
        """Another value in the shape of one, or a new input."""
        found = [each for each in self.values if each.type.numel == node.type.numel]
        other = self.rng.choice(found)
        return other if other.shape == node.shape else b.reshape(other, node.shape)

    def _put(self, node: Node) -> None:
        self.values.append(node)

    def _unary(self) -> None:
        self._put(op(self.rng.choice(UNARY), self._any()))

    def _binary(self) -> None:
        value = self._any()
        found = op(self.rng.choice(("add", "sub", "mul", "maximum")), value, self._like(value))
        self._put(op("tanh", found) if self.rng.random() < 0.5 else op("mul", found, 0.5))

    def _norm(self) -> None:
        """A norm over the last axis, whose statistics are results at times."""
        value = self._any()
        last, width = value.type.rank - 1, value.shape[-1]
        mean = op("mul", b.reduce("sum", value, [last]), 1 / width)
        away = op("sub", value, mean)
        power = op("mul", b.reduce("sum", op("mul", away, away), [last]), 1 / width)
        factor = op("rsqrt", op("add", power, 1e-2))
        self.sums += [each for each in (mean, factor) if self.rng.random() < 0.6]
        self._put(op("mul", away, factor))

    def _sum(self) -> None:
        """Of rows, or of columns; of rows it may go on into values."""
        value = self._any()
        last = value.type.rank - 1
        if self.rng.random() < 0.5:
            self.sums.append(b.reduce(self.rng.choice(("sum", "max")), value, range(last)))
            return
        total = op("mul", b.reduce("sum", value, [last]), 1 / value.shape[-1])
        self.sums.append(total)
        self._put(op("sub", self._like(value), total))

    def _product(self) -> None:
        value = self._any()
        width = self.rng.choice(WIDTHS)
        flat = b.reshape(value, (self.outer * self.inner, value.shape[-1]))
        found = op("matmul", flat, self._weight(value.shape[-1], width))
        found = op("mul", found, 1 / value.shape[-1])
        if self.rng.random() < 0.6:
            found = op("add", found, self._weight(1, width))
        self._put(found)

    def _gate(self) -> None:
        value = self._any()
        self._put(op("mul", op("silu", value), self._like(value)))

    def _softmax(self) -> None:
        value = self._any()
        last = value.type.rank - 1
        powers = op("exp", op("sub", value, b.reduce("max", value, [last])))
        self._put(op("div", powers, b.reduce("sum", powers, [last])))

    def _scaled(self) -> None:
        value = self._any()
        shape = (*[1] * (value.type.rank - 1), value.shape[-1])
        self._put(op("mul", value, self._weight(*shape)))

    def _reshaped(self) -> None:
        value = self._any()
        rows = (self.outer, self.inner) if value.type.rank == 2 else (self.outer * self.inner,)
        self._put(b.reshape(value, (*rows, value.shape[-1])))

    def _moved(self) -> None:
        """Elements of other rows and columns, or rows looked up."""
        value = self._any()
        axis = self.rng.randrange(value.type.rank)
        extent = value.shape[axis]
        kind = self.rng.randrange(4)
        if kind == 0:
            self._put(op("flip", value, axes=(axis,)))
        elif kind == 1 and extent > 1:
            parts = [b.slice_axis(value, axis, *ends) for ends in ((1, extent), (0, 1))]
            self._put(b.concat(parts, axis))
        elif kind == 2:
            self.count += 1
            places = operand(f"n{self.count}", extent, dtype="i64")
            self._put(op("take", value, op("minimum", places, extent - 1), axis=axis))
        else:
            self.count += 1
            places = operand(f"n{self.count}", *value.shape, dtype="i64")
            self._put(op("gather", value, op("minimum", places, extent - 1), axis=axis))

    def _of_a_sum(self) -> None:
        """A sum or extreme that is moved or looked up, by its own places."""
        if not self.sums:
            return
        value = self.rng.choice(self.sums)
        if value.dtype != "f32" or not value.type.rank:
            return
        axis = self.rng.randrange(value.type.rank)
        flat = b.reshape(value, (value.type.numel,))
        self.count += 1
        places = operand(f"n{self.count}", value.type.numel, dtype="i64")
        near = op("minimum", places, value.type.numel - 1)
        self.sums.append(self.rng.choice((
            op("gather", flat, near, axis=0),
            op("flip", value, axes=(axis,)),
            op("sin", value),
        )))  # fmt: skip

    def _narrow(self) -> None:
        """A result of 16 bits, which nothing reads."""
        self.sums.append(b.cast(self._any(), "bf16"))


def drawn_graph(seed: int) -> Graph:
    """The graph of a seed."""
    rng = random.Random(seed)
    drawer = _Drawer(rng)
    for _ in range(rng.randint(3, 16)):
        drawer.step()
    return drawer.graph()
