"""Products on a GPU whose depth is no whole number of loads, or does not lie together."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Constant, Graph, make
from aotc.aot.ir.narrow import at_sizes
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.size import Dim, size_of
from aotc.aot.ir.storage import narrow
from aotc.aot.ir.types import TensorType
from aotc.aot.schedule.contiguous_copies import with_contiguous_copies
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS

TRAITS = GPUS[90]


def leaf(name, *shape, dtype="f32"):
    return make("input", (), {"name": name, "dtype": dtype, "shape": shape})


def graph_of(root, *inputs, constants=None):
    names = tuple(node.attr("name") for node in inputs)
    return Graph(tuple(inputs), (root,), names, ("out",), constants or {})


def of_inputs(rows, depth, columns, dtype="f32", batch=()):
    x, y = (
        leaf("x", *batch, rows, depth, dtype=dtype),
        leaf("y", *batch, depth, columns, dtype=dtype),
    )
    return graph_of(make("matmul", (x, y)), x, y)


def of_a_weight(rows, depth, columns, dtype="f32"):
    values = numpy.random.default_rng(depth).standard_normal((columns, depth), "float32")
    weight = build.constant("w", TensorType(dtype, values.shape))
    x = leaf("x", rows, depth, dtype=dtype)
    root = make("matmul", (x, build.transpose(weight)))
    pool = {"w": Constant("w", weight.type, narrow(values, dtype), ("layer.weight",))}
    return graph_of(root, x, constants=pool)


def random_inputs(graph, seed):
    generator = numpy.random.default_rng(seed)
    return [
        narrow(generator.standard_normal(node.shape, "float32"), node.dtype)
        for node in graph.inputs
    ]


def depths(found):
    return [node.inputs[0].shape[-1] for node in found.nodes() if node.kind == "matmul"]


@pytest.mark.parametrize("seed", range(12))
def test_the_numbers_are_those_of_the_product_alone(seed):
    generator = numpy.random.default_rng(seed)
    rows, depth, columns = (int(generator.integers(70, 400)) for _ in range(3))
    dtype = ("f32", "bf16", "f16")[seed % 3]
    batch = (3,) if seed % 2 and seed % 3 == 0 else ()
    graphs = [
        of_inputs(rows, depth, columns, dtype, batch),
        of_a_weight(rows, depth, columns, dtype),
    ]
    for graph in graphs:
        found, _ = with_contiguous_copies(graph, TRAITS)
        given = random_inputs(graph, seed)
        (own,), (expected,) = interpret(found, given), interpret(graph, given)
        if dtype != "f32":
            numpy.testing.assert_array_equal(own, expected)
        else:  # other blocks of numpy's product
            numpy.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("graph", "depth", "count"),
    [
        (of_inputs(101, 101, 101), 128, 2),
        (of_a_weight(200, 517, 211), 544, 1),
        (of_a_weight(200, 517, 211, "bf16"), 576, 1),
        (of_inputs(200, 517, 211, "f16"), 576, 2),
    ],
)
def test_the_depth_is_filled_up_to_lines(graph, depth, count):
    found, copies = with_contiguous_copies(graph, TRAITS)
    assert depths(found) == [depth]
    assert len(copies) == count  # a weight is stored so
    assert all(not each.array[:, -1].any() for each in found.constants.values())


@pytest.mark.parametrize(
    "graph",
    [
        of_inputs(200, 201, 211, "bf16"),
        of_inputs(16, 1001, 500),
        of_inputs(500, 1001, 16),
        of_inputs(200, 201, 211, "f64"),
        of_inputs(300, 20, 300),
        of_a_weight(256, 512, 256),
    ],
    ids=["short", "few rows", "few columns", "f64", "few terms", "whole loads"],
)
def test_others_stay(graph):
    found, copies = with_contiguous_copies(graph, TRAITS)
    assert not copies
    assert depths(found) == depths(graph)


def test_windows_are_not_copied_for_it():
    x, w = leaf("x", 4, 3, 64, 64), leaf("w", 3 * 7 * 7, 64)
    how = {"axes": (2, 3), "sizes": (7, 7), "strides": (2, 2), "dilations": (1, 1)}
    windows = build.permute(make("window", (x,), how), (0, 2, 3, 1, 4, 5))
    root = make("matmul", (build.reshape(windows, (4 * 29 * 29, 147)), w))
    found, _ = with_contiguous_copies(graph_of(root, x, w), TRAITS)
    assert depths(found) == [147]


def test_rows_of_any_number():
    rows = size_of(Dim("n", 1, 500, 200))
    graph = of_inputs(rows, 301, 120)
    found, copies = with_contiguous_copies(graph, TRAITS)
    assert len(copies) == 2
    for count in (1, 77, 500):
        own, expected = (at_sizes(each, {"n": count}) for each in (found, graph))
        given = random_inputs(expected, count)
        numpy.testing.assert_allclose(
            interpret(own, given)[0], interpret(expected, given)[0], rtol=1e-4, atol=1e-4
        )


def test_numbers_that_are_rounded_in_memory_are_stored_with_the_depth_together():
    """Filters of one pixel, and planes: both are rounded, and lie across the depth."""
    x, w = leaf("x", 4, 128, 28, 28), leaf("w", 128, 96)
    rows = build.reshape(build.permute(build.unary("round_tf32", x), (0, 2, 3, 1)), (4 * 784, 128))
    root = make("matmul_tf32", (rows, build.unary("round_tf32", w)))
    graph = graph_of(root, x, w)
    found, copies = with_contiguous_copies(graph, TRAITS)
    stored = [node for node in found.nodes() if build.is_stored(node)]
    assert sorted(node.shape for node in stored) == [(96, 128), (3136, 128)]
    assert copies.issuperset(stored)
    given = random_inputs(graph, 5)
    numpy.testing.assert_allclose(
        interpret(found, given)[0], interpret(graph, given)[0], rtol=1e-5, atol=1e-5
    )


def test_only_gpus_fill_up():
    assert not with_contiguous_copies(of_inputs(101, 101, 101, "bf16"), CPU)[1]
