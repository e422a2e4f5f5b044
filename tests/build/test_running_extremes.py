"""Running extremes of rows longer than a block, most of whose blocks change nothing: values and
places are eager's, the last of equals, with zeros of both signs, infinities and NaN."""

from __future__ import annotations

import pytest
import torch

from aotc.aot.dynamo import aotc

pytestmark = [pytest.mark.torch, pytest.mark.triton]
LENGTHS = [255, 256, 257, 1000, 5003]


def rows(length: int, dtype: torch.dtype) -> torch.Tensor:
    """A row of each kind."""
    drawn = torch.Generator().manual_seed(length)
    noise = torch.randn(length, generator=drawn)
    rising = torch.arange(length, dtype=torch.float32)
    few = torch.randint(-2, 3, (length,), generator=drawn).float()
    peaks = -rising.clone()
    peaks[::300] = 7.0  # equal ones, blocks apart
    zeros = torch.where(noise > 0, 0.0, -0.0)
    made = [noise, rising, -rising, few, peaks, zeros, torch.full((length,), -torch.inf)]
    if dtype.is_floating_point:
        odd = noise.clone()
        odd[length // 2], odd[-1] = torch.nan, torch.inf
        made += [odd, torch.full((length,), torch.nan)]
    else:
        made = [each.clamp(-(2**20), 2**20) for each in made]
    return torch.stack(made).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_values_and_places(name, length, dtype):
    def model(x):
        values, places = getattr(torch, name)(x, -1)
        turned = getattr(torch, name)(x.flip(-1), -1)
        return values, places, turned.values.flip(-1), getattr(torch, name)(x, -1).values + 1

    torch._dynamo.reset()
    data = rows(length, dtype)
    compiled = torch.compile(model, backend=aotc, options={"fallback": "error"})
    for found, expected in zip(compiled(data), model(data), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        if found.dtype.is_floating_point:
            assert torch.equal(found.signbit(), expected.signbit()) or found.isnan().any()
