"""Products of f32 on a GPU: sums of 64 terms and more are as exact in three of TF32."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from benchmarks.gpu import precision  # noqa: E402
from benchmarks.gpu.matmul import FORWARD, case_of  # noqa: E402

SHAPES = [(64, 64, 64), (300, 77, 1000), (17, 512, 129), (1024, 768, 3072)]


def shares(case, found):
    sizes = case.first.double().abs() @ case.second(0).double().abs()
    return (found.double() - case.reference).abs() / sizes


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1e30, 1.0, 1e-30])
def test_errors_are_those_of_f32(shape, size):
    case = precision.scaled(case_of(shape, FORWARD, "f32"), size / 8)
    assert shares(case, precision.ours(case, True)).max() < 2**-22


def test_small_operands_lose_bits_below_2_to_minus_137():
    case = precision.scaled(case_of((64, 64, 64), FORWARD, "f32"), 1e-38 / 8)
    error = (precision.ours(case, True).double() - case.reference).abs()
    assert (error <= 2.0**-137 * case.second(0).double().abs().sum(0)).all()


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("is_left", [True, False])
def test_what_is_not_finite_stays(value, is_left):
    case = case_of((64, 96, 64), FORWARD, "f32")
    (case.left if is_left else case.weights[0])[3, 5] = value
    case = replace(case, reference=case.first.double() @ case.second(0).double())
    found = precision.ours(case, True).double()
    is_finite = case.reference.isfinite()
    assert torch.equal(found.isfinite(), is_finite)
    torch.testing.assert_close(
        found[~is_finite], case.reference[~is_finite], rtol=0, atol=0, equal_nan=True
    )
