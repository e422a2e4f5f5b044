"""Convolutions by groups, whatever their sizes: those of each channel by itself, of few channels a
group and of many, with margins, steps and dilations."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn

from aotc.aot.dynamo import aotc

pytestmark = [pytest.mark.torch, pytest.mark.triton]
MODULES = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
LARGEST = {1: 40, 2: 30, 3: 17}  # extent of a position, by rank
DTYPES = {torch.float32: 2e-6, torch.float64: 1e-14, torch.bfloat16: 2e-2}


def drawn(seed: int) -> tuple[nn.Module, torch.Tensor]:
    """A convolution and its input; every third lies channels last."""
    chosen = random.Random(seed)
    rank, groups = chosen.choice((1, 2, 2, 2, 3)), chosen.choice((2, 3, 8, 17))
    inputs, outputs = chosen.choice(((1, 1), (1, 2), (4, 4), (3, 8), (8, 15), (5, 16), (2, 20)))
    kernel = [chosen.choice((1, 3, 3, 5, 7)) for _ in range(rank)]
    extents = [chosen.randint(max(kernel) * 2, LARGEST[rank]) for _ in range(rank)]
    torch.manual_seed(seed)
    made = MODULES[rank - 1](
        groups * inputs,
        groups * outputs,
        tuple(kernel),
        stride=tuple(chosen.choice((1, 1, 2)) for _ in range(rank)),
        padding=tuple(chosen.choice((0, each // 2, each - 1)) for each in kernel),
        dilation=tuple(chosen.choice((1, 1, 2)) for _ in range(rank)),
        groups=groups,
        bias=chosen.random() < 0.5,
    )
    dtype = chosen.choice(list(DTYPES))
    data = torch.randn(chosen.choice((1, 1, 3)), groups * inputs, *extents, dtype=dtype)
    if rank == 2 and chosen.random() < 0.4:
        data = data.to(memory_format=torch.channels_last)
    return made.to(dtype).eval(), data


@pytest.mark.parametrize("seed", range(48))
def test_numbers(seed):
    module, data = drawn(seed)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(module, backend=aotc, options={"fallback": "error"})
        found = compiled(data).double()
        expected = module.double()(data.double())
    assert found.shape == expected.shape
    bound = DTYPES[data.dtype] * expected.abs().max()
    assert (found - expected).abs().max() <= bound


@pytest.mark.parametrize("groups", [4, 32])
def test_sizes_of_the_call(groups):
    torch.manual_seed(groups)
    module = nn.Conv2d(32, 64, 3, padding=1, groups=groups).eval()
    torch._dynamo.reset()
    options = {"fallback": "error"}
    compiled = torch.compile(module, backend=aotc, dynamic=True, options=options)
    with torch.no_grad():
        for shape in ((2, 32, 20, 31), (1, 32, 7, 5), (3, 32, 64, 18)):
            data = torch.randn(shape)
            torch.testing.assert_close(compiled(data), module(data), rtol=1e-5, atol=1e-5)
