"""The model's ranking of kernels with quantised weights against sweeps measured on an H200."""

from math import exp, log

import pytest

from benchmarks.gpu.codes_ranking import RECORD, sweeps

PRODUCTS = 84  # 60 of two to 16 rows, 24 of one, of these 12 normed; those in bf16, too
LEAST_SHARE, LEAST_MEAN = 0.65, 0.92
LEAST_KNOWN = 4  # choices of a product that were measured


@pytest.fixture(scope="module")
def found():
    return sweeps(RECORD)


def test_picks_are_near_the_best(found):
    shares = {sweep.key: sweep.share_of_best for sweep in found}
    assert min(shares.values()) >= LEAST_SHARE, shares
    assert exp(sum(map(log, shares.values())) / len(shares)) >= LEAST_MEAN, shares


def test_the_record_is_of_the_present_choices(found):
    """Else the shares above would be of what is not tried."""
    assert len(found) == PRODUCTS
    for sweep in found:
        assert len(sweep.measured_us) >= LEAST_KNOWN, sweep.key
