"""Left operands of large products that are computed of elements which lie apart."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.reference import interpret
from aotc.aot.schedule import schedule
from aotc.aot.schedule.contiguous_copies import LARGE, with_contiguous_copies
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS

DEPTH = 16


def product(inner: int, outer: int, is_computed: bool = True, is_last: bool = False) -> Graph:
    """[outer, 16, inner], doubled → rows `[outer · inner, 16]`, times `[16, 16]`; as they lie where
    the depth is the last axis."""
    shape = (outer, inner, DEPTH) if is_last else (outer, DEPTH, inner)
    x = make("input", (), {"name": "x", "dtype": "f32", "shape": shape})
    weight = make("input", (), {"name": "w", "dtype": "f32", "shape": (DEPTH, DEPTH)})
    data: Node = x + x if is_computed else x
    rows = data if is_last else build.permute(data, (0, 2, 1))
    found = make("matmul", (build.reshape(rows, (outer * inner, DEPTH)), weight))
    return Graph((x, weight), (found,), ("x", "w"), ("y",), {})


def test_rows_that_need_a_pitch_are_stored_once():
    rows, depth, columns = 17 * (LARGE // (17 * 50) + 1), 50, 512
    x = make("input", (), {"name": "x", "dtype": "bf16", "shape": (rows // 17, depth, 17)})
    weight = make("input", (), {"name": "w", "dtype": "bf16", "shape": (depth, columns)})
    data = build.reshape(build.permute(x + x, (0, 2, 1)), (rows, depth))
    found = make("matmul", (data, weight))
    graph = Graph((x, weight), (found,), ("x", "w"), ("y",), {})
    assert len(schedule(graph, GPUS[90]).groups) == 2


def is_stored(graph: Graph, traits) -> bool:
    return bool(with_contiguous_copies(graph, traits)[1])


@pytest.mark.parametrize("inner", [17, 24, 49, 197])
def test_rows_of_odd_runs_are_computed_before_the_product(inner):
    outer = LARGE // (inner * DEPTH) + 1
    graph = product(inner, outer)
    assert is_stored(graph, GPUS[90])
    assert not is_stored(graph, CPU)
    assert len(schedule(graph, GPUS[90]).groups) == 2
    x = numpy.random.default_rng(inner).standard_normal(graph.inputs[0].shape, numpy.float32)
    weight = numpy.eye(DEPTH, dtype="float32")
    found, _ = with_contiguous_copies(graph, GPUS[90])
    (one,), (other,) = interpret(found, [x, weight]), interpret(graph, [x, weight])
    assert numpy.array_equal(one, other)


def read_twice(is_output: bool) -> Graph:
    """Rows that are stored anyway: read by a sum too, or given back."""
    graph = product(17, LARGE // (17 * DEPTH) + 1)
    (found,) = graph.outputs
    computed = found.inputs[0].inputs[0].inputs[0]
    assert computed.op == "add"
    other = computed if is_output else build.reduce("sum", computed, (1,))
    return Graph(graph.inputs, (found, other), graph.input_names, ("y", "z"), {})


@pytest.mark.parametrize("graph", [
    read_twice(True),
    read_twice(False),
    product(48, LARGE // (48 * DEPTH) + 1),  # runs of 16
    product(17, LARGE // (17 * DEPTH)),  # fewer elements
    product(17, LARGE // (17 * DEPTH) + 1, is_computed=False),  # a view
    product(17, LARGE // (17 * DEPTH) + 1, is_last=True),  # the depth lies together
], ids=["output", "read", "runs", "few", "view", "depth"])  # fmt: skip
def test_others_are_computed_in_the_product(graph):
    assert not is_stored(graph, GPUS[90])
