"""Rows in order by ranks and merges: the same places and values as the op itself."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.reference import interpret
from aotc.aot.rewrites.order import (
    MOST_SEARCHED,
    RUN,
    SHORT,
    order_where_ranks_are,
    order_where_ranks_are_of_long_rows,
    rank_rows,
    rank_short_rows,
)
from aotc.aot.rewrites.rewrite import MEMORY, rewrite
from aotc.aot.traits import TargetTraits

WIDTHS = ((1, 1), (SHORT, 3), (RUN, RUN), (RUN + 1, 5), (2 * RUN + 9, RUN), (3 * RUN, 3 * RUN))


def in_order(extent, wanted, descending, dtype="f64"):
    x = make("input", (), {"name": "x", "dtype": dtype, "shape": (3, extent)})
    order = make("order_rows", (x,), {"wanted": wanted, "descending": descending})
    values = make("gather", (x, order), {"axis": 1})
    return Graph((x,), (values, order), ("x",), ("values", "order"), {})


def drawn(extent):
    random = numpy.random.default_rng(extent)
    x = random.standard_normal((3, extent)).round(1)  # many ties
    x[0, :: max(2, extent // 5)] = numpy.nan
    x[1, 0], x[2, extent // 2], x[2, -1] = numpy.inf, -numpy.inf, -0.0
    return x


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("extent", "wanted"), WIDTHS)
def test_ranks_and_merges_give_the_same(extent, wanted, descending):
    graph, x = in_order(extent, wanted, descending), drawn(extent)
    ranked, count = rank_rows(graph)
    assert count == 1
    assert not any(node.op == "order_rows" for node in ranked.nodes())
    for found, expected in zip(interpret(ranked, [x]), interpret(graph, [x]), strict=True):
        numpy.testing.assert_array_equal(found, expected)


def test_short_rows_alone_are_ranked_everywhere():
    assert rank_short_rows(in_order(SHORT, 2, False))[1] == 1
    assert rank_short_rows(in_order(SHORT + 1, 2, False))[1] == 0


def at_ranks(extent, wanted, dtype, *, has_ranks):
    x = make("input", (), {"name": "x", "dtype": dtype, "shape": (3, extent)})
    ranks = make("input", (), {"name": "ranks", "dtype": "i64", "shape": (3, 1)})
    given = (x, ranks) if has_ranks else (x,)
    place = make("nth_places", given, {"wanted": wanted})
    return Graph(given, (place,), ("x", "ranks")[: len(given)], ("place",), {})


@pytest.mark.parametrize("has_ranks", [False, True])
@pytest.mark.parametrize(("extent", "wanted"), WIDTHS)
def test_elements_at_ranks_are_looked_up_in_the_order(extent, wanted, has_ranks):
    graph, x = at_ranks(extent, wanted, "f64", has_ranks=has_ranks), drawn(extent)
    given = [x, numpy.array([[0], [wanted - 1], [wanted // 2]])][: 1 + has_ranks]
    found, count = order_where_ranks_are(graph)
    assert count == 1
    assert not any(node.op == "nth_places" for node in found.nodes())
    numpy.testing.assert_array_equal(interpret(found, given)[0], interpret(graph, given)[0])


@pytest.mark.parametrize(
    ("dtype", "extent", "is_kept"),
    [
        ("f32", MOST_SEARCHED, True), ("f32", MOST_SEARCHED + 1, False), ("f16", 1, True),
        ("i64", MOST_SEARCHED // 2, True), ("i64", MOST_SEARCHED, False),
    ],
)  # fmt: skip
def test_elements_at_ranks_of_rows_in_registers_stay(dtype, extent, is_kept):
    graph = at_ranks(extent, 1, dtype, has_ranks=False)
    assert order_where_ranks_are_of_long_rows(graph)[1] == (not is_kept)


@pytest.mark.parametrize("skip", [(), (MEMORY,)])
def test_only_targets_whose_programs_have_memory_keep_the_op(skip):
    graph = in_order(300, 300, False)
    placed = [
        [node.attr("function") for node in found.nodes() if node.op == "placed"]
        for found in (
            rewrite(graph, TargetTraits(is_gpu=is_gpu), frozenset(skip))[0]
            for is_gpu in (False, True)
        )
    ]
    assert placed == [["order_rows"], ["sort_runs", "sort_runs"]]  # halves of words of 64 bits


@pytest.mark.parametrize(
    ("extent", "is_held"), [(31, False), (32, True), (1024, True), (1025, False)]
)
def test_rows_that_registers_hold_keep_the_op_on_gpus(extent, is_held):
    ranked, count = rank_rows(in_order(extent, extent, True, "f32"))
    assert count == (not is_held)
    assert is_held == any(node.op == "order_rows" for node in ranked.nodes())


@pytest.mark.parametrize(
    ("extent", "wanted"), [(1025, 512), (5000, 1), (50_000, 50), (9001, 512), (150_001, 100)]
)
def test_few_of_long_rows_are_the_first_of_runs(extent, wanted):
    graph, x = in_order(extent, wanted, True, "f32"), drawn(extent).astype("float32")
    found, count = rank_rows(graph)
    assert count == 1
    longest = {n.op: n.inputs[0].shape[-1] for n in found.nodes() if n.op.endswith("_rows")}
    assert longest["select_rows"] <= 4096
    assert longest["order_rows"] <= 1024
    for result, expected in zip(interpret(found, [x]), interpret(graph, [x]), strict=True):
        numpy.testing.assert_array_equal(result, expected)
