"""Floats merged at places as whole numbers: sums of any order, nearer than those of one order."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.reference import interpret
from aotc.aot.rewrites.memory import place_ops
from aotc.aot.rewrites.scatter import reduce_few_places
from aotc.aot.rewrites.whole_numbers import merged
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parents[1] / "lower"))

from case_graphs import operand
from schedule_runner import Job

CASES = {
    "numbers": ((1000,), 0, 7000, False),
    "rows": ((50, 7), 0, 300, False),
    "own places": ((2, 23, 9), 1, 400, True),
    "middle axis": ((3, 40, 5), 1, 200, False),
    "one place": ((1,), 0, 5000, False),
}
MERGES = ("sum", "max", "min")
SPECIAL = (numpy.inf, -numpy.inf, numpy.nan, -numpy.nan, 0.0, -0.0, 3.4e38, -3.4e38, 1e-45, 1e-38)


def graphs(name, merge):
    """The op, and what it becomes."""
    shape, axis, rows, has_own_places = CASES[name]
    source = (*shape[:axis], rows, *shape[axis + 1 :])
    index = source if has_own_places else [rows if at == axis else 1 for at in range(len(shape))]
    inputs = (
        operand("data", *shape),
        operand("index", *index, dtype="i64"),
        operand("source", *source),
    )
    node = make("scatter_rows", inputs, {"axis": axis, "merge": merge, "distinct": 1})
    names = ("data", "index", "source")
    return [Graph(inputs, (each,), names, ("out",), {}) for each in (node, merged(node))]


def arrays(name, seed, has_special):
    """Values of very different sizes; some places that have none, and some outside."""
    shape, axis, rows, has_own_places = CASES[name]
    generator = numpy.random.default_rng(seed)
    source = (*shape[:axis], rows, *shape[axis + 1 :])
    index = source if has_own_places else [rows if at == axis else 1 for at in range(len(shape))]
    places = generator.integers(-2, shape[axis] + 2, index)
    sizes = 2.0 ** generator.integers(-40, 40, source)
    values = (generator.standard_normal(source) * sizes).astype("float32")
    data = generator.standard_normal(shape).astype("float32")
    if has_special:
        chosen = generator.random(source) < 0.002
        values[chosen] = generator.choice(SPECIAL, int(chosen.sum()))
        data.reshape(-1)[:: max(1, data.size // 5)] = -0.0
    return [data, places, values]


def exact(graph, given):
    """In f64."""
    data, places, values = given
    wide = [
        operand(node.attr("name"), *node.shape, dtype="f64" if node.dtype == "f32" else node.dtype)
        for node in graph.inputs
    ]
    node = make("scatter_rows", tuple(wide), graph.outputs[0].attrs)
    whole = Graph(tuple(wide), (node,), graph.input_names, ("out",), {})
    (found,) = interpret(whole, [data.astype("float64"), places, values.astype("float64")])
    return found


def assert_near(found, graph, given, merge):
    """Nearer than half a step of f32 at the greatest value of the place, and a rounding."""
    with numpy.errstate(all="ignore"):
        wanted = exact(graph, given)
        if merge != "sum":
            numpy.testing.assert_array_equal(found, wanted.astype("float32"))
            return
        magnitudes = [numpy.abs(given[0]), given[1], numpy.abs(given[2])]
        greatest = exact(graphs_of_magnitudes(graph), magnitudes)
        atol = 2.0**-30 * greatest + 2.0**-24 * numpy.abs(wanted)
        same = numpy.isnan(found) == numpy.isnan(wanted)
        infinite = numpy.abs(wanted) > numpy.finfo("float32").max
        assert same.all()
        numpy.testing.assert_array_equal(found[infinite], wanted[infinite].astype("float32"))
        finite = ~(infinite | numpy.isnan(wanted))
        assert (numpy.abs(found[finite] - wanted[finite]) <= atol[finite]).all()


def graphs_of_magnitudes(graph):
    node = graph.outputs[0]
    how = {**dict(node.attrs), "merge": "max"}
    return graph.with_outputs((make("scatter_rows", node.inputs, how),))


@pytest.mark.parametrize("has_special", [False, True], ids=["finite", "special"])
@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("name", CASES)
def test_merges_are_those_of_f64_rounded_once(name, merge, has_special):
    plain, whole = graphs(name, merge)
    for seed in range(4):
        given = arrays(name, seed, has_special)
        with numpy.errstate(all="ignore"):
            (found,) = interpret(whole, given)
        assert_near(found, plain, given, merge)


def test_what_nothing_is_merged_with_stays():
    """Its bits too: -0.0 is no 0.0."""
    for merge in MERGES:
        _, whole = graphs("numbers", merge)
        data, places, values = arrays("numbers", 1, True)
        data[:] = -0.0
        places[:] = -1
        (found,) = interpret(whole, [data, places, values])
        assert numpy.signbit(found).all()


@pytest.mark.triton
@pytest.mark.parametrize("merge", MERGES)
def test_kernels_of_gpus_give_the_same(merge, tmp_path):
    job, names = Job(), {}
    for name in CASES:
        placed, _ = place_ops(graphs(name, merge)[1])
        names[name] = job.add(placed, arrays(name, 5, True), 0, GPUS[90])
    assert sum("merge_each(" in launch["source"] for launch in job.launches) >= len(CASES)
    buffers = job.run(tmp_path, "native", 4)
    assert not job.errors
    for name, ((stored, shape),) in names.items():
        plain, _ = graphs(name, merge)
        assert_near(buffers[stored].reshape(shape), plain, arrays(name, 5, True), merge)


def test_few_places_and_short_turns_are_left_to_others():
    """Many rows at many places are merged as whole numbers; other cases have their own way."""
    names = ("data", "index", "source")

    def ops(places, rows, merge, dtype="f32", width=1):
        inner = (width,) if width > 1 else ()
        inputs = (
            operand("data", places, *inner, dtype=dtype),
            operand("index", rows, *(1 for _ in inner), dtype="i64"),
            operand("source", rows, *inner, dtype=dtype),
        )
        node = make("scatter_rows", inputs, {"axis": 0, "merge": merge, "distinct": 1})
        found, _ = reduce_few_places(Graph(inputs, (node,), names, ("out",), {}))
        return {each.op for each in found.nodes()}

    for merge in MERGES:
        assert "bitcast" in ops(10_000, 200_000, merge)
        assert "bitcast" not in ops(10_000, 400, merge)
        assert "bitcast" in ops(10_000, (1 << 20) - 1, merge)
        assert "bitcast" not in ops(10_000, 1 << 20, merge)  # more than a sum has bits for
        assert "bitcast" not in ops(10_000, 200_000, merge, "f64")
    assert "bitcast" not in ops(10_000, 200_000, "prod")
    # Long rows are summed in the order of their places, which costs nothing an element.
    assert "sum_runs" not in ops(20_000, 200_000, "sum", width=2)
    for dtype in ("f32", "f64", "bf16"):
        assert "sum_runs" in ops(20_000, 200_000, "sum", dtype, width=128)
        assert "sum_runs" in ops(50_257, 8_192, "sum", dtype, width=768)
        assert "sum_runs" not in ops(20_000, 2_000, "sum", dtype, width=128)
    assert "sum_runs" not in ops(20_000, 200_000, "max", width=128)
