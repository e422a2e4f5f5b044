"""What lanes add to an index, beside the index itself at every place."""

from __future__ import annotations

import random

import pytest

from aotc.aot.ir import index as ix
from aotc.aot.ir.index import Symbol
from aotc.aot.schedule.lane_steps import has_plain_answers, lane_steps

WIDTH = 16
ROWS, LANES = Symbol("x", 5), Symbol("y", 192)


def drawn(generator: random.Random, depth: int) -> ix.Index:
    """Arithmetic on the row and the lane."""
    if not depth:
        return generator.choice((ix.of(ROWS), ix.of(LANES), ix.of(LANES), ix.constant(3)))
    first, second = (drawn(generator, depth - 1) for _ in range(2))
    number = generator.choice((1, 2, 3, 4, 8, 16, 32, 64, 50))
    return generator.choice((first // number, first % number, first * number + second))


def at(index: ix.Index, row: int, lane: int) -> int:
    found = index.substitute({ROWS: ix.constant(row), LANES: ix.constant(lane)})
    assert found.is_constant
    return found.constant


@pytest.mark.parametrize("seed", range(5))
def test_they_are_the_same_wherever_a_vector_begins(seed):
    generator, known, unknown = random.Random(seed), 0, 0
    for _ in range(60):
        index = drawn(generator, generator.randrange(1, 5))
        steps = lane_steps(index, LANES, WIDTH)
        differ = False
        for row in range(ROWS.extent):
            for start in range(0, LANES.extent, WIDTH):
                first = at(index, row, start)
                found = tuple(at(index, row, start + lane) - first for lane in range(WIDTH))
                if steps is not None:
                    assert found == tuple(step - steps[0] for step in steps), str(index)
                differ = differ or found != tuple(range(WIDTH))
        known, unknown = known + (steps is not None), unknown + (steps is None and not differ)
    assert known > 20
    assert not unknown


def test_pairs_beside_each_other_and_rows_that_straddle_a_vector():
    lane = ix.of(LANES)
    assert lane_steps(lane // 2, LANES, 4) == (0, 0, 1, 1)
    assert lane_steps((lane % 2) * 100 + lane // 2, LANES, 4) == (0, 100, 1, 101)
    assert lane_steps((lane // 64) * 1000 + (lane // 2) % 32, LANES, 4) == (0, 0, 1, 1)
    assert lane_steps((lane // 2) % 50, LANES, WIDTH) is None


def holds(condition: ix.Bound, row: int, lane: int) -> bool:
    value = at(condition.index, row, lane)
    return (condition.low is None or value >= condition.low) and (
        condition.high is None or value < condition.high
    )


@pytest.mark.parametrize("seed", range(5))
def test_plain_answers(seed):
    """Conditions on quotients hold where those on what is divided do; answers are plain where all
    vectors have the same ones, or all lanes, or they change once along a row."""
    generator, plain, others = random.Random(seed), 0, 0
    for _ in range(60):
        index = drawn(generator, generator.randrange(1, 4)) - generator.choice((0, 3, 16))
        low, high = sorted(generator.sample((*range(12), 16, 32, 48, 64, 96, 160), 2))
        ends = generator.choice(((low, None), (None, high), (low, high)))
        condition = ix.Bound(index, *ends)
        answers = [
            [holds(condition, row, lane) for lane in range(LANES.extent)]
            for row in range(ROWS.extent)
        ]
        assert answers == [
            [holds(condition.undivided, row, lane) for lane in range(LANES.extent)]
            for row in range(ROWS.extent)
        ]
        is_plain = has_plain_answers(condition, LANES, WIDTH)
        plain, others = plain + is_plain, others + (not is_plain)
        if is_plain and condition.undivided.index.stride(LANES) is None:
            starts = range(0, LANES.extent, WIDTH)
            vectors = {tuple(row[start : start + WIDTH]) for row in answers for start in starts}
            assert len(vectors) == 1 or all(len(set(vector)) == 1 for vector in vectors)
    assert plain > 10
    assert others > 3
