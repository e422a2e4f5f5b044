"""Scans of blocks: the same as the op itself."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.infer import SCANS
from aotc.aot.ir.narrow import at_sizes
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.size import Dim, size_of
from aotc.aot.rewrites.rewrite import MEMORY, rewrite
from aotc.aot.rewrites.scan import BLOCK, FEW, SHORT, WALKED, expand_scans, expand_short_scans
from aotc.aot.traits import TargetTraits

EXTENTS = (1, SHORT, FEW + 1, BLOCK + 1, BLOCK * FEW + 5)


def scan_of(kind, extent, axis=1, is_reversed=False):
    shape = (3, extent) if axis == 1 else (extent, 3)
    x = make("input", (), {"name": "x", "dtype": "f32", "shape": shape})
    attrs = {"kind": kind, "axis": axis, "is_reversed": is_reversed}
    return Graph((x,), (make("scan", (x,), attrs),), ("x",), ("found",), {})


def drawn(kind, shape):
    random = numpy.random.default_rng(shape[0])
    x = random.standard_normal(shape).round(1).astype("float32")  # many ties
    if kind == "prod":
        return 1 + x / 100
    if kind != "sum":
        flat = x.reshape(-1)
        flat[len(flat) // 2], flat[0], flat[-1] = numpy.nan, -numpy.inf, -0.0
    return x


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("kind", SCANS)
@pytest.mark.parametrize("extent", EXTENTS)
def test_scans_of_blocks_give_the_same(extent, kind, is_reversed):
    for axis in (0, 1):
        graph = scan_of(kind, extent, axis, is_reversed)
        x = drawn(kind, graph.inputs[0].shape)
        expanded, count = expand_scans(graph)
        assert count == 1
        left = [node for node in expanded.nodes() if node.op == "scan"]
        assert all(node.attr("axis") == node.type.rank - 1 for node in left)
        assert all(node.shape[-1] <= BLOCK for node in left)
        assert bool(left) == (extent > FEW)
        (found,), (expected,) = interpret(expanded, [x]), interpret(graph, [x])
        if kind.endswith("_place"):
            numpy.testing.assert_array_equal(found, expected)
        numpy.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("longest", "scans"),
    [(FEW, []), (BLOCK, ["scan"]), (WALKED, ["scan"]), (1 << 20, ["scan_blocks", "scan"])],
)
def test_rows_of_dynamic_length_are_scanned_where_they_lie(longest, scans):
    """A row of one element is not filled up to 1,024."""
    size = Dim("n", 1, longest, 20)
    for kind, is_reversed in (("sum", False), ("max_place", True)):
        graph = scan_of(kind, size_of(size), 1, is_reversed)
        expanded, _ = expand_scans(graph)
        found = [node.op for node in expanded.nodes() if node.op.startswith("scan")]
        assert found == scans * (2 if kind.endswith("_place") else 1)
        assert not any(
            node.op == "reshape" and node.inputs[0].op == "pad" for node in expanded.nodes()
        )
        for extent in {1, min(longest, 5), min(longest, BLOCK + 1), min(longest, 3 * BLOCK)}:
            one = scan_of(kind, extent, 1, is_reversed)
            x = drawn(kind, one.inputs[0].shape)
            (found,) = interpret(at_sizes(expanded, {"n": extent}), [x])
            (expected,) = interpret(one, [x])
            numpy.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_short_ones_alone_are_expanded_everywhere():
    assert expand_short_scans(scan_of("sum", SHORT))[1] == 1
    assert expand_short_scans(scan_of("sum", SHORT + 1))[1] == 0


@pytest.mark.parametrize("skip", [(), (MEMORY,)])
@pytest.mark.parametrize(("extent", "on_gpu"), [(20, 0), (300, 1), (3000, 1), (100_000, 2)])
def test_programs_of_a_gpu_have_blocks_of_rows_those_of_a_processor_rows(extent, on_gpu, skip):
    graph = scan_of("sum", extent)
    placed = [
        [node.attr("function") for node in found.nodes() if node.op == "placed"]
        for found in (
            rewrite(graph, TargetTraits(is_gpu=is_gpu), frozenset(skip))[0]
            for is_gpu in (False, True)
        )
    ]
    assert placed == [["scan"], ["scan"] * on_gpu]
