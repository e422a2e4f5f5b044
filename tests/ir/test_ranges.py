"""Ranges of integers and truths hold for every element at every size: drawn expressions."""

from __future__ import annotations

import random

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.narrow import at_sizes
from aotc.aot.ir.ranges import range_of
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.size import Dim, fixed, size_of, substitute

DIM = Dim("n", 2, 12, 5)
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
LOGIC = ("logical_and", "logical_or", "logical_xor")
ARITHMETIC = ("add", "sub", "mul", "maximum", "minimum")


class Draw:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.n = size_of(DIM)

    def leaf(self):
        kind = self.random.randrange(3)
        if kind == 0:
            return build.iota((self.n,), 0)
        if kind == 1:
            extent = make("extent", (), {"extent": self.n + self.random.randint(-1, 3)})
            return build.expand(extent, (self.n,))
        return build.expand(build.scalar(self.random.randint(-4, 6), "i64"), (self.n,))

    def truth(self, depth):
        if depth and self.random.random() < 0.3:
            return make("logical_not", (self.truth(depth - 1),))
        if depth and self.random.random() < 0.4:
            pair = self.truth(depth - 1), self.truth(depth - 1)
            return make(self.random.choice(LOGIC), pair)
        return make(self.random.choice(COMPARISONS), (self.number(depth), self.number(depth)))

    def number(self, depth):
        if not depth:
            return self.leaf()
        kind = self.random.randrange(6)
        if kind == 0:
            return make(self.random.choice(("abs", "neg")), (self.number(depth - 1),))
        if kind == 1:
            size = build.expand(make("extent", (), {"extent": self.n}), (self.n,))
            return make("remainder", (abs(self.number(depth - 1)), size))
        if kind == 2:
            branches = self.number(depth - 1), self.number(depth - 1)
            return build.where(self.truth(depth - 1), *branches)
        pair = self.number(depth - 1), self.number(depth - 1)
        return make(self.random.choice(ARITHMETIC), pair)


def number(end, size):
    """An end of a range at a size."""
    if isinstance(end, int):
        return end
    return fixed(substitute(end, dict.fromkeys(end.dims(), size)))


@pytest.mark.parametrize("seed", range(60))
def test_all_elements_lie_in_their_range(seed):
    draw, decided = Draw(seed), 0
    for _ in range(12):
        node = draw.number(draw.random.randint(1, 4))
        truth = draw.truth(2)
        outputs = (node, build.cast(truth, "i64"))
        x = make("input", (), {"name": "x", "dtype": "f32", "shape": (draw.n,)})
        graph = Graph((x,), outputs, ("x",), ("node", "truth"), {})
        ranges = [range_of(each, {}) for each in (node, truth)]
        decided += ranges[1] != (0, 1)
        for size in (2, 3, 7, 12):
            given = numpy.zeros(size, numpy.float32)
            values = interpret(at_sizes(graph, {"n": size}), [given])
            for found, (low, high) in zip(values, ranges, strict=True):
                low, high = (number(end, size) for end in (low, high))
                assert low <= found.min(), (low, found.min())
                assert found.max() <= high, (high, found.max())
    assert decided
