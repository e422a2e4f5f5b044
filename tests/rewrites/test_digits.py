"""Sorts by digits, counted places, sums of runs: the rewritten graph has the same meaning, and the
kernels for a GPU give it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.narrow import at_sizes
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.size import Dim, size_of
from aotc.aot.rewrites import digits, order, scatter
from aotc.aot.rewrites.memory import place_ops
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parent.parent / "lower"))

from schedule_runner import Job

pytestmark = [pytest.mark.triton, pytest.mark.slow]
TRAITS = GPUS[90]
NUMPY = {
    "f32": "float32",
    "f64": "float64",
    "f16": "float16",
    "i32": "int32",
    "i64": "int64",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
}


def _input(name, dtype, *shape):
    return make("input", (), {"name": name, "dtype": dtype, "shape": shape})


def _run(job, graph, arrays, tmp_path):
    places, expected = [], []
    for each, given in zip(graph, arrays, strict=True):
        placed, _ = place_ops(each)
        places.append(job.add(placed, given, 0, TRAITS))
        expected.append(interpret(each, given))
    buffers = job.run(tmp_path, "native", 4)
    assert not job.errors
    return [
        [buffers[stored].reshape(shape) for stored, shape in place] for place in places
    ], expected


def _numbers(dtype, shape, seed):
    random = numpy.random.default_rng(seed)
    if dtype[0] != "f":
        info = numpy.iinfo(NUMPY[dtype])
        found = random.integers(info.min, info.max, shape, NUMPY[dtype], endpoint=True)
        found[:, ::3] = found[:, :1]
        return found
    found = random.standard_normal(shape).round(1)
    found[0, :: max(1, shape[1] // 5)] = numpy.nan
    found[-1, 0], found[-1, -1] = -numpy.inf, numpy.inf
    found[:, shape[1] // 2] = -0.0
    return found.astype(NUMPY[dtype])


def _sorted(x, wanted, descending):
    row = make("order_rows", (x,), {"wanted": wanted, "descending": descending})
    return Graph((x,), (row,), ("x",), ("order",), {})


SORTS = [
    ("f32", 2, 2500, 2500, True), ("f32", 3, 700, 5, False), ("f16", 2, 1030, 1030, True),
    ("i32", 1, 5000, 4000, False), ("i64", 2, 260, 7, True), ("u8", 3, 1500, 1500, False),
    ("u8", 1, 1, 1, False), ("i64", 1, 1500, 1500, False), ("f64", 2, 900, 900, True),
    ("i16", 1, 700, 700, True), ("i8", 2, 600, 600, False), ("u8", 1, 520, 520, True),
    ("f32", 1, 4129, 4129, True), ("i64", 2, 5000, 5000, True), ("f32", 2, 9001, 9001, False),
]  # fmt: skip


@pytest.mark.parametrize("op", ["order_by_digit", "merge_runs"])
@pytest.mark.parametrize(
    "sorts", [SORTS[::2], pytest.param(SORTS[1::2], marks=pytest.mark.nightly)]
)
def test_places_in_order_of_every_type(tmp_path, monkeypatch, sorts, op):
    for module, name in ((order, "_is_held"), (order, "_is_selected")):
        monkeypatch.setattr(module, name, lambda node: False)
    monkeypatch.setattr(digits, "serves", lambda *given: True)
    monkeypatch.setattr(digits, "PROGRAMS", 4)  # parts of several tiles
    is_merged = op == "merge_runs"
    monkeypatch.setattr(digits, "LAUNCH_NS", 1e9 if is_merged else 0.0)
    monkeypatch.setattr(digits, "SEARCHED_NS", 0.0 if is_merged else 1e9)
    monkeypatch.setattr(digits, "RUN_NS", 0.0 if is_merged else 1e9)
    job, graphs, arrays, wanted = Job(), [], [], []
    for at, (dtype, rows, extent, count, descending) in enumerate(sorts):
        graph = _sorted(_input("x", dtype, rows, extent), count, descending)
        numbers = _numbers(dtype, (rows, extent), at)
        found, times = order.rank_rows(graph)
        assert times == 1
        is_wide = dtype[1:] in ("32", "64") and extent > digits.MERGED_RUN
        if is_wide or not is_merged:
            assert op in {node.op for node in found.nodes()}
        graphs.append(found)
        arrays.append([numbers])
        wanted.append(interpret(graph, [numbers])[0])
    results, meanings = _run(job, graphs, arrays, tmp_path)
    for case, (result,), (meaning,), expected in zip(sorts, results, meanings, wanted, strict=True):
        numpy.testing.assert_array_equal(meaning, expected, err_msg=str(case))
        numpy.testing.assert_array_equal(result, expected, err_msg=str(case))


# Data, axis, rows, whether each element has its own place, source: a number, rows or a lookup.
SCATTERS = [
    ((3, 19), 1, 5000, True, "number", "f32"), ((3000,), 0, 4096, False, "number", "i64"),
    ((5, 7), 0, 4097, False, "number", "f32"), ((2, 1500), 1, 4100, True, "number", "f64"),
    ((300, 70), 0, 16500, False, "rows", "f32"), ((2, 40, 3), 1, 16400, False, "rows", "i32"),
    ((257, 130), 0, 16384, False, "lookup", "f32"), ((2, 9), 0, 16384, False, "rows", "f64"),
]  # fmt: skip


IN_ORDER = scatter._is_ordered


def _scattered(shape, axis, rows, is_own, what, dtype):
    source_shape = (*shape[:axis], rows, *shape[axis + 1 :])
    index_shape = (
        source_shape if is_own else [rows if at == axis else 1 for at in range(len(shape))]
    )
    data, index = _input("data", dtype, *shape), _input("index", "i64", *index_shape)
    inputs = [data, index]
    if what == "number":
        source = build.expand(build.scalar(3, dtype), source_shape)
    elif what == "rows":
        source = _input("source", dtype, *source_shape)
        inputs.append(source)
    else:
        table, looked_up = _input("table", dtype, 50, *shape[1:]), _input("rows", "i64", rows)
        source = make("take", (table, looked_up), {"axis": axis})
        inputs += [table, looked_up]
    how = {"axis": axis, "merge": "sum", "distinct": 1}
    names = tuple(node.attr("name") for node in inputs)
    row = make("scatter_rows", (data, index, source), how)
    return Graph(tuple(inputs), (row,), names, ("out",), {})


def test_rows_at_places_are_counted_or_summed_in_order(tmp_path, monkeypatch):
    others = [(way[0], lambda _: 0.0, way[2]) for way in scatter._WAYS if way[0] is IN_ORDER]
    monkeypatch.setattr(scatter, "_WAYS", tuple(others))
    job, graphs, arrays, wanted = Job(), [], [], []
    for at, case in enumerate(SCATTERS):
        graph, random = _scattered(*case), numpy.random.default_rng(at)
        given = []
        for node in graph.inputs:
            if node.attr("name") == "index":
                given.append(random.integers(-2, case[0][case[1]] + 2, node.shape))
            elif node.attr("name") == "rows":
                given.append(random.integers(0, 50, node.shape))
            else:  # sums of whole numbers are exact, whatever their order
                given.append(random.integers(-99, 99, node.shape).astype(NUMPY[node.dtype]))
        found, count = scatter.reduce_few_places(graph)
        assert count == 1
        ops = {node.op for node in found.nodes()}
        assert ("count_places" if case[4] == "number" else "sum_runs") in ops
        assert "take" not in ops
        graphs.append(found)
        arrays.append(given)
        wanted.append(interpret(graph, given)[0])
    results, meanings = _run(job, graphs, arrays, tmp_path)
    for case, (result,), (meaning,), expected in zip(
        SCATTERS, results, meanings, wanted, strict=True
    ):
        numpy.testing.assert_array_equal(meaning, expected, err_msg=str(case))
        numpy.testing.assert_array_equal(result, expected, err_msg=str(case))


def test_nan_and_infinity_stay_at_their_places(tmp_path):
    graph = _scattered((6, 4), 0, 16384, False, "rows", "f32")
    found, _ = scatter.reduce_few_places(graph)
    index = numpy.arange(16384).reshape(-1, 1) % 5
    source = numpy.ones((16384, 4), "float32")
    source[5, 0], source[6, 1], source[12, 2], source[17, 2] = (
        numpy.nan,
        numpy.inf,
        -numpy.inf,
        numpy.inf,
    )
    given = [numpy.zeros((6, 4), "float32"), index, source]
    ((result,),), _ = _run(Job(), [found], [given], tmp_path)
    with numpy.errstate(invalid="ignore"):
        (expected,) = interpret(graph, given)
    numpy.testing.assert_array_equal(result, expected)


def test_few_elements_stay_ranks_and_few_rows_in_turn():
    assert not digits.serves(_sorted(_input("x", "f32", 2, 300), 5, False).outputs[0], order.RUN)
    assert digits.serves(_sorted(_input("x", "f32", 32, 50257), 50257, True).outputs[0], order.RUN)
    few = _scattered((700, 70), 0, 600, False, "rows", "f32")
    assert not {"sum_runs", "count_places"} & {
        node.op for node in scatter.reduce_few_places(few)[0].nodes()
    }


@pytest.mark.parametrize("is_descending", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "f16", "f64", "i64", "i32", "i8", "u8"])
def test_rows_of_dynamic_length_are_filled_up(dtype, is_descending):
    """With numbers at the ends of their type, which what rows are filled up with is equal to."""
    rows, length = size_of(Dim("rows", 1, 9, 2)), size_of(Dim("n", 3, 3000, 100))
    data = _input("x", dtype, rows, length)
    how = {"wanted": length, "descending": is_descending}
    graph = Graph((data,), (make("order_rows", (data,), how),), ("x",), ("order",), {})
    made, count = order.rank_rows(graph)
    assert count
    assert {"merge_runs", "order_by_digit"} & {node.op for node in made.nodes()}
    for shape in ((1, 3), (2, 100), (3, 1300), (9, 600)):
        given = _numbers(dtype, shape, shape[1])
        ends = (numpy.nan, numpy.inf, -numpy.inf) if dtype[0] == "f" else _ends(dtype)
        given[:, : len(ends)] = ends
        sizes = {"rows": shape[0], "n": shape[1]}
        (found,), (expected,) = (
            interpret(at_sizes(each, sizes), [given]) for each in (made, graph)
        )
        numpy.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("sizes", [{"rows": 2, "n": 100}, {"rows": 3, "n": 1300}])
def test_kernels_of_a_dynamic_length_give_the_order(sizes, tmp_path):
    """The kernels that a GPU gets, as native code, at sizes that they learn from the call."""
    job, expected, places = Job(sizes=sizes), [], []
    for dtype in ("f32", "f16", "i64", "u8"):
        rows, length = size_of(Dim("rows", 1, 9, 2)), size_of(Dim("n", 3, 3000, 100))
        data = _input("x", dtype, rows, length)
        how = {"wanted": length, "descending": dtype == "f32"}
        graph = Graph((data,), (make("order_rows", (data,), how),), ("x",), ("order",), {})
        made, _ = order.rank_rows(graph)
        placed, _ = place_ops(made)
        given = _numbers(dtype, tuple(sizes.values()), 5)
        places.append(job.add(placed, [given], 0, TRAITS))
        expected += interpret(at_sizes(graph, sizes), [given])
    buffers = job.run(tmp_path, "native", 4)
    assert not job.errors
    for ((stored, shape),), wanted in zip(places, expected, strict=True):
        numpy.testing.assert_array_equal(buffers[stored].reshape(shape), wanted)


def _ends(dtype):
    limits = numpy.iinfo(NUMPY[dtype])
    return limits.min, limits.max, limits.max
