"""Right operands that the call computes, in panels for products that read them often."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.infer import PACK_N
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.storage import narrow
from aotc.aot.schedule.contiguous_copies import with_contiguous_copies
from aotc.aot.targets.cpu.target import CPU, find
from aotc.aot.targets.cuda.machines import GPUS


def leaf(name, *shape, dtype="f32"):
    return make("input", (), {"name": name, "dtype": dtype, "shape": shape})


def graph_of(x, y, left, right):
    product = make("matmul", (left, right))
    return Graph((x, y), (product,), ("x", "y"), ("out",), {})


def plain(rows, depth, columns, dtype="f32", batch=()):
    x, y = (
        leaf("x", *batch, rows, depth, dtype=dtype),
        leaf("y", *batch, depth, columns, dtype=dtype),
    )
    return graph_of(x, y, x, y)


def of_transposed(rows, depth, columns, dtype="f32"):
    x, y = leaf("x", depth, rows, dtype=dtype), leaf("y", columns, depth, dtype=dtype)
    return graph_of(x, y, build.transpose(x), build.transpose(y))


def of_filters(rows, channels, columns):
    """Filters [columns, channels, 3] that come as an input, read with channels last."""
    x, y = leaf("x", rows, 3 * channels), leaf("y", columns, channels, 3)
    filters = build.reshape(build.permute(y, (2, 1, 0)), (3 * channels, columns))
    return graph_of(x, y, x, filters)


def scheduled(graph, traits=CPU):
    found, copies = with_contiguous_copies(graph, traits)
    kinds = [node.kind for node in found.nodes() if node.kind.startswith("matmul")]
    return found, len(copies), kinds


@pytest.mark.parametrize(
    ("graph", "count"),
    [
        (plain(256, 64, 64), 1),
        (plain(300, 70, 130), 1),
        (plain(256, 40, 100, "f64", (1,)), 1),
        (of_transposed(260, 64, 100), 1),
        (of_transposed(260, 64, 300), 2),
        (of_filters(40, 16, 70), 1),
    ],
    ids=["whole", "padded", "f64", "columns", "both", "filters"],
)
def test_the_product_is_the_same(graph, count):
    generator = numpy.random.default_rng(0)
    given = [
        generator.standard_normal(node.shape).astype(
            "float64" if node.dtype == "f64" else "float32"
        )
        for node in graph.inputs
    ]
    found, copies, kinds = scheduled(graph)
    assert (copies, kinds) == (count, ["matmul_packed"])
    expected, made = interpret(graph, given)[0], interpret(found, given)[0]
    numpy.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "graph",
    [
        plain(255, 64, 64),
        plain(512, 16, 64),
        plain(512, 64, 32),
        plain(512, 64, 64, "bf16"),
        plain(512, 64, 64, batch=(2,)),
    ],
    ids=["few rows", "few terms", "few columns", "bf16", "several products"],
)
def test_others_stay(graph):
    assert scheduled(graph)[2] == ["matmul"]


def test_gpus_have_no_panels():
    assert scheduled(plain(512, 512, 512), GPUS[90])[2] == ["matmul"]


def by_words():
    target = find("cpu-x86-64-v4-bf16")
    assert target is not None
    return target.traits


@pytest.mark.parametrize(
    ("graph", "count"),
    [
        (plain(256, 64, 64, "bf16"), 1),
        (plain(512, 64, 70, "bf16"), 2),
        (plain(512, 71, 300, "bf16"), 3),
        (of_transposed(260, 64, 320, "bf16"), 2),
    ],
    ids=["whole", "padded columns", "odd depth", "both transposed"],
)
def test_words_lie_together_in_panels(graph, count):
    """Small whole numbers, whose products and sums bf16 has."""
    generator = numpy.random.default_rng(0)
    given = [
        narrow(generator.integers(-1, 2, node.shape).astype("float32"), node.dtype)
        for node in graph.inputs
    ]
    found, copies, kinds = scheduled(graph, by_words())
    assert (copies, kinds) == (count, ["matmul_packed"])
    (product,) = (node for node in found.nodes() if node.kind == "matmul_packed")
    assert product.inputs[1].shape[-2:] == (PACK_N, 2)
    numpy.testing.assert_array_equal(interpret(found, given)[0], interpret(graph, given)[0])


@pytest.mark.parametrize(
    "graph",
    [
        plain(255, 64, 64, "bf16"),
        plain(511, 64, 70, "bf16"),
        plain(512, 71, 128, "bf16"),
        plain(512, 64, 64, "f16"),
    ],
    ids=["few rows", "few rows for zeros", "odd depth of few columns", "f16"],
)
def test_other_words_stay(graph):
    assert scheduled(graph, by_words())[2] == ["matmul"]


@pytest.mark.parametrize(
    ("graph", "kind"),
    [
        (plain(512, 64, 64, "bf16"), "matmul_packed"),
        (plain(512, 96, 64, "bf16"), "matmul"),
        (plain(512, 64, 70, "bf16"), "matmul"),
    ],
    ids=["whole", "part of a block", "part of a panel"],
)
def test_whole_blocks_of_tiles_are_packed(graph, kind):
    target = find("cpu-x86-64-amx")
    assert target is not None
    assert scheduled(graph, target.traits)[2] == [kind]
