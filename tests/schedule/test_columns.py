"""Which columns of a product elements need, against each element's own by brute force."""

from __future__ import annotations

import random

import pytest

from aotc.aot.ir import index as ix
from aotc.aot.ir.index import Symbol, bound
from aotc.aot.schedule.columns import Columns, columns_of


def value(index, element, number):
    found = index.substitute({element: ix.constant(number)})
    assert found.is_constant
    return found.constant


def holds(condition, element, number):
    at = value(condition.index, element, number)
    is_high = condition.low is None or at >= condition.low
    return is_high and (condition.high is None or at < condition.high)


def needed(needs, element, number):
    """The columns that one element needs."""
    return {
        value(column, element, number)
        for column, conditions in needs
        if all(holds(each, element, number) for each in conditions)
    }


def choice(*parts):
    """Needs under conditions; those that always hold are none."""
    return tuple(
        (column, tuple(each for each in conditions if each is not None))
        for column, *conditions in parts
    )


def halves(element, size, first, step):
    """A head's column, and the one of its other half, where heads lie `step` columns apart."""
    at, half = ix.of(element), size // 2
    own = at // size * step + at % size + first
    place = at % size
    return choice(
        (own,), (own + half, bound(place, 0, half)), (own - half, bound(place, half, size))
    )


def neighbours(element, size, first, step):
    at = ix.of(element)
    own = at // size * step + at % size + first
    even = at // size * step + at % size // 2 * 2 + first
    place = at % 2
    return choice((own,), (even + 1, bound(place, 0, 1)), (even, bound(place, 1, 2)))


def moved(element, size, first, step):
    at = ix.of(element)
    return choice((at // size * step + at % size + first,))


FORMS = {"halves": halves, "neighbours": neighbours, "moved": moved}


@pytest.mark.parametrize("form", FORMS)
def test_each_element_needs_its_own_column_and_the_other_of_a_pair(form):
    draw, met = random.Random(form), 0
    for _ in range(300):
        size, heads = draw.choice((4, 6, 8, 16, 64)), draw.randint(1, 5)
        step = size * draw.choice((1, 1, 2, 3))
        first = draw.choice((0, size, draw.randint(0, step)))
        width = step * heads + draw.choice((0, size, 2 * size))
        element = Symbol("element", size * heads)
        needs = FORMS[form](element, size, first, step)
        found = columns_of(needs, element, width)
        if found is None:
            continue
        met += 1
        columns = Symbol("y", width)
        back, conditions = found.element_of(columns)
        distance = found.distance
        for number in range(element.length):
            own = value(found.column_of(element), element, number)
            other = meeting(own, distance) if distance else own
            assert needed(needs, element, number) <= {own, other}
            assert 0 <= min(own, other) <= max(own, other) < width
            assert value(back, columns, own) == number
            assert all(holds(each, columns, own) for each in conditions)
        inside = [
            column
            for column in range(width)
            if all(holds(each, columns, column) for each in conditions)
        ]
        assert len(inside) == element.length
    assert met > 100


def meeting(column, distance):
    """The column that one meets: at the same place of the other half of its block."""
    is_first = column % (2 * distance) < distance
    return column + distance if is_first else column - distance


def test_what_fits_no_pairs_is_none():
    element = Symbol("element", 32)
    at = ix.of(element)
    own = (at,)
    twice = (at // 2 * 2 + 2, bound(at % 2, 0, 1))
    thirds = (at + 8, bound(at, 0, 24)), (at + 16, bound(at, 0, 16))
    assert columns_of(choice(own, *thirds), element, 64) is None  # three columns
    assert columns_of(choice((at + 16,), (at + 24,)), element, 64) is None  # no blocks of pairs
    assert columns_of(choice(own, twice), element, 64) is None
    assert columns_of(choice((at * 2,)), element, 64) is None
    assert columns_of(choice((at + 40,)), element, 64) is None  # beyond the last column
    assert columns_of((), element, 64) is None
    assert columns_of(halves(element, 16, 0, 16), element, 40) is None  # a block is cut
    assert columns_of(choice((at + 32,)), element, 64) == Columns(32, 32, 0, 1)
