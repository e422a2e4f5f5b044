"""Successive halving: the fastest wins, noise does not beat the model's rank, work is bounded."""

import itertools
import math

import pytest

from aotc.aot.measure.sampling import FINAL_ROUNDS, SAMPLES, fastest, halve


class Clock:
    """A candidate that takes `time_us`, slower in the given calls by their number."""

    def __init__(self, time_us, late=()):
        self.time_us, self.late, self.calls = time_us, dict(late), 0

    def __call__(self):
        self.calls += 1
        return self.time_us * self.late.get(self.calls - 1, 1.0)


def test_the_fastest_wins_wherever_it_stands():
    for place in range(12):
        clocks = [Clock(20.0) for _ in range(12)]
        clocks[place].time_us = 10.0
        times_us = halve(clocks)
        assert fastest(times_us)[0] == place
        assert times_us[place] == 10.0


def test_losers_are_measured_least():
    clocks = [Clock(float(10 + at)) for at in range(16)]
    halve(clocks)
    assert clocks[15].calls == SAMPLES[0]
    assert clocks[1].calls == sum(SAMPLES) + FINAL_ROUNDS


def test_a_disturbed_sample_costs_nobody_the_place():
    clocks = [Clock(12.0), Clock(11.0), Clock(10.0, late={0: 9.0, 3: 5.0, 8: 4.0}), Clock(13.0)]
    assert fastest(halve(clocks))[0] == 2


def test_no_loser_looks_faster_than_a_finalist():
    clocks = [Clock(10.0 + at / 10) for at in range(8)]
    clocks[7] = Clock(50.0)
    times_us = halve(clocks)
    finalists = sorted(times_us)[:3]
    assert all(time_us >= max(finalists) for time_us in times_us if time_us not in finalists)


def test_the_models_pick_is_always_timed_in_the_final():
    clocks = [Clock(30.0), *(Clock(10.0 + at) for at in range(9))]
    halve(clocks)
    assert clocks[0].calls == sum(SAMPLES) + FINAL_ROUNDS


def test_among_equals_the_models_rank_decides():
    assert fastest([10.05, 10.0, 12.0]) == [0, 1, 2]
    assert fastest([10.5, 10.0, 12.0]) == [1, 0, 2]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_candidates(count):
    times_us = halve([Clock(float(at + 1)) for at in range(count)])
    assert times_us == [float(at + 1) for at in range(count)]


def test_refused_candidates_stay_infinite():
    times_us = halve([lambda: math.inf, Clock(5.0), lambda: math.inf])
    assert times_us == [math.inf, 5.0, math.inf]
    assert halve([lambda: math.inf]) == [math.inf]


def test_drift_strikes_finalists_alike():
    drift = itertools.count(1)
    slowing = [lambda share=share: share * next(drift) for share in (1.0, 0.7)]
    assert fastest(halve(slowing))[0] == 1
