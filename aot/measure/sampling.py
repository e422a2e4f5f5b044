"""Finds the fastest candidate from samples of times, by successive halving.

Many candidates are sampled briefly, the better half longer, and the last few alternately.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

FINALISTS = 3
FINAL_ROUNDS = 9
SAMPLES = (2, 4)  # of each candidate in the first and the second stage; the best one counts
NOISE = 0.01  # times this close are equal, and the better rank by the model decides

Sample = Callable[[], float]  # microseconds of one launch, from one measurement


def halve(samples: Sequence[Sample]) -> list[float]:
    """Microseconds of each candidate, given in the order of the model's ranking.

    Those that reach the final have the medians of interleaved rounds; no other is ever faster than
    the slowest of those. The first candidate always reaches the final. A sample may be infinite.
    """
    times_us = [float("inf")] * len(samples)
    alive = list(range(len(samples)))
    for count in SAMPLES:
        for index in alive:
            times_us[index] = min(samples[index]() for _ in range(count))
        alive = _best(alive, times_us, max(FINALISTS, len(alive) // 2))
    alive = [at for at in _best(alive, times_us, FINALISTS) if times_us[at] < float("inf")]
    finals = _in_turns([samples[index] for index in alive])
    slowest = max(finals, default=0.0)
    for index in range(len(samples)):
        times_us[index] = max(times_us[index], slowest)
    for index, time_us in zip(alive, finals, strict=True):
        times_us[index] = time_us
    return times_us


def fastest(times_us: Sequence[float]) -> list[int]:
    """Indices from the fastest to the slowest; among equals the better rank goes first."""
    limit_us = min(times_us) * (1 + NOISE)
    return sorted(range(len(times_us)), key=lambda at: times_us[at] > limit_us and times_us[at])


def _best(alive: Sequence[int], times_us: Sequence[float], count: int) -> list[int]:
    """The fastest `count`, candidate 0 among them, in the order of their rank."""
    ordered = sorted(alive, key=lambda at: (at != 0, times_us[at]))
    return sorted(ordered[:count])


def _in_turns(samples: Sequence[Sample]) -> list[float]:
    rounds = [[sample() for sample in samples] for _ in range(FINAL_ROUNDS)]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]
