"""Convolutions of few positions, whose weights are inputs."""

from __future__ import annotations

import itertools

import pytest
import torch

from aotc.aot.dynamo import aotc
from aotc.runtime.drivers.cpu.driver import features

pytestmark = [pytest.mark.torch, pytest.mark.triton]
SIZES = [(1, 4, 5, 7), (1, 16, 8, 8), (1, 16, 6, 7), (2, 4, 3, 4), (1, 8, 2, 3), (1, 12, 4, 9)]


@pytest.mark.parametrize("target", ["cpu-x86-64-v3", "cpu-x86-64-v4"])
@pytest.mark.parametrize(("shape", "stride"), list(itertools.product(SIZES, (1, 2))))
def test_of_few_positions(shape, stride, target):
    """convolutions 202611272058: rows are multiplied two at once where there are few."""
    if target == "cpu-x86-64-v4" and "avx512f" not in features():
        pytest.skip("needs AVX-512")
    generator = torch.Generator().manual_seed(3)
    data, weight, bias = (
        torch.randn(each, generator=generator) for each in (shape, (3, shape[1], 3, 3), (3,))
    )

    def model(data, weight, bias):
        return torch.nn.functional.conv2d(data, weight, bias, stride, 1)

    torch._dynamo.reset()
    options = {"target": target, "fallback": "error"}
    found = torch.compile(model, backend=aotc, options=options)(data, weight, bias)
    expected = model(data.double(), weight.double(), bias.double())
    torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=1e-5)
