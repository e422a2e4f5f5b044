"""Reductions over dims apart from each other: the last ones first, with the same numbers."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.reference import interpret
from aotc.aot.rewrites.reductions import part_reductions

# Shape, reduced axes, those that are reduced first (none: it stays as it is).
CASES = [
    ((3, 5, 49), (0, 2), (2,)),
    ((3, 5, 7, 7), (0, 2, 3), (2, 3)),
    ((3, 5, 7, 7, 1), (0, 2, 3), (2, 3)),
    ((2, 3, 4, 5, 21), (1, 3, 4), (3, 4)),
    ((2, 3, 4, 5, 21), (1, 4), (4,)),
    ((3, 5, 64), (0, 2), ()),  # whole vectors
    ((3, 5, 7), (0, 2), ()),  # a short run
    ((1, 5, 49), (0, 2), ()),  # nothing before
    ((3, 49), (0, 1), ()),  # beside each other
    ((3, 5, 49), (0, 1), ()),  # the last dim stays
]


def _graph(shape, axes, op="sum", dtype="f32", dims=None):
    data = make("input", (), {"name": "x", "dtype": dtype, "shape": shape})
    value = data if dims is None else build.permute(data, dims)
    return Graph((data,), (build.reduce(op, value, axes),), ("x",), ("y",), {})


@pytest.mark.parametrize(("shape", "axes", "first"), CASES)
def test_the_last_dims_are_reduced_first(shape, axes, first):
    graph = _graph(shape, axes)
    found, count = part_reductions(graph)
    assert count == bool(first)
    (result,) = found.outputs
    assert result.type == graph.outputs[0].type
    reductions = [node.attr("axes") for node in found.nodes() if node.op == "sum"]
    rest = tuple(axis for axis in axes if axis not in first)
    assert reductions == ([first, rest] if first else [axes])
    x = numpy.random.default_rng(0).standard_normal(shape).astype("float32")
    (expected,), (sums,) = interpret(graph, [x]), interpret(found, [x])
    numpy.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("op", ["max", "min", "prod", "sum"])
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64", "i32"])
def test_every_reduction_of_values_and_type(op, dtype):
    graph = _graph((2, 3, 17), (0, 2), op, dtype)
    found, count = part_reductions(graph)
    assert count == 1
    assert found.outputs[0].type == graph.outputs[0].type
    if dtype == "f16" and op == "sum":
        assert [node.dtype for node in found.nodes() if node.op == op] == ["f32", "f32"]


def test_places_and_counts_stay():
    assert part_reductions(_graph((2, 3, 17), (0, 2), "count", "bool"))[1] == 0


def test_a_dim_that_lies_apart_in_memory_stays():
    assert part_reductions(_graph((17, 3, 2), (0, 2), dims=(2, 1, 0)))[1] == 0
    assert part_reductions(_graph((3, 2, 17), (0, 2), dims=(1, 0, 2)))[1] == 1
