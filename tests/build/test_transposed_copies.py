"""Copies that change the order of dims, whatever their sizes and types, with arithmetic around."""

from __future__ import annotations

import random

import pytest
import torch

from aotc.aot.dynamo import aotc

pytestmark = [pytest.mark.torch, pytest.mark.triton]
DTYPES = [
    torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32,
    torch.int64, torch.uint8, torch.bool,
]  # fmt: skip
EXTENTS = [1, 2, 3, 7, 15, 16, 17, 31, 32, 48, 49, 64, 100, 128, 130, 257]
LARGEST = 1 << 18  # elements


def drawn(seed: int):
    """A function of a tensor and of one in the order of the result, and these."""
    chosen = random.Random(seed)
    dtype, rank = chosen.choice(DTYPES), chosen.choice((2, 2, 3, 3, 4))
    extents = [chosen.choice(EXTENTS) for _ in range(rank)]
    while torch.Size(extents).numel() > LARGEST:
        extents[extents.index(max(extents))] //= 2
    order = chosen.sample(range(rank), rank)
    generator = torch.Generator().manual_seed(seed)
    shape = [extents[axis] for axis in order]
    noise = [torch.randn(each, generator=generator) * 30 for each in (extents, shape)]
    data, other = ((each > 0) if dtype is torch.bool else each.to(dtype) for each in noise)
    kind = chosen.choice(("copy", "copy", "sum", "parts"))

    def function(x, y):
        moved = x.permute(order)
        if kind == "sum":
            return moved ^ y if dtype is torch.bool else moved + y
        if kind == "parts":
            rows = [moved, y, moved.flip(0)]
            return torch.cat(rows)
        return moved.contiguous(), x + x if dtype is not torch.bool else ~x

    return function, data, other


@pytest.mark.parametrize("seed", range(60))
def test_elements(seed):
    function, data, other = drawn(seed)
    torch._dynamo.reset()
    found = torch.compile(function, backend=aotc, options={"fallback": "error"})(data, other)
    torch.testing.assert_close(found, function(data, other), rtol=0, atol=0, equal_nan=True)
