"""Forms of integers beside their elements: drawn graphs of views, sums, lookups and comparisons."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.affine import Affine, Counts
from aotc.aot.ir.graph import Constant, make
from aotc.aot.ir.reference import evaluate_all
from aotc.aot.ir.size import Dim, size_of
from aotc.aot.ir.types import TensorType


def elements(form: Affine, shape) -> numpy.ndarray:
    """What a form says of each element."""
    places = numpy.indices(shape)
    return form.constant + sum(step * place for step, place in zip(form.steps, places, strict=True))


class Draw:
    """A random node of integers, grown from counts and numbers."""

    def __init__(self, seed: int) -> None:
        self.random = numpy.random.default_rng(seed)

    def number(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high))

    def leaf(self):
        shape = tuple(self.number(1, 6) for _ in range(self.number(1, 4)))
        if self.number(0, 4) == 0:
            return build.expand(build.scalar(self.number(-9, 9), "i64"), shape)
        return build.iota(shape, self.number(0, len(shape)))

    def node(self, depth: int):
        if depth == 0:
            return self.leaf()
        steps = [getattr(self, name) for name in dir(self) if name.startswith("step_")]
        return steps[self.number(0, len(steps))](self.node(depth - 1))

    def step_add(self, node):
        if not node.type.rank:
            return -node
        other = build.iota(node.shape, self.number(0, node.type.rank))
        return make(("add", "sub")[self.number(0, 2)], (node, other))

    def step_scale(self, node):
        return node * self.number(-3, 4)

    def step_reshape(self, node):
        shape = [extent for extent in node.shape if extent != 1]
        for _ in range(self.number(0, 3)):
            shape.insert(self.number(0, len(shape) + 1), 1)
        return build.reshape(node, tuple(shape))

    def step_flatten(self, node):
        return build.reshape(node, (node.type.numel,))

    def step_permute(self, node):
        return build.permute(node, tuple(map(int, self.random.permutation(node.type.rank))))

    def step_slice(self, node):
        if not node.type.rank:
            return node
        axis = self.number(0, node.type.rank)
        start = self.number(0, node.shape[axis])
        stop = self.number(start, node.shape[axis]) + 1
        return build.slice_axis(node, axis, start, stop, self.number(1, 3))

    def step_concat(self, node):
        if not node.type.rank:
            return node
        axis = self.number(0, node.type.rank)
        more = node + self.number(-2, 6)
        return make("concat", (node, more), {"axis": axis})

    def step_pad(self, node):
        low = tuple(self.number(0, 2) for _ in node.shape)
        return build.pad(node, low, low, self.number(-1, 2))

    def step_take(self, node):
        data = self.leaf()
        axis = self.number(0, data.type.rank)
        (values,) = evaluate_all((node,), {}, {})
        is_inside = 0 <= values.min() <= values.max() < data.shape[axis]
        inside = build.minimum(build.maximum(node, 0), data.shape[axis] - 1)
        return make("take", (data, node if is_inside else inside), {"axis": axis})

    def step_take_in_rows(self, node):
        """x[a, b, ..], as importers of torch's indices write it."""
        shape = tuple(self.number(1, 5) for _ in range(3))
        extents = tuple(self.number(1, 6) for _ in range(self.number(1, 4)))
        source = build.iota(extents, self.number(0, len(extents))) * self.number(-2, 3)
        place = None
        for extent in extents:
            axis = self.number(0, 3)
            index = build.iota(shape, axis) if shape[axis] <= extent else build.iota(shape, 0) * 0
            place = index if place is None else place * extent + index
        return make("take", (build.reshape(source, (source.type.numel,)), place), {"axis": 0})

    def step_where(self, node):
        limit = build.scalar(self.number(-3, 9), "i64")
        test = make(("lt", "ge", "eq")[self.number(0, 3)], (node, limit))
        return build.where(test, node, node + self.number(0, 2))

    def step_sum(self, node):
        if not node.type.rank:
            return node
        zeros = node - node
        return build.reduce("sum", zeros, (self.number(0, node.type.rank),))


