"""Operands of large products whose rows begin at any place, copied for descriptors to read; weights
are stored so."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Constant, Graph, Node, make
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.storage import narrow
from aotc.aot.ir.types import TensorType
from aotc.aot.lower import lower
from aotc.aot.schedule import Schedule, schedule
from aotc.aot.schedule.row_pitch import LEAST_REUSE
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS

TRAITS = GPUS[90]
WIDTH = 1001
ROWS, COLUMNS = 4096, 18  # of products by weights


def operand(name: str, *shape: int, dtype: str = "bf16") -> Node:
    return make("input", (), {"name": name, "dtype": dtype, "shape": shape})


def gradients(rows: int, columns: int, width: int, dtype: str = "bf16") -> Graph:
    """Of a linear layer [rows, columns] → [rows, width]: of its input and of its weight."""
    slopes = operand("slopes", 2, rows // 2, width, dtype=dtype)
    weight, given = operand("weight", width, columns, dtype=dtype), operand("x", rows, columns)
    flat = build.reshape(slopes, (rows, width))
    of_input = make("matmul", (flat, weight))
    of_weight = make("matmul", (build.permute(flat, (1, 0)), build.cast(given, dtype)))
    inputs = (slopes, weight, given)
    return Graph(inputs, (of_input, of_weight), ("slopes", "weight", "x"), ("dx", "dw"), {})


def copies(found: Schedule) -> list[Node]:
    """Nodes that are stored in rows of another width."""
    return [
        root.node
        for group in found.groups
        for root in group.roots
        if root.node.op == "copy" and root.node.inputs[0].op == "pad"
    ]


def test_one_copy_serves_both_gradients_and_descriptors_read_it():
    graph = gradients(1024, 768, WIDTH)
    found = schedule(graph, TRAITS)
    (copy,) = copies(found)
    assert copy.shape == (2, 512, 1024)
    matmuls = [spec for spec in lower(found, TRAITS) if spec.name.startswith("matmul")]
    assert len(matmuls) == 2
    assert all(any(each.maps for each in spec.candidates[:4]) for spec in matmuls)


def test_the_numbers_are_the_same():
    graph = gradients(1024, 768, WIDTH)
    random = numpy.random.default_rng(0)
    arrays = [
        (random.standard_normal(node.shape).astype("float32").view("uint32") >> 16).astype("uint16")
        for node in graph.inputs
    ]
    found = interpret(schedule(graph, TRAITS).graph, arrays)
    for own, expected in zip(found, interpret(graph, arrays), strict=True):
        numpy.testing.assert_array_equal(own, expected)


@pytest.mark.parametrize(
    ("graph", "traits"),
    [
        (gradients(1024, 768, WIDTH), CPU),
        (gradients(1024, 768, 1000), TRAITS),
        (gradients(1024, LEAST_REUSE // 2, 1001, "f64"), TRAITS),
    ],
    ids=["on a processor", "aligned", "of f64"],
)
def test_none_is_made_where_nothing_is_gained(graph, traits):
    assert not copies(schedule(graph, traits))


@pytest.mark.parametrize(
    ("graph", "traits"),
    [
        (gradients(1024, 768, WIDTH), GPUS[80]),
        (gradients(LEAST_REUSE // 2, LEAST_REUSE // 2, WIDTH), TRAITS),
        (gradients(1024, 768, WIDTH, "f32"), TRAITS),
    ],
    ids=["without a copy unit", "small", "of f32"],
)
def test_where_no_descriptor_reads_rows_the_depth_is_filled_up(graph, traits):
    (left, right) = copies(schedule(graph, traits))
    assert {left.shape[1], right.shape[1]} == {1024}


def weighted(depth: int, names: tuple[str, ...], is_transposed: bool) -> Graph:
    """Rows `[4096, depth]` by a weight of 18 columns, as it lies or transposed."""
    x = make("input", (), {"name": "x", "dtype": "bf16", "shape": (ROWS, depth)})
    shape = (COLUMNS, depth) if is_transposed else (depth, COLUMNS)
    values = narrow(numpy.random.default_rng(depth).standard_normal(shape, "float32"), "bf16")
    weight = build.constant("w", TensorType("bf16", shape))
    right = build.transpose(weight) if is_transposed else weight
    pool = {"w": Constant("w", weight.type, values, names)}
    return Graph((x,), (make("matmul", (x, right)),), ("x",), ("y",), pool)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("names", [(), ("layer.weight",)])
@pytest.mark.parametrize("depth", [168, 176])
def test_weights_are_stored_at_a_pitch_and_no_call_copies_them(depth, names, is_transposed):
    graph = weighted(depth, names, is_transposed)
    found = schedule(graph, GPUS[90])
    assert len(found.groups) == 1
    (constant,) = found.graph.constants.values()
    columns = depth if is_transposed else COLUMNS
    assert constant.type.shape[-1] == columns + -columns % 8
    kept = constant.array[:, :columns]
    assert numpy.array_equal(kept, graph.constants["w"].array)
    assert not constant.array[:, columns:].any()
    if constant.name != "w" and names:  # other weights are brought to it
        assert [leaf.names for leaf in constant.leaves] == [names]
    x = narrow(numpy.random.default_rng(1).standard_normal((ROWS, depth), "float32"), "bf16")
    assert numpy.array_equal(interpret(found.graph, [x])[0], interpret(graph, [x])[0])
