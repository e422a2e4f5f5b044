"""The cost model's choice of a row kernel against every config that was measured on a device.

The records are `benchmarks/gpu/rows.py --wide --record` on one H200: µs of all configs of a shape,
over tensors that its caches do not hold.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from math import prod
from pathlib import Path

import pytest

from benchmarks.gpu.rows import case_of

RECORDS = Path(__file__).parents[2] / "benchmarks" / "records" / "rows-nvidia-h200.csv"
WORST, MEAN = 0.90, 0.95  # share of the best measured speed


def _measured():
    """(op, dtype, rows, columns) → {(form, config): µs}."""
    found = defaultdict(dict)
    with RECORDS.open(encoding="utf-8") as file:
        for op, dtype, rows, columns, form, config, time_us in csv.reader(file):
            found[op, dtype, int(rows), int(columns)][form, config] = float(time_us)
    return dict(found)


MEASURED = _measured()


def _share(shape):
    """Speed of the pick as a share of the best."""
    candidate = case_of(*shape).spec.candidates[0]
    config = " ".join(f"{name}={value}" for name, value in candidate.config)
    times = MEASURED[shape]
    pick = times.get((candidate.form or "held", config))
    assert pick is not None, f"the pick {candidate} was not measured"
    return min(times.values()) / pick


@pytest.mark.parametrize("shape", MEASURED, ids=lambda shape: "-".join(map(str, shape)))
def test_the_pick_is_near_the_best(shape):
    assert _share(shape) >= WORST


def test_the_picks_are_near_the_best_on_the_whole():
    shares = [_share(shape) for shape in MEASURED]
    assert prod(shares) ** (1 / len(shares)) >= MEAN
