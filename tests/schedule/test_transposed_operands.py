"""Right operands of products of f32 on GPUs, which lie along the depth or are copied so."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Constant, Graph, make
from aotc.aot.ir.reference import interpret
from aotc.aot.schedule.contiguous_copies import with_contiguous_copies
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS


def leaf(name, *shape, dtype="f32"):
    return make("input", (), {"name": name, "dtype": dtype, "shape": shape})


def product(left, right, inputs, constants=None):
    found = make("matmul", (left, right))
    names = tuple(node.attr("name") for node in inputs)
    return Graph(tuple(inputs), (found,), names, ("out",), constants or {})


def of_inputs(rows=256, depth=256, columns=256, dtype="f32", *, batch=(), along_depth=False):
    x = leaf("x", *batch, rows, depth, dtype=dtype)
    if along_depth:
        y = leaf("y", *batch, columns, depth, dtype=dtype)
        return product(x, build.transpose(y), (x, y))
    y = leaf("y", *batch, depth, columns, dtype=dtype)
    return product(x, y, (x, y))


def of_a_weight():
    x = leaf("x", 256, 256)
    values = numpy.ones((256, 256), "float32")
    weight = make("constant", (), {"name": "w", "dtype": "f32", "shape": (256, 256)})
    return product(x, weight, (x,), {"w": Constant("w", weight.type, values)})


def copies(graph, traits=GPUS[90]):
    return len(with_contiguous_copies(graph, traits)[1])


def test_an_operand_across_the_depth_is_copied_and_nothing_else_changes():
    for graph in (of_inputs(), of_inputs(64, 64, 128, batch=(40,))):
        assert copies(graph) == 1
        generator = numpy.random.default_rng(0)
        given = [generator.standard_normal(node.shape, "float32") for node in graph.inputs]
        found, _ = with_contiguous_copies(graph, GPUS[90])
        assert numpy.array_equal(interpret(found, given)[0], interpret(graph, given)[0])


@pytest.mark.parametrize(
    "graph",
    [
        of_inputs(along_depth=True),
        of_a_weight(),
        of_inputs(dtype="bf16"),
        of_inputs(64, 64, 64),
        of_inputs(1 << 15, 32, 32),
    ],
    ids=["along the depth", "weight", "bf16", "small", "few terms"],
)
def test_others_are_read_as_they_lie(graph):
    assert copies(graph) == 0


def test_only_gpus_that_split_f32_copy():
    of_few_rows = of_inputs(192, 512)
    assert [copies(of_few_rows, traits) for traits in (GPUS[90], GPUS[80], CPU)] == [1, 1, 0]


def test_products_by_one_operand_share_its_copy():
    x, y, z = leaf("x", 256, 256), leaf("y", 256, 256), leaf("z", 256, 256)
    outputs = tuple(make("matmul", (left, y)) for left in (x, z))
    graph = Graph((x, y, z), outputs, ("x", "y", "z"), ("a", "b"), {})
    assert copies(graph) == 1
