"""Which symbol runs along the lanes of a pointwise kernel."""

from __future__ import annotations

import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, make
from aotc.aot.schedule.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS
from aotc.aot.traits import TargetTraits

CPU = TargetTraits()


def given(*shape):
    return make("input", (), {"name": "x", "dtype": "f32", "shape": shape})


def lanes_of(x, result, traits=CPU):
    graph = Graph((x,), (result + 1.0,), ("x",), ("out",), {})
    (group,) = schedule(graph, traits).groups
    return group.domain.rows.extent, group.domain.lanes.extent


def repeated(x, times, *shape):
    middle = build.reshape(x, (x.shape[0], 1, x.shape[1]))
    return build.reshape(build.expand(middle, (x.shape[0], times, x.shape[1])), shape)


@pytest.mark.parametrize("width", [333, 40])
def test_a_part_of_an_axis_that_is_read_in_order(width):
    x = given(50, width)
    assert lanes_of(x, repeated(x, 3, 50, 3 * width)) == (150, width)


def test_not_one_of_few_elements():
    x = given(50, 5)
    assert lanes_of(x, repeated(x, 3, 50, 15))[1] != 5


def test_elements_at_known_distances_are_read_where_results_lie_together():
    x = given(40, 64)
    pairs = build.expand(build.reshape(x, (40, 64, 1)), (40, 64, 2))
    assert lanes_of(x, build.reshape(pairs, (40, 128))) == (1, 40 * 128)


@pytest.mark.parametrize(("traits", "order"), [(CPU, (2, 0, 1, 3)), (GPUS[90], ())])
def test_rows_in_the_order_of_what_is_read(traits, order):
    """Filters as a product's right operand: blocks are transposed where the rows lie together."""
    x = given(96, 64, 3, 3)
    graph = Graph((x,), (build.permute(x, (2, 3, 1, 0)) + 1.0,), ("x",), ("out",), {})
    (group,) = schedule(graph, traits).groups
    assert (group.domain.order, group.domain.lanes.extent) == (order, 96)


def test_rows_that_lie_together_keep_their_order():
    x = given(96, 64, 3)
    graph = Graph((x,), (build.permute(x, (1, 2, 0)) + 1.0,), ("x",), ("out",), {})
    (group,) = schedule(graph, CPU).groups
    assert group.domain.order == ()
