"""A value equals the largest of its elements where that lies, wherever both are computed."""

from __future__ import annotations

import pytest
import torch

pytestmark = [pytest.mark.torch, pytest.mark.triton]


def rounded(x):
    square = x * x
    return (square + 1).sqrt() * square + square / (square + 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_largest_element_is_found(axis, dtype):
    def model(x):
        value = rounded(x)
        largest = value.amax(axis, keepdim=True)
        return value == largest, largest, value.flip(1)

    x = torch.randn(16, 300, 5, dtype=dtype)
    found, *_ = torch.compile(model, backend="aotc", options={"fallback": "error"})(x)
    assert bool(found.any(axis).all())
