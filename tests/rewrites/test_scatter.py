"""Rows merged at few places become one reduction for each place; others stay as they are."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir.graph import Graph, State, make
from aotc.aot.ir.narrow import at_sizes
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.size import Dim, size_of
from aotc.aot.rewrites.scatter import reduce_few_places

# Data, axis, rows, whether each element has a place of its own, whether sums replace the rows.
CASES = (
    ((10,), 0, 5000, False, True),
    ((4, 7, 3), 1, 3000, False, True),
    ((2, 5, 6), 1, 1000, True, True),
    ((1, 9), 0, 400, False, True),
    ((30_000, 4), 0, 900, False, False),
)


def _leaf(name, shape, dtype):
    return make("input", (), {"name": name, "dtype": dtype, "shape": tuple(shape)})


def _graph(shape, axis, rows, has_own_places, *, merge="sum", dtype="f64"):
    source = (*shape[:axis], rows, *shape[axis + 1 :])
    index = source if has_own_places else [rows if at == axis else 1 for at in range(len(shape))]
    inputs = (_leaf("data", shape, dtype), _leaf("at", index, "i32"), _leaf("rows", source, dtype))
    written = make("scatter_rows", inputs, {"axis": axis, "merge": merge, "distinct": 1})
    return Graph(inputs, (written,), ("data", "at", "rows"), ("out",), {})


@pytest.mark.parametrize("merge", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize(("shape", "axis", "rows", "has_own_places", "is_summed"), CASES)
def test_they_are_those_of_rows_merged_in_turn(shape, axis, rows, has_own_places, is_summed, merge):
    graph = _graph(shape, axis, rows, has_own_places, merge=merge)
    found, count = reduce_few_places(graph)
    assert count == is_summed
    generator = numpy.random.default_rng(rows)
    arrays = [
        generator.integers(-2, shape[axis] + 2, node.shape, "int32")
        if node.dtype == "i32"
        else generator.standard_normal(node.shape)
        for node in graph.inputs
    ]
    (expected,), (sums,) = interpret(graph, arrays), interpret(found, arrays)
    numpy.testing.assert_allclose(sums, expected, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("dtype", ["f64", "i64"])
@pytest.mark.parametrize("case", [*CASES[:3], ((40, 6), 0, 50_000, True, True)])
def test_the_last_of_many_rows_is_looked_up(case, dtype):
    shape, axis, rows, has_own_places, _ = case
    graph = _graph(shape, axis, rows, has_own_places, merge="replace", dtype=dtype)
    found, count = reduce_few_places(graph)
    assert count == 1
    merges = [node.attr("merge") for node in found.nodes() if node.op == "scatter_rows"]
    assert merges == ["max"]
    generator = numpy.random.default_rng(rows)
    arrays = [
        generator.integers(-2, shape[axis] + 2, node.shape, node.dtype.replace("i", "int"))
        if node.dtype[0] == "i"
        else generator.standard_normal(node.shape)
        for node in graph.inputs
    ]
    (expected,), (last,) = interpret(graph, arrays), interpret(found, arrays)
    numpy.testing.assert_array_equal(last, expected)


def test_rows_that_there_may_be_none_of_are_written_in_turn():
    for least, count in ((0, 0), (1, 1)):
        rows = size_of(Dim("n", least, 50_000, 30_000))
        graph = _graph((100, 16), 0, rows, False, merge="replace")
        assert reduce_few_places(graph)[1] == count


def test_few_rows_are_written_in_turn_and_those_of_a_state_in_place():
    assert reduce_few_places(_graph((10,), 0, 3, False, merge="replace"))[1] == 0
    graph = _graph((10, 64), 0, 9000, False, merge="replace")
    data, *others = graph.inputs
    names = ("at", "rows", "data")
    state = Graph((*others, data), graph.outputs, names, (), {}, (State("data", None),))
    assert reduce_few_places(graph)[1] == 1
    assert reduce_few_places(state)[1] == 0


@pytest.mark.parametrize("merge", ["sum", "max"])
def test_a_dynamic_number_of_rows_is_compared_where_it_is_bounded(merge):
    rows = size_of(Dim("n", 1, 5000, 1000))
    graph = _graph((100, 16), 0, rows, False, merge=merge)
    found, count = reduce_few_places(graph)
    assert count == 1
    assert not any(node.op == "scatter_rows" for node in found.nodes())
    for extent in (1, 7, 3000):
        one = _graph((100, 16), 0, extent, False, merge=merge)
        generator = numpy.random.default_rng(extent)
        arrays = [
            generator.standard_normal((100, 16)),
            generator.integers(-2, 102, one.inputs[1].shape, "int32"),
            generator.standard_normal((extent, 16)),
        ]
        (expected,), (sums,) = (
            interpret(each, arrays) for each in (one, at_sizes(found, {"n": extent}))
        )
        numpy.testing.assert_allclose(sums, expected, rtol=1e-12, atol=1e-10)
    many = _graph((100, 16), 0, size_of(Dim("n", 1, 1 << 20, 1000)), False, merge=merge)
    assert reduce_few_places(many)[1] == 0
