"""The model's ranking of matmul configs against sweeps that were measured on an H200."""

from math import exp, log

import pytest

from benchmarks.gpu.matmul import COPY_BYTES_PER_US, HEAD, PRODUCT_OPERATIONS_PER_US, Summary
from benchmarks.gpu.matmul_ranking import FIRST, RECORD, RECORD_OF_F32, sweeps

RECORDS = {RECORD: ("bf16", 23, 0.9), RECORD_OF_F32: ("f32", 19, 0.8)}


@pytest.fixture(scope="module", params=RECORDS, ids=lambda path: path.stem)
def record(request):
    """Shapes of a record, their type, their number and the least that a pick is of the best."""
    return sweeps([request.param]), *RECORDS[request.param]


@pytest.fixture(scope="module")
def found(record):
    return record[0]


def test_every_pick_is_near_the_best(record):
    found, *_, least = record
    shares = {sweep.shape: sweep.share_of_best(1) for sweep in found}
    assert min(shares.values()) >= least, shares
    assert exp(sum(map(log, shares.values())) / len(shares)) >= 0.95


def test_a_quick_tuning_meets_the_best(found):
    for sweep in found:
        assert sweep.share_of_best(FIRST) >= 0.97, sweep.shape


def test_the_record_is_of_the_present_configs(record):
    """Else the shares above would be of what is not tried."""
    found, dtype, count, _ = record
    assert len(found) == count
    assert {sweep.dtype for sweep in found} == {dtype}
    for sweep in found:
        assert not sweep.unmeasured(FIRST), sweep.shape


def test_the_floor_of_a_shape():
    few = Summary((16, 2048, 8192), 14.0, 12.0, 0.9, 16.0, 12.0)
    assert few.floor_us == pytest.approx(33.88e6 / COPY_BYTES_PER_US, rel=1e-3)  # its bytes
    large = Summary((8192, 8192, 8192), 1600.0, 1600.0, 1.0, 1700.0, 1600.0)
    assert large.floor_us == pytest.approx(2 * 8192**3 / PRODUCT_OPERATIONS_PER_US)
    single = Summary((2048, 2048, 2048), 348.4, 181.1, 1.0, 350.5, 189.7, "f32")
    assert single.floor_us == pytest.approx(6 * 2 * 2048**3 / PRODUCT_OPERATIONS_PER_US)
    assert str(large).count("|") == HEAD.partition("\n")[0].count("|")
