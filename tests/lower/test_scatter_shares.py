"""Rows written or added by programs that have a share of the places each, as on a GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import make
from aotc.aot.ir.infer import MERGES
from aotc.aot.ir.reference import interpret
from aotc.aot.lower import lower
from aotc.aot.rewrites.memory import pair_rows, place_ops
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS
from aotc.aot.traits import TargetTraits

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import graph_of, operand
from schedule_runner import Job

pytestmark = pytest.mark.triton
TRAITS = GPUS[90]
# Data, axis, rows, whether each element has a place of its own, the type.
CASES = {
    "rows of a matrix": ((37, 70), 0, 1100, False, "f32"),
    "numbers": ((1000,), 0, 700, False, "f32"),
    "two places": ((2, 5), 0, 600, False, "f32"),
    "whole numbers": ((3, 19), 1, 513, True, "i64"),
    "places of each element": ((2, 23, 9), 1, 300, True, "f32"),
    "middle axis": ((3, 40, 5), 1, 200, False, "f64"),
    "more places than rows": ((5000, 3), 0, 65, False, "i32"),
}


def _graph(name, merge):
    shape, axis, rows, has_own_places, dtype = CASES[name]
    source = [*shape[:axis], rows, *shape[axis + 1 :]]
    index = source if has_own_places else [rows if at == axis else 1 for at in range(len(shape))]
    operands = (
        operand("data", *shape, dtype=dtype),
        operand("index", *index, dtype="i64"),
        operand("source", *source, dtype=dtype),
    )
    how = {"axis": axis, "merge": merge, "distinct": 1}
    return graph_of([make("scatter_rows", operands, how)])


def _arrays(name, graph):
    shape, axis, *_ = CASES[name]
    generator = numpy.random.default_rng(len(name))
    found = []
    for node in graph.inputs:
        if node.attr("name") == "index":
            found.append(generator.integers(-2, shape[axis] + 2, node.shape))
        else:  # sums of whole numbers are exact, whatever their order
            kind = {"f32": "float32", "f64": "float64", "i64": "int64", "i32": "int32"}[node.dtype]
            found.append(generator.integers(-99, 99, node.shape).astype(kind))
    return found


@pytest.mark.parametrize("merge", MERGES)
def test_each_share_goes_over_its_rows_in_order(merge, tmp_path):
    job, names = Job(), {}
    for name in CASES:
        graph = _graph(name, merge)
        placed, _ = place_ops(graph)
        kernels = lower(schedule(placed, TRAITS), TRAITS)
        is_whole = CASES[name][-1].startswith("i") and merge in ("sum", "max", "min")
        wanted = "merge_each(" if is_whole else "SHARES="  # whole numbers are merged in any order
        assert any(wanted in form.source for spec in kernels for form in spec.forms)
        names[name] = job.add(placed, _arrays(name, graph), 0, TRAITS)
    buffers = job.run(tmp_path, "native", 4)
    assert not job.errors
    for name, ((stored, shape),) in names.items():
        graph = _graph(name, merge)
        (expected,) = interpret(graph, _arrays(name, graph))
        numpy.testing.assert_array_equal(buffers[stored].reshape(shape), expected, err_msg=name)


def _keys_and_values(rows, heads, merge):
    """Parts of one product, at one list of places, some of which lie outside."""
    product = operand("product", rows, 3 * heads * 16)
    places = operand("places", rows * heads, 1, dtype="i64")
    written = []
    for at, name in enumerate(("keys", "values"), 1):
        part = b.slice_axis(product, 1, at * heads * 16, (at + 1) * heads * 16)
        operands = operand(name, 700, 16), places, b.reshape(part, (rows * heads, 16))
        how = {"axis": 0, "merge": merge, "distinct": 1}
        written.append(make("scatter_rows", operands, how))
    return graph_of(written)


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("traits", [TargetTraits(), TRAITS], ids=["cpu", "gpu"])
@pytest.mark.parametrize(("rows", "heads"), [(1, 2), (3, 5), (90, 4)])
def test_rows_of_two_tensors_are_written_by_one_kernel(rows, heads, traits, merge, tmp_path):
    graph = _keys_and_values(rows, heads, merge)
    paired, count = pair_rows(place_ops(graph)[0])
    assert count == 1
    generator = numpy.random.default_rng(rows)
    arrays = [
        generator.integers(-2, 702, node.shape)
        if node.attr("name") == "places"
        else generator.integers(-99, 99, node.shape).astype("float32")
        for node in graph.inputs
    ]
    job = Job()
    names = job.add(paired, arrays, 0, traits)
    buffers = job.run(tmp_path, "native", 4)
    assert not job.errors
    for (stored, shape), expected in zip(names, interpret(graph, arrays), strict=True):
        numpy.testing.assert_array_equal(buffers[stored].reshape(shape), expected)


def test_few_rows_and_rows_of_distinct_places_are_not_shared():
    for rows, distinct in ((60, 1), (600, 600)):
        data, index = operand("data", 700, 3), operand("index", rows, 1, dtype="i64")
        how = {"axis": 0, "merge": "replace", "distinct": distinct}
        graph = graph_of([make("scatter_rows", (data, index, operand("source", rows, 3)), how)])
        for spec in lower(schedule(place_ops(graph)[0], TRAITS), TRAITS):
            assert not any("SHARES=" in form.source for form in spec.forms)
