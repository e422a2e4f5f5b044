"""Rows written into tensors by the pointwise kernel that computes them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import make
from aotc.aot.ir.reference import interpret
from aotc.aot.rewrites.memory import pair_rows, place_ops
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS
from aotc.aot.traits import TargetTraits

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import graph_of, op, operand
from schedule_runner import Job

pytestmark = pytest.mark.triton
TRAITS = {"cpu": TargetTraits(), "gpu": GPUS[90]}
EXTENT, SIZE = 50, 16


def written(name, places, source, **how):
    how = {"axis": 0, "merge": "replace", "distinct": 1, **how}
    data = operand(name, EXTENT, source.shape[-1])
    return make("scatter_rows", (data, places, source), how)


def placed(*outputs):
    """Of the rows of `parts`: as a build has them before it schedules."""
    graph = graph_of(list(outputs))
    return graph, pair_rows(place_ops(graph)[0])[0]


def step(count, heads, first, is_read=True):
    """Rows of `heads` heads from the `first` on of a turned product, with others of a product."""
    product = operand("product", count, 3 * heads * SIZE)
    turned = op("sin", b.slice_axis(product, 1, 0, 2 * heads * SIZE))
    keys = b.slice_axis(turned, 1, first * SIZE, (first + heads) * SIZE)
    values = b.slice_axis(product, 1, 2 * heads * SIZE, 3 * heads * SIZE)
    places = operand("places", count * heads, 1, dtype="i64")
    rows = [b.reshape(each, (count * heads, SIZE)) for each in (keys, values)]
    both = [
        written(name, places, each, distinct=count * heads)
        for name, each in zip(("keys", "values"), rows, strict=True)
    ]
    return [turned, *both] if is_read else both


def arrays_of(graph, seed):
    generator = numpy.random.default_rng(seed)
    found = []
    for node in graph.inputs:
        if node.attr("name") == "places":  # each once, some of them outside
            every = generator.permutation(numpy.arange(-3, EXTENT + 3))
            found.append(every[: node.type.numel].reshape(node.shape))
        else:
            found.append(generator.standard_normal(node.shape).astype("float32"))
    return found


@pytest.mark.parametrize("traits", TRAITS.values(), ids=TRAITS)
@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize(("count", "heads", "first"), [(1, 2, 2), (1, 1, 1), (3, 2, 1), (5, 3, 0)])
def test_a_launch_computes_and_writes_its_rows(count, heads, first, is_read, traits, tmp_path):
    graph, memory = placed(*step(count, heads, first, is_read))
    plan = schedule(memory, traits)
    (group,) = (group for group in plan.groups if group.updates)
    assert group.kind == "pointwise"
    # The tensors as they were before are copied by the others; on a GPU, small, by one launch.
    assert len(plan.groups) == (2 if traits.is_gpu else 3)
    assert len(group.roots) == 2 + is_read  # what is not read elsewhere is not stored
    arrays = arrays_of(graph, count)
    job = Job()
    names = job.add(memory, arrays, 0, traits)
    buffers = job.run(tmp_path, "native", 4)
    assert not job.errors
    for (stored, shape), expected in zip(names, interpret(graph, arrays), strict=True):
        found = buffers[stored].reshape(shape)
        numpy.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_bytes_of_rows_are_counted_not_those_of_the_tensor():
    _, memory = placed(*step(1, 2, 2))
    (group,) = (group for group in schedule(memory, GPUS[90]).groups if group.updates)
    assert group.bytes < 4 * EXTENT * SIZE


def rows_of(node, **how):
    return written("keys", operand("places", node.shape[0], 1, dtype="i64"), node, **how)


SIN = op("sin", operand("x", 4, SIZE))
PRODUCT = op("matmul", operand("x", 4, 64), operand("w", 64, SIZE))
LONG = op("matmul", operand("x", 30, 64), operand("w", 64, SIZE))
LAUNCHES = {
    "rows that may have one place": ([rows_of(SIN)], 3),
    "rows that are added": ([rows_of(SIN, merge="sum", distinct=4)], 3),
    "rows of a product": ([rows_of(PRODUCT, distinct=4)], 2),
    "many rows of a product": ([rows_of(LONG, distinct=30)], 3),
    "each to its own place": ([rows_of(SIN, distinct=4)], 2),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_only_rows_in_any_order_that_are_computed_elementwise(name):
    outputs, count = LAUNCHES[name]
    _, memory = placed(*outputs)
    assert len(schedule(memory, GPUS[90]).groups) == count


def test_a_kernel_does_not_write_into_what_it_copies():
    """The copy of the tensor would be made by other programs of the same launch."""
    x = operand("x", EXTENT, SIZE)
    rows = op("sin", x)
    data = op("cos", x)
    places = operand("places", EXTENT, 1, dtype="i64")
    how = {"axis": 0, "merge": "replace", "distinct": EXTENT}
    _, memory = placed(make("scatter_rows", (data, places, rows), how), rows)
    for group in schedule(memory, GPUS[90]).groups:
        assert not {before for before, _ in group.updates} & {root.node for root in group.roots}


def test_a_kernel_does_not_wait_for_itself():
    """The places are computed of what the rows' kernel stores, by another one."""
    turned = op("sin", operand("x", 2, SIZE))
    total = b.reshape(b.reduce("sum", turned, (1,)), (2, 1))
    places = b.cast(total, "i64")
    _, memory = placed(turned, written("keys", places, turned, distinct=2))
    groups = schedule(memory, GPUS[90]).groups
    assert [group.kind for group in groups if group.updates] == ["call"]
