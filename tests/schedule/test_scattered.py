"""Norms whose rows would be stored across, which products of 16 bits read as they are computed."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.storage import widen
from aotc.aot.lower import lower
from aotc.aot.schedule import schedule
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parents[1] / "lower"))

from case_graphs import graph_of, op, operand, values, weight
from schedule_runner import Job

TRAITS = GPUS[90]
TOLERANCES = {"f32": 3e-5, "bf16": 2e-2, "f16": 4e-3}


def mixed(
    images: int, tokens: int, channels: int, columns: int, dtype: str, *, is_right: bool = False
) -> Graph:
    """A norm over channels, then a product along the tokens, as a mixer has."""
    x = operand("x", images, tokens, channels, dtype=dtype)
    normed = b.cast(b.standardize(b.cast(x, "f32"), [2], 1e-5), dtype)
    if is_right:
        assert images == 1
        left = weight("w", columns, tokens, dtype=dtype)
        return graph_of([make("matmul", (left, b.reshape(normed, (tokens, channels))))])
    across = b.reshape(b.permute(normed, (0, 2, 1)), (images * channels, tokens))
    return graph_of([make("matmul", (across, weight("w", tokens, columns, dtype=dtype)))])


def norm_of(graph: Graph, traits=TRAITS) -> Node:
    """What the norm's kernel stores."""
    groups = schedule(graph, traits).groups
    (root,) = next(group for group in groups if group.kind == "row").roots
    return root.node


def test_products_of_16_bits_read_the_rows_where_they_are_computed():
    for dtype in ("bf16", "f16"):
        assert norm_of(mixed(8, 196, 768, 384, dtype)).shape == (8, 196, 768)


@pytest.mark.parametrize(
    ("graph", "traits"),
    [
        (mixed(8, 196, 768, 384, "f32"), TRAITS),  # TF32 comes to the tensor cores along the depth
        (mixed(8, 196, 760, 384, "bf16"), TRAITS),  # a tile's rows are of two images
        (mixed(8, 196, 768, 384, "bf16"), CPU),
    ],
)
def test_others_have_the_rows_in_the_order_of_the_product(graph, traits):
    rows = norm_of(graph, traits).shape
    assert rows[-1] == 196
    assert len(rows) == 2


def test_a_result_and_what_else_is_read_stay_as_they_are():
    """Of a result the order is given; elements beside a product have it, too."""
    graph = mixed(8, 196, 768, 384, "bf16")
    (product,) = graph.outputs
    across = product.inputs[0]
    as_result = Graph(graph.inputs, (product, across), ("x",), ("y", "across"), graph.constants)
    assert any(
        root.node.shape == (6144, 196)
        for group in schedule(as_result, TRAITS).groups
        for root in group.roots
    )
    beside = graph_of([product, op("relu", b.cast(across, "f32"))])
    assert norm_of(beside).type.numel == 8 * 196 * 768


def test_rows_that_are_stored_across_have_tiles_of_sectors():
    """A sector of memory has 32 bytes of neighbours."""
    for dtype, rows in (("f32", 8), ("bf16", 16)):
        x = operand("x", 8, 196, 768, dtype=dtype)
        graph = graph_of([b.permute(b.standardize(x, [2], 1e-5), (0, 2, 1))])
        (spec,) = lower(schedule(graph, TRAITS), TRAITS)
        assert dict(spec.candidates[0].config)["XBLOCK"] == rows


@pytest.mark.triton
def test_the_numbers_are_the_references(tmp_path):
    job, rows, chance = Job(), [], random.Random(0)
    for seed in range(10):
        channels = chance.choice((64, 128, 192, 72))
        sizes = chance.randrange(1, 4), chance.randrange(17, 50), channels, chance.choice((24, 64))
        graph = mixed(*sizes, chance.choice(tuple(TOLERANCES)))
        inputs = [values(node.type, seed) for node in graph.inputs]
        start = len(job.launches)
        ((name, shape),) = job.add(
            graph, inputs, lambda spec: chance.choice(spec.candidates), TRAITS
        )
        rows.append((seed, graph, inputs, name, shape, range(start, len(job.launches))))
    buffers = job.run(tmp_path, "native", 2)
    for seed, graph, inputs, name, shape, launches in rows:
        assert not job.error(launches), f"seed {seed}: {job.error(launches)}"
        (node,), (wanted,) = graph.outputs, interpret(graph, inputs)
        wanted = widen(wanted, node.dtype)
        found = widen(buffers[name].reshape(shape), node.dtype)
        atol = TOLERANCES[node.dtype] * numpy.abs(wanted).max()
        numpy.testing.assert_allclose(found, wanted, rtol=0, atol=atol, err_msg=f"seed {seed}")
