"""What conditions say of further ones, beside every index that meets them."""

from __future__ import annotations

import random

import pytest

from aotc.aot.ir import index as ix
from aotc.aot.ir.index import Bound, Symbol
from aotc.aot.lower.guards import is_possible, remaining

ROWS, LANES = Symbol("x", 9), Symbol("y", 13)
LOWEST = -4


def drawn_bound(generator):
    index = generator.choice((ix.of(ROWS), ix.of(LANES), ix.of(LANES) % 5))
    low, high = sorted(generator.sample(range(LOWEST, 18), 2))
    side = generator.randrange(3)
    moved = index + generator.choice((0, 0, 3, -2))
    return Bound(moved, None if side == 1 else low, None if side == 2 else high)


def holds(conditions, row, lane):
    for each in conditions:
        found = each.index.substitute({ROWS: ix.constant(row), LANES: ix.constant(lane)}).constant
        if each.low is not None and found < each.low:
            return False
        if each.high is not None and found >= each.high:
            return False
    return True


@pytest.mark.parametrize("seed", range(4))
def test_what_is_left_out_changes_no_answer(seed):
    generator, impossible, implied = random.Random(seed), 0, 0
    places = [(row, lane) for row in range(ROWS.extent) for lane in range(LANES.extent)]
    for _ in range(150):
        guard = tuple(drawn_bound(generator) for _ in range(generator.randrange(3)))
        conditions = tuple(drawn_bound(generator) for _ in range(generator.randrange(1, 3)))
        met = [place for place in places if holds(guard, *place)]
        both = [place for place in met if holds(conditions, *place)]
        if not is_possible(conditions, guard):
            impossible += 1
            assert not both
        rest = remaining(conditions, guard)
        implied += len(rest) < len(conditions)
        assert [place for place in met if holds(rest, *place)] == both
    assert impossible > 5
    assert implied > 5


def test_opposite_and_wider_conditions_of_one_index():
    lane = ix.of(LANES)
    guard = (Bound(lane, 4, None),)
    assert not is_possible((Bound(lane, None, 4),), guard)
    assert not is_possible((Bound(lane - 4, None, 0),), guard)
    assert is_possible((Bound(lane, None, 5),), guard)
    assert remaining((Bound(lane, 3, None),), guard) == ()
    assert remaining((Bound(lane, 5, None),), guard) == (Bound(lane, 5, None),)
    assert remaining((Bound(ix.of(ROWS), 3, None),), guard) == (Bound(ix.of(ROWS), 3, None),)
