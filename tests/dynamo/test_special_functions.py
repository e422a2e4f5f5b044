"""Functions that are arithmetic of ours: within a few roundings of f64, or equal."""

from __future__ import annotations

import math

import pytest
import torch

from aotc.aot.dynamo import aotc

pytestmark = [pytest.mark.torch, pytest.mark.triton]
STRICT = {"fallback": "error"}


def bessel(x):
    return torch.i0(x), torch.special.i0e(x), torch.special.i1(x), torch.special.i1e(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_bessel_functions(dtype, fresh):
    edges = torch.tensor([0.0, -0.0, 1e-20, 20.0, 88.7, 90.0, math.nan])
    x = torch.cat([torch.linspace(-85, 85, 301), edges]).to(dtype)
    compiled = torch.compile(bessel, backend=aotc, options=STRICT)
    rounding = torch.finfo(dtype).eps
    for found, expected in zip(compiled(x), bessel(x.double()), strict=True):
        torch.testing.assert_close(
            found, expected.to(dtype), rtol=12 * rounding, atol=0, equal_nan=True
        )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64], ids=str)
def test_common_divisors(dtype, fresh):
    def model(x, y):
        return torch.gcd(x, y), torch.lcm(x, y)

    low = 0 if dtype == torch.uint8 else -120
    x, y = (torch.randint(low, 120, (300,), dtype=dtype) for _ in range(2))
    x[:4], y[2:6] = 0, 0
    x[7], y[7] = 89, 55  # neighbouring Fibonacci numbers
    compiled = torch.compile(model, backend=aotc, options=STRICT)
    for found, expected in zip(compiled(x, y), model(x, y), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_of_digamma(dtype, fresh):
    generator = torch.Generator().manual_seed(0)
    edges = torch.tensor([0.0, -0.0, 0.5, 1.0, -0.5, 1e-3, -1e-3, 1e3, torch.inf])
    x = torch.cat([torch.randn(300, generator=generator) * 8, edges]).to(dtype)
    slopes = []
    for function in (torch.digamma, torch.compile(torch.digamma, backend="aotc")):
        own = x.clone().requires_grad_()
        slopes.append(torch.autograd.grad(function(own).sum(), own)[0])
    torch.testing.assert_close(slopes[1], slopes[0], rtol=16 * torch.finfo(dtype).eps, atol=0)


def test_orders_of_polygamma_without_a_kernel_are_refused_by_number(fresh):
    model = torch.compile(
        lambda x: torch.polygamma(3, x), backend="aotc", options={"fallback": "error"}
    )
    with pytest.raises(Exception, match="polygamma of order 3: only 0 and 1 have a kernel"):
        model(torch.rand(5))
