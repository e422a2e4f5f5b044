"""Operands of large products whose rows begin at any place, copied for descriptors to read."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.reference import interpret
from aotc.aot.lower import lower
from aotc.aot.schedule import Schedule, schedule
from aotc.aot.schedule.contiguous_copies import LEAST_REUSE
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS

TRAITS = GPUS[90]
WIDTH = 1001


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
        (gradients(1024, 768, WIDTH), GPUS[80]),
        (gradients(1024, 768, 1000), TRAITS),
        (gradients(LEAST_REUSE // 2, LEAST_REUSE // 2, WIDTH), TRAITS),
        (gradients(1024, 768, WIDTH, "f32"), TRAITS),
    ],
    ids=["on a processor", "without a copy unit", "aligned", "small", "of f32"],
)
def test_none_is_made_where_nothing_is_gained(graph, traits):
    assert not copies(schedule(graph, traits))
