"""Reference numbers are those of the elements, however torch's kernels take them."""

import math

import pytest

torch = pytest.importorskip("torch")

from aotc.aot.capture.golden import golden_tensors  # noqa: E402  needs torch

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_rests_are_exact_for_every_quotient(name, dtype):
    """SLEEF's vectors give NaN where x / y is infinite."""
    least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    x = torch.randn(37, generator=torch.Generator().manual_seed(1)).to(dtype)
    x[:3] = torch.tensor([0.0, math.inf, math.nan])
    for y in (least, -least, 0.75, -math.inf):
        (found,) = golden_tensors(lambda y=y: (getattr(torch, name)(x, torch.full_like(x, y)),))
        (of_number,) = golden_tensors(lambda y=y: (getattr(torch, name)(x, y),))
        for place, each in enumerate(x.tolist()):
            rest = math.fmod(each, y) if math.isfinite(each) else math.nan
            if name == "remainder" and rest and (rest < 0) != (y < 0):
                rest = (torch.tensor(rest, dtype=dtype) + y).item()
            expected = torch.tensor(rest, dtype=dtype)
            for own in (found, of_number):
                assert torch.equal(own[place].nan_to_num(7.0), expected.nan_to_num(7.0))


def test_rests_of_whole_numbers_and_their_types_are_torchs_own():
    x = torch.tensor([-7, 7, 2**62], dtype=torch.int64)
    for y in (3, -3, torch.tensor([2, -5, 7], dtype=torch.int32), 2.5):
        for name in ("fmod", "remainder"):
            call = getattr(torch, name)
            (found,) = golden_tensors(lambda y=y, call=call: (call(x, y),))
            assert found.dtype == call(x, y).dtype
            assert torch.equal(found, call(x, y))


def test_elements_that_lie_in_one_place_are_elements():
    x = torch.randn(4, generator=torch.Generator().manual_seed(1))
    seen = x[:1].expand(3, 1, 3)
    (median,) = golden_tensors(lambda: (torch.median(seen, 1).values,))
    assert torch.equal(median, x[0].expand(3, 3))
    windows, rows = x.unfold(0, 2, 1), torch.zeros(3, 1)
    (scattered,) = golden_tensors(lambda: (windows.slice_scatter(rows, 1, 0, 1),))
    assert torch.equal(scattered, torch.stack([torch.zeros(3), x[1:]], 1))
