"""Scans, sorts and resizing along dims of dynamic size, each as one program."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from aotc.aot.dynamo import aotc
from aotc.aot.dynamo.programs import counters

pytestmark = [pytest.mark.torch, pytest.mark.triton]
STRICT = {"fallback": "error"}


def assert_one_program(model, *inputs):
    """Equal to eager at all inputs, by the program that the first one was compiled to."""
    compiled = torch.compile(model, backend=aotc, options=STRICT, dynamic=True)
    made = set()
    for x in inputs:
        for found, expected in zip(compiled(x), model(x), strict=True):
            if found.dtype == torch.int64:
                assert torch.equal(found, expected)
            torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5, equal_nan=True)
        made.add(counters()["graphs"])
    assert len(made) == 1


def test_scans(fresh):
    def model(x):
        return (
            x.cumsum(1),
            x.cumprod(1),
            x.logcumsumexp(1),
            *x.round().cummax(1),
            *x.cummin(1),
        )

    assert_one_program(model, torch.randn(3, 40), torch.randn(3, 5), torch.randn(3, 1100))


def test_sorts(fresh):
    def model(x):
        torch._check(x.shape[1] <= 400)
        ordered = torch.sort(x, dim=1, stable=True)
        return *ordered, *x.topk(3, 1), x.median(1).values, x.mode(1).values

    assert_one_program(model, torch.randn(3, 40), torch.randn(3, 5), torch.randn(3, 300))


def test_the_largest_of_any_number(fresh):
    def model(x):
        return x.topk(4, 0, largest=False)

    assert_one_program(model, torch.randn(40, 2), torch.randn(700, 2))


def test_resizing(fresh):
    resize = functional.interpolate

    def model(x):
        height, width = x.shape[2:]
        return (
            resize(x, scale_factor=2, mode="bilinear"),
            resize(x, size=(2 * height + 1, 7), mode="bilinear", align_corners=True),
            resize(x, scale_factor=1.5, mode="bicubic"),
            resize(x, scale_factor=2, mode="nearest"),
            resize(x, size=(5, width + 3), mode="nearest-exact"),
        )

    shapes = ((1, 2, 5, 7), (1, 2, 16, 3))
    assert_one_program(model, *(torch.randn(shape) for shape in shapes))


@pytest.mark.parametrize("size", [(7, 7), (2, 5), (1, 40)])
def test_pooling_to_a_size(fresh, size):
    """Of cells that overlap, that are smaller than the data's, and of nothing but one element."""

    def model(x):
        peaks = functional.adaptive_max_pool2d(x, size, return_indices=True)
        return functional.adaptive_avg_pool2d(x, size), *peaks

    shapes = [(2, 3, 30, 37), (2, 3, 7, 9), (2, 3, 5, 41), (2, 3, 61, 8)]
    inputs = [(torch.randn(shape) * 4).round() for shape in shapes]  # with equal elements
    inputs[2][0, 0, 2, 3], inputs[2][0, 1, 1], inputs[0][1] = math.nan, math.inf, -math.inf
    assert_one_program(model, *inputs)


@pytest.mark.parametrize(
    "window", [(3, 2, 1, False, False), (3, 2, 1, True, True), (3, 2, 1, True, False), (3, 1, 1)]
)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_averages_of_windows(fresh, dims, window):
    """With and without padding among what is counted, and windows that reach beyond the end."""

    def model(x):
        return (getattr(functional, f"avg_pool{dims}d")(x, *window),)

    assert_one_program(model, *(torch.randn(1, 2, *[n] * dims) for n in (9, 10, 7, 14)))


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        lambda x: functional.avg_pool2d(x, 3, 1, 1, ceil_mode=True),
        lambda x: functional.adaptive_avg_pool2d(x, (3, 5)),
        lambda x: functional.adaptive_avg_pool2d(x, 1),
    ],
)
def test_gradients_of_averages(fresh, pool):
    """At sizes that vary, of which a few classes have graphs of their own."""

    def model(x):
        return pool(1.5 * x).sin()

    compiled, before = torch.compile(model, backend=aotc, options=STRICT, dynamic=True), _graphs()
    for size in (9, 10, 14, 7, 23, 12):
        x = torch.randn(2, 3, size, size + 3, requires_grad=True)
        slopes = torch.randn_like(model(x))
        (found,) = torch.autograd.grad(compiled(x), x, slopes)
        (expected,) = torch.autograd.grad(model(x), x, slopes)
        torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)
    assert _graphs() - before <= 4


@pytest.mark.parametrize("size", [20, 33])
def test_pooling_to_many_cells(fresh, size):
    def model(x):
        peaks = functional.adaptive_max_pool1d(x, size, return_indices=True)
        return functional.adaptive_avg_pool1d(x, size), *peaks

    compiled = torch.compile(model, backend=aotc, options=STRICT)
    for length in (50, 21, 7):
        x = (torch.randn(2, 3, length) * 4).round()
        x[0, 0, 3], x[0, 1] = math.nan, -math.inf
        for found, expected in zip(compiled(x), model(x), strict=True):
            torch.testing.assert_close(found, expected, equal_nan=True)


def _graphs():
    return counters()["graphs"]


def _made():
    found = counters()
    return found["kernels_compiled"] + found["kernels_cached"]


def test_the_kernels_of_pooling_do_not_grow_with_the_size(fresh):
    """`pooling 202611264000327`: each cell was two kernels, in each range of the sizes."""
    counts = []
    for size in (9, 60):
        torch._dynamo.reset()
        model = lambda x, size=size: functional.adaptive_avg_pool1d(x, size)  # noqa: E731
        call = torch.compile(model, backend=aotc, options=STRICT, dynamic=True)
        before = _made()
        call(torch.randn(2, 3, 1000))
        counts.append(_made() - before)
    assert counts[1] < 2 * counts[0]


def test_logarithms_of_sums_of_any_length_keep_nan_and_infinity(fresh):
    x = torch.randn(2, 45)
    x[0, 3], x[0, 5], x[1, 34], x[1, 40] = math.nan, math.inf, math.inf, -math.inf
    compiled = torch.compile(lambda x: x.logcumsumexp(1), backend=aotc, options=STRICT)
    torch.testing.assert_close(compiled(x), x.logcumsumexp(1), equal_nan=True)


def test_logarithms_of_sums_keep_what_is_small_beside_one(fresh):
    """Near 0, where e^x of the largest is 1 and the others vanish beside it in f32."""
    x = -18 - 4 * torch.rand(3, 70)
    x[:, 0], x[1, :3], x[2, 40] = 0.0, -0.5, 0.0
    program = torch.compile(lambda x: x.logcumsumexp(1), backend=aotc, options=STRICT)
    torch.testing.assert_close(
        program(x).double(), x.double().logcumsumexp(1), rtol=3e-6, atol=1e-9
    )
    assert (program(x)[0, 1:] > 0).all()
