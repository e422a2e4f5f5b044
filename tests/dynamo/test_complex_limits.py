"""Functions of complex numbers where a part is 0, infinite, no number, or its square is none: eager
has what C99's Annex G says, numbers, infinities and signs, and so have compiled graphs."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")

from aotc.aot.dynamo import aotc  # noqa: E402  needs torch

pytestmark = [pytest.mark.torch, pytest.mark.triton]
INF, NAN = float("inf"), float("nan")
PLACES = (0.0, -0.0, 0.3, -1.5, INF, -INF, NAN, 1e-30, 88.9, -104.0)
LARGE = {torch.complex64: (1e30, 3e38, 100.0), torch.complex128: (1e200, 1.7e308, 720.0)}
FUNCTIONS = {
    "abs": torch.abs,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "exp": torch.exp,
    "log": torch.log,
    "log10": torch.log10,
    "sigmoid": torch.sigmoid,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "tanh": torch.tanh,
    "root": lambda z: z**0.5,
    "inverse root": lambda z: z**-0.5,
    "quotients": lambda z: z[:, None] / z,
    "quotients of reals": lambda z: z.real[:, None] / z,
}


def numbers(dtype):
    pairs = itertools.product((*PLACES, *LARGE[dtype]), repeat=2)
    return torch.tensor([complex(*pair) for pair in pairs], dtype=dtype)


@pytest.mark.parametrize("dtype", LARGE, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_limits_are_eagers(fresh, name, dtype):
    function, z = FUNCTIONS[name], numbers(dtype)
    found = torch.compile(function, backend=aotc, options={"fallback": "error"})(z)
    expected = function(z)
    limit = 2e-5 if dtype == torch.complex64 else 1e-12
    if expected.is_complex():  # a part is rounded as the number is large
        found, expected = torch.view_as_real(found), torch.view_as_real(expected)
        sizes = expected.nan_to_num(0.0).abs().amax(-1, keepdim=True).expand(expected.shape)
    else:
        sizes = expected
    is_number = expected.isfinite()
    assert torch.equal(is_number, found.isfinite())
    assert torch.equal(expected.isnan(), found.isnan())
    assert torch.equal(expected[expected.isinf()], found[expected.isinf()])
    assert ((found - expected).abs() <= limit * sizes)[is_number].all()


@pytest.mark.parametrize("name", ["sqrt", "exp", "sinh", "sin", "tanh"])
def test_parts_that_are_zero_keep_their_sign(fresh, name):
    """The sign of an imaginary part of 0 says on which side of a cut a number lies."""
    function = getattr(torch, name)
    pairs = itertools.product((0.0, -0.0, 0.5, -2.5), repeat=2)
    z = torch.tensor([complex(*pair) for pair in pairs if 0.0 in pair], dtype=torch.complex64)
    found = torch.compile(function, backend=aotc, options={"fallback": "error"})(z)
    signs = [torch.view_as_real(each).signbit() for each in (found, function(z))]
    assert torch.equal(*signs)
