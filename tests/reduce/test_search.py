"""The search for a small part that fails, on sets of numbers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotc.aot.reduce.search import shrink


def silent(tried, left):
    pass


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.data())
def test_finds_exactly_what_fails_together(count, data):
    guilty = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=4))
    assert shrink(count, guilty.issubset, 10_000, silent) == sorted(guilty)


def test_what_is_left_is_minimal_when_parts_hide_each_other():
    def fails(kept):  # either pair will do, and 3 hides what 7 does
        return {1, 5} <= set(kept) or ({7, 9} <= set(kept) and 3 not in kept)

    left = shrink(12, fails, 10_000, silent)
    assert fails(left)
    assert not any(fails([each for each in left if each != gone]) for gone in left)


def test_a_logarithm_for_one_operation_of_many():
    tried = []
    assert shrink(4096, lambda kept: 1234 in kept, 10_000, lambda n, left: tried.append(n)) == [
        1234
    ]
    assert len(tried) <= 2 * 13


@pytest.mark.parametrize("tries", [0, 1, 3])
def test_cut_off_it_still_answers_with_something_that_fails(tries):
    calls = []

    def fails(kept):
        calls.append(len(kept))
        return {2, 30} <= set(kept)

    left = shrink(40, fails, tries, silent)
    assert {2, 30} <= set(left)
    assert len(calls) <= tries


def test_the_whole_stays_when_nothing_smaller_fails():
    assert shrink(5, lambda kept: len(kept) == 5, 100, silent) == [0, 1, 2, 3, 4]
