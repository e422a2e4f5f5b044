"""Look-ups at counted places are views, and comparisons of counts are answers, at every size."""

from __future__ import annotations

import random

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.narrow import at_sizes
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.size import Dim, size_of
from aotc.aot.rewrites.counted import write_counts

SIZES = ((1, 2), (2, 5), (3, 4), (7, 9))  # of batch and length


def extent_of(size):
    return make("extent", (), {"extent": size})


class Draw:
    """A look-up of `x[batch, length, 3]` at places of its axes, as importers write it."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.batch, self.length = size_of(Dim("b", 1, 8, 2)), size_of(Dim("n", 2, 12, 5))
        self.is_whole = True

    def place(self, source, axis, rank, along):
        """A place in axis `axis` of the source."""
        extent = source.shape[axis]
        kind = self.random.choice(("counter", "counter", "counter", "one", "wrapped", "later"))
        counter = build.counter(rank, along, extent)
        if kind == "one":
            return build.expand(build.scalar(0, "i64"), (1,) * rank)
        if kind == "wrapped":
            return build.where(counter < 0, counter + extent_of(extent), counter)
        if kind == "later" and extent is self.length:
            return build.counter(rank, along, extent - 1) + 1
        return counter

    def graph(self):
        shape = [self.batch, self.length, 3][: self.random.randint(1, 3)]
        self.random.shuffle(shape)
        x = make("input", (), {"name": "x", "dtype": "f32", "shape": tuple(shape)})
        rank = self.random.randint(len(shape), 4)
        along = self.random.sample(range(rank), len(shape))
        if self.random.random() < 0.2 and len(shape) > 1:
            along[0], self.is_whole = along[1], False  # a diagonal, where sizes allow one
            shape[0] = shape[1]
            x = make("input", (), {"name": "x", "dtype": "f32", "shape": tuple(shape)})
        place = None
        for axis, extent in enumerate(shape):
            own = self.place(x, axis, rank, along[axis])
            place = own if place is None else place * extent_of(extent) + own
        flat = build.reshape(x, (x.type.numel,))
        found = make("take", (flat, place), {"axis": 0})
        is_later = make("gt", (place + 1, build.scalar(0, "i64")))
        outputs = (found, build.cast(is_later, "i32"))
        return Graph((x,), outputs, ("x",), ("found", "later"), {})


@pytest.mark.parametrize("seed", range(80))
def test_views_and_answers_are_those_of_the_look_ups(seed):
    draw = Draw(seed)
    graph = draw.graph()
    written, count = write_counts(graph)
    names = {node.op for node in written.nodes()}
    if graph.inputs[0].sizes() and draw.is_whole:
        assert count
        assert "take" not in names
    for batch, length in SIZES:
        before, after = (at_sizes(each, {"b": batch, "n": length}) for each in (graph, written))
        shape = before.inputs[0].shape
        x = numpy.arange(numpy.prod(shape), dtype=numpy.float32).reshape(shape)
        for one, other in zip(interpret(before, [x]), interpret(after, [x]), strict=True):
            numpy.testing.assert_array_equal(one, other)
