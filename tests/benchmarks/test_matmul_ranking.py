"""The model's ranking of matmul configs against sweeps that were measured on an H200."""

from math import exp, log

import pytest

from benchmarks.gpu.matmul import COPY_BYTES_PER_US, HEAD, PRODUCT_OPERATIONS_PER_US, Summary
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
    assert len(found) == 23
    for sweep in found:
        assert not sweep.unmeasured(FIRST), sweep.shape


def test_the_floor_of_a_shape():
    few = Summary((16, 2048, 8192), 14.0, 12.0, 0.9, 16.0, 12.0)
    assert few.floor_us == pytest.approx(33.88e6 / COPY_BYTES_PER_US, rel=1e-3)  # its bytes
    large = Summary((8192, 8192, 8192), 1600.0, 1600.0, 1.0, 1700.0, 1600.0)
    assert large.floor_us == pytest.approx(2 * 8192**3 / PRODUCT_OPERATIONS_PER_US)
    assert str(large).count("|") == HEAD.partition("\n")[0].count("|")
