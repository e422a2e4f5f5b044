"""The model's ranking of matmul configs against sweeps that were measured on an H200."""

from math import exp, log

import pytest

from benchmarks.gpu.matmul_ranking import FIRST, RECORD, sweeps


@pytest.fixture(scope="module")
def found():
    return sweeps([RECORD])


def test_every_pick_is_near_the_best(found):
    shares = {sweep.shape: sweep.share_of_best(1) for sweep in found}
    assert min(shares.values()) >= 0.9, shares
    assert exp(sum(map(log, shares.values())) / len(shares)) >= 0.95


def test_a_quick_tuning_meets_the_best(found):
    for sweep in found:
        assert sweep.share_of_best(FIRST) >= 0.97, sweep.shape


def test_the_record_is_of_the_present_configs(found):
    """Else the shares above would be of what is not tried."""
    assert len(found) >= 20
    for sweep in found:
        assert not sweep.unmeasured(FIRST), sweep.shape
