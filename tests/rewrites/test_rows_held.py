"""Rows that a program of a GPU puts in order in registers: places and elements, of all types."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.reference import interpret
from aotc.aot.lower import lower
from aotc.aot.rewrites.memory import place_blocks
from aotc.aot.rewrites.order import order_where_ranks_are_of_long_rows, rank_rows
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.compile import check_text
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parents[1] / "lower"))

from case_graphs import operand
from schedule_runner import Job

pytestmark = pytest.mark.triton
TRAITS = GPUS[90]
NUMPY = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
}
# Type, rows, elements of one, how many are wanted, whether the greatest come first.
CASES = (
    ("f32", 5, 64, 2, True), ("f32", 3, 1000, 1000, False), ("f32", 2, 4096, 8, True),
    ("f32", 2, 1024, 1024, True), ("f32", 1, 33, 33, True), ("f32", 70, 32, 5, False),
    ("f16", 4, 300, 300, True), ("f16", 3, 2049, 40, False), ("i32", 2, 777, 777, False),
    ("i16", 3, 512, 512, True), ("i8", 2, 600, 100, False), ("u8", 2, 255, 255, True),
    ("f32", 2, 9000, 50, True), ("i32", 1, 6001, 300, False), ("f16", 3, 4096, 512, True),
    ("u8", 2, 5000, 77, False), ("i16", 2, 1500, 3, True), ("f32", 2, 1200, 512, True),
)  # fmt: skip


# Type, rows, elements of one, whether ranks are given, or how many the last of is wanted.
RANKS = (
    ("f32", 5, 64, None), ("f32", 3, 4097, None), ("f32", 9, 1, 1), ("f32", 2, 777, 777),
    ("f16", 3, 1001, None), ("i64", 2, 1500, None), ("f64", 2, 515, 3), ("u8", 70, 31, None),
    ("i8", 2, 600, 100), ("i16", 3, 2048, None), ("i32", 1, 9000, 8000),
)  # fmt: skip


def graph_of(dtype, rows, extent, wanted, descending, *, has_values, is_wide):
    x = operand("x", rows, extent, dtype=dtype)
    order = make("order_rows", (x,), {"wanted": wanted, "descending": descending})
    places = build.cast(order, "i64") if is_wide else order
    values = make("gather", (x, order), {"axis": 1})
    outputs = (places, values) if has_values else (places,)
    return Graph((x,), outputs, ("x",), ("places", "values")[: len(outputs)], {})


def numbers(dtype, shape, seed):
    """With many that are equal, and those that stand at the ends."""
    random = numpy.random.default_rng(seed)
    if not dtype.startswith("f"):
        info = numpy.iinfo(NUMPY[dtype])
        found = random.integers(info.min, info.max, shape, NUMPY[dtype], endpoint=True)
        found[:, ::3] = found[:, :1]
        return found
    found = random.standard_normal(shape).round(1)
    found[0, :: max(1, shape[1] // 5)] = numpy.nan
    found[-1, 0], found[-1, -1] = -numpy.inf, numpy.inf
    found[:, shape[1] // 2] = -0.0
    return found.astype(NUMPY[dtype])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("has_values", "cases"),
    [(False, CASES[:6]), (True, CASES[6:12]), pytest.param(True, CASES, marks=pytest.mark.nightly)],
)
def test_places_and_elements_are_those_of_the_op(tmp_path, has_values, cases):
    job, found = Job(), []
    for seed, case in enumerate(cases):
        graph = graph_of(*case, has_values=has_values, is_wide=seed % 2 == 0)
        given = [numbers(case[0], case[1:3], seed)]
        placed, _ = place_blocks(rank_rows(graph)[0])
        calls = {node.attr("function") for node in placed.nodes() if node.op == "placed"}
        assert calls <= {"order_rows", "select_rows"}
        found.append((case, job.add(placed, given, 0, TRAITS), interpret(graph, given)))
    buffers = job.run(tmp_path, "native", 4)
    assert not job.errors
    for case, names, expected in found:
        for (stored, shape), wanted in zip(names, expected, strict=True):
            result = buffers[stored].reshape(shape)
            numpy.testing.assert_array_equal(result, wanted, err_msg=str(case))


@pytest.mark.slow
def test_elements_at_ranks_are_those_of_the_op(tmp_path):
    job, found = Job(), []
    for seed, (dtype, rows, extent, wanted) in enumerate(RANKS):
        x = operand("x", rows, extent, dtype=dtype)
        ranks = [operand("ranks", rows, 1, dtype="i64")] if wanted is None else []
        places = make("nth_places", (x, *ranks), {"wanted": wanted or extent})
        values = make("gather", (x, places), {"axis": 1})
        names = ("x", "ranks")[: 1 + len(ranks)]
        graph = Graph((x, *ranks), (places, values), names, ("places", "values"), {})
        given = [numbers(dtype, (rows, extent), seed)]
        drawn = numpy.random.default_rng(seed).integers(0, extent, (rows, 1))
        drawn[0], drawn[-1] = 0, extent - 1
        given += [drawn] * len(ranks)
        placed, _ = place_blocks(rank_rows(order_where_ranks_are_of_long_rows(graph)[0])[0])
        calls = {node.attr("function") for node in placed.nodes() if node.op == "placed"}
        assert calls == {"nth_places"}
        found.append((dtype, job.add(placed, given, 0, TRAITS), interpret(graph, given)))
    buffers = job.run(tmp_path, "native", 4)
    assert not job.errors
    for dtype, names, expected in found:
        for (stored, shape), wanted in zip(names, expected, strict=True):
            result = buffers[stored].reshape(shape)
            numpy.testing.assert_array_equal(result, wanted, err_msg=dtype)


def test_values_and_wide_places_come_from_one_kernel():
    graph = graph_of("f32", 64, 1024, 8, True, has_values=True, is_wide=True)
    placed, _ = place_blocks(rank_rows(graph)[0])
    (spec,) = lower(schedule(placed, TRAITS), TRAITS)
    (candidate,) = spec.candidates
    params = [(param.name, param.type) for param in spec.params_of(candidate)]
    form = spec.form(candidate)
    assert [kind for _, kind in params] == ["*fp32", "*i64", "*fp32"]
    for architecture in ("sm_80", "sm_90"):
        check_text(form.source, form.function, params, candidate.config, architecture)
