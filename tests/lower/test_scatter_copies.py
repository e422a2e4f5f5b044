"""Rows written on processors into copies that their own kernel makes, at places of the caller's."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import State, make
from aotc.aot.ir.infer import MERGES
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.storage import narrow, widen
from aotc.aot.rewrites.memory import place_ops, scattered_into_copies, wide_places_in_place
from aotc.aot.targets.cpu.target import CPU

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import graph_of, operand
from schedule_runner import Job

pytestmark = pytest.mark.triton
# Data, axis, rows, whether each element has a place of its own, the type, whether it is so.
CASES = {
    "numbers": ((1000,), 0, 700, False, "f32", True),
    "few rows": ((2500, 3), 0, 2, False, "f32", True),
    "rows of a matrix": ((37, 64), 0, 110, False, "f32", True),
    "places of each element": ((20, 23, 9), 1, 30, True, "f32", True),
    "a row of each": ((50, 1030), 1, 64, True, "bf16", True),
    "whole numbers": ((3, 19), 1, 51, True, "i64", True),
    "middle axis": ((3, 40, 5), 1, 20, False, "f64", True),
    "wide rows": ((37, 65), 0, 110, False, "f32", False),
    "one row": ((37, 7), 0, 1, False, "f32", None),
    "long": (((1 << 16) + 1,), 0, 11, False, "f32", False),
}


def _graph(name, merge):
    shape, axis, rows, has_own_places, dtype, _ = CASES[name]
    source = [*shape[:axis], rows, *shape[axis + 1 :]]
    index = source if has_own_places else [rows if at == axis else 1 for at in range(len(shape))]
    wide = operand("index", *index, dtype="i64")
    held = b.cast(b.minimum(b.maximum(wide, -1), shape[axis]), "i32")
    operands = operand("data", *shape, dtype=dtype), held, operand("source", *source, dtype=dtype)
    how = {"axis": axis, "merge": merge, "distinct": 1}
    return graph_of([make("scatter_rows", operands, how)])


def _arrays(name, graph):
    shape, axis, *_ = CASES[name]
    generator, found = numpy.random.default_rng(len(name)), []
    for node in graph.inputs:
        if node.attr("name") == "index":
            places = generator.integers(-2, shape[axis] + 2, node.shape)
            far = generator.integers(-(1 << 62), 1 << 62, node.shape)
            found.append(numpy.where(generator.random(node.shape) < 0.1, far, places))
        else:  # sums of whole numbers are exact, whatever their order
            found.append(narrow(generator.integers(-2, 3, node.shape), node.dtype))
    return found


def _placed(graph):
    graph, count = scattered_into_copies(place_ops(graph)[0])
    return wide_places_in_place(graph)[0], count


@pytest.mark.slow
def test_rows_are_written_into_copies(tmp_path):
    job, cases = Job(), []
    for name, (*_, dtype, is_copied) in CASES.items():
        for merge in MERGES:
            graph = _graph(name, merge)
            placed, count = _placed(graph)
            # A row that is replaced has no order: whoever computes it may store it.
            assert count == (merge != "replace" if is_copied is None else is_copied), name
            given = _arrays(name, graph)
            (expected,) = interpret(graph, given)
            cases.append((f"{name}, {merge}", dtype, expected, job.add(placed, given, 0, CPU)))
    buffers = job.run(tmp_path, "native", 2)
    assert not job.errors
    for name, dtype, expected, ((buffer, shape),) in cases:
        found = widen(buffers[buffer].reshape(shape), dtype)
        assert numpy.array_equal(found, widen(expected, dtype), equal_nan=dtype != "i64"), name


def test_states_and_what_others_read_are_written_where_they_are():
    graph = _graph("numbers", "sum")
    (data,) = [node for node in graph.inputs if node.attr("name") == "data"]
    others = tuple(node for node in graph.inputs if node is not data)
    names = tuple(node.attr("name") for node in (*others, data))
    state = State("data", None)
    held = type(graph)((*others, data), graph.outputs, names, ("new",), {}, (state,))
    assert scattered_into_copies(place_ops(held)[0])[1] == 0
    computed = graph.replaced({data: b.unary("exp", operand("other", 1000))})
    assert scattered_into_copies(place_ops(computed)[0])[1] == 0
