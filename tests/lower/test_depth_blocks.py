"""Blocks of the depth of a processor's products, where no large power of two divides it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir.graph import Graph
from aotc.aot.ir.reference import interpret
from aotc.aot.lower import lower
from aotc.aot.lower.tiles import LEAST_INNER_OF_ELEMENTS, power_above
from aotc.aot.schedule import schedule
from aotc.aot.targets.cpu.target import CPU

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import graph_of, op, operand, values
from schedule_runner import Job

DEPTHS = (96, 160, 288, 352, 800, 1120, 2080)


def product(depth: int, dtype: str) -> Graph:
    """relu(x[40, depth]) · y[depth, 72]."""
    x, y = operand("x", 40, depth, dtype=dtype), operand("y", depth, 72, dtype=dtype)
    return graph_of([op("matmul", op("relu", x), y)])


def block(graph: Graph) -> int:
    """BK of the first candidate of the product."""
    specs = lower(schedule(graph, CPU), CPU)
    return next(dict(spec.candidates[0].config)["BK"] for spec in specs if "matmul" in spec.name)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_elements_are_multiplied_in_long_blocks(dtype):
    """The sums of a tile go to memory and back once a block."""
    blocks = {depth: block(product(depth, dtype)) for depth in DEPTHS}
    assert all(
        found >= min(LEAST_INNER_OF_ELEMENTS, power_above(depth)) for depth, found in blocks.items()
    ), blocks


def test_words_are_multiplied_in_blocks_that_divide_the_depth():
    """A tail of words is computed one by one."""
    assert all(depth % block(product(depth, "bf16")) == 0 for depth in DEPTHS)


@pytest.mark.triton
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_sums_are_those_of_the_reference(dtype, tmp_path):
    job, found = Job(), []
    for depth in DEPTHS:
        graph = product(depth, dtype)
        given = [values(node.type, depth + place) for place, node in enumerate(graph.inputs)]
        ((name, shape),) = job.add(graph, given)
        found.append((name, shape, interpret(graph, given)[0]))
    buffers = job.run(tmp_path, "native", 2)
    assert not job.errors
    for name, shape, expected in found:
        atol = (2e-6 if dtype == "f32" else 1e-14) * numpy.abs(expected).max()
        numpy.testing.assert_allclose(buffers[name].reshape(shape), expected, rtol=0, atol=atol)