@pytest.mark.parametrize("seed", range(60))
def test_forms_say_what_the_elements_are(seed):
    draw, counts, seen = Draw(seed), Counts(), 0
    for _ in range(12):
        node = draw.node(draw.number(1, 6))
        (values,) = evaluate_all((node,), {}, {})
        form = counts.affine(node)
        if form is not None:
            seen += 1
            numpy.testing.assert_array_equal(values, elements(form, node.shape))
        for op in ("lt", "le", "gt", "ge", "eq", "ne"):
            test = make(op, (node, build.scalar(draw.number(-9, 9), "i64")))
            decided = counts.decided(test)
            if decided is not None:
                assert (evaluate_all((test,), {}, {})[0] == decided).all()
    assert seen


def test_negative_indices_of_dynamic_sizes_are_wrapped_nowhere():
    length = size_of(Dim("n", 2, 100, 10))
    place = build.iota((length,), 0)
    wrapped = build.where(place < 0, place + make("extent", (), {"extent": length}), place)
    found = make("take", (place, build.reshape(wrapped, (1, length))), {"axis": 0})
    assert Counts().affine(found) == Affine(0, (0, 1))
    assert Counts().decided(found < make("extent", (), {"extent": length})) is True
    assert Counts().decided(found < 50) is None


def test_lookups_in_rows_of_dynamic_sizes_are_those_of_their_axes():
    batch, length = size_of(Dim("b", 1, 9, 2)), size_of(Dim("n", 2, 100, 10))
    places = build.expand(build.iota((1, length), 1), (batch, length))
    columns = make("extent", (), {"extent": length})
    rows = build.iota((batch, 1, 1), 0)
    place = rows * columns + build.iota((1, 1, length), 2)
    found = make("take", (build.reshape(places, (batch * length,)), place), {"axis": 0})
    assert Counts().affine(found) == Affine(0, (0, 0, 1))
    for beyond in (rows * columns + build.iota((1, 1, length + 1), 2), (rows + 1) * columns):
        found = make("take", (build.reshape(places, (batch * length,)), beyond), {"axis": 0})
        assert Counts().affine(found) is None


def test_places_before_others_differ_by_one():
    length = size_of(Dim("n", 2, 100, 10))
    place = build.iota((1, length), 1)
    first = build.slice_axis(place, 1, 0, 1) - 1
    before = build.slice_axis(make("concat", (first, place), {"axis": 1}), 1, 0, length)
    assert Counts().affine(place - before) == Affine(1, (0, 0))


def test_numbers_that_go_round_the_end_of_their_type_have_no_form():
    place = build.cast(build.iota((8,), 0), "i32")
    turned = place * 2**30
    assert Counts().affine(turned) is None
    assert Counts().affine(turned + place) is None


@pytest.mark.parametrize("shape", [(), (1,), (7,), (1, 5, 1), (3, 4, 2)])
def test_constants_are_known_by_their_values(shape):
    values = numpy.arange(numpy.prod(shape, dtype=int)).reshape(shape) * 3 - 4
    kind = TensorType("i64", shape)
    node = build.constant("c", kind)
    form = Counts({"c": Constant("c", kind, values)}).affine(node)
    assert form is not None
    numpy.testing.assert_array_equal(values, elements(form, shape))
    assert Counts().affine(node) is None
    if values.size > 2:
        spoilt = values.copy()
        spoilt.reshape(-1)[-1] += 1
        assert Counts({"c": Constant("c", kind, spoilt)}).affine(node) is None


def test_constants_at_both_ends_of_their_type_have_no_form():
    ends = numpy.iinfo(numpy.int64)
    kind = TensorType("i64", (2,))
    constant = Constant("c", kind, numpy.array([ends.min, ends.max]))
    assert Counts({"c": constant}).affine(build.constant("c", kind)) is None
