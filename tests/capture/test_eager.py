"""Reference numbers are those of the elements, however torch's kernels take them."""

import math

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402  needs torch

from aotc.aot.capture.golden import golden_tensors, roundings, widest  # noqa: E402  needs torch

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


def test_what_is_sorted_for_lies_as_torch_has_it():
    """Models view it: experts of a router as one row."""
    x = torch.randn(3, 7, 4, generator=torch.Generator().manual_seed(1))
    for dim in (0, 1, 2):
        for keepdim in (False, True):
            calls = (lambda: x.topk(2, dim), lambda: x.kthvalue(2, dim, keepdim))  # noqa: B023
            for call in calls:
                for one, other in zip(golden_tensors(call), call(), strict=True):
                    assert torch.equal(one, other)
                    assert one.stride() == other.stride()


class Asked(TorchDispatchMode):
    """The ops that are asked of torch."""

    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.ops.append(function)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(("shape", "dim"), [((), 0), ((9,), 0), ((3, 5, 2), -2)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_a_lowest_element_is_torchs_and_takes_no_square_of_the_size(shape, dim, keepdim):
    """torch's selection starts at the first element, so that ordered data takes n² steps."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))

    def call():
        return torch.kthvalue(x, 2 if shape else 1, dim, keepdim)

    own, watched = call(), Asked()
    with watched:
        found = golden_tensors(call)
        assert roundings(call, own, is_narrow=False) == (0.0, 0.0)
        widened = widest(call, [torch.float32, torch.int64])
    for one in (found, widened):
        assert all(torch.equal(*pair) for pair in zip(one, own, strict=True))
    assert bool(shape) != (torch.ops.aten.kthvalue.default in watched.ops)


@pytest.mark.parametrize("k", [0, 10, -1])
def test_a_lowest_element_that_is_none_raises(k):
    with pytest.raises(RuntimeError, match="selected number k out of range"):
        golden_tensors(lambda: torch.kthvalue(torch.ones(9), k))
