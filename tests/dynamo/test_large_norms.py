"""Norms and statistics of elements whose sum, or variance, passes the largest number of the type.

A result is right if it is eager's, or eager's in f64 rounded to the type, wherever eager is finite;
what holds an infinity or NaN gives NaN as there.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

COUNTS = {torch.float32: (6, 49, 768, 40000), torch.float64: (49,), torch.bfloat16: (768,)}
TOLERANCES = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 1.6e-2}


def _statistics(x: torch.Tensor) -> dict[str, torch.Tensor]:
    count = x.shape[-1]
    weight, bias = torch.full((2, count), 0.5, dtype=x.dtype)
    deviation, mean = torch.std_mean(x, -1)
    return {
        "layer_norm": F.layer_norm(x, (count,), weight, bias),
        "group_norm": F.group_norm(x[None], 2, x[:, 0] * 0 + 1, x[:, 0] * 0 + 0.5),
        "instance_norm": F.instance_norm(x[None]),
        "rms_norm": F.rms_norm(x, (count,), weight),
        "mean": x.mean(-1),
        "deviation": deviation,
        "mean beside it": mean,
        "deviation of all": x.std(correction=0),
        "variance": x.var(-1),
    }


def _inputs(count: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    most = torch.finfo(dtype).max
    plain = torch.randn(4, count, generator=generator, dtype=torch.float64)
    share = torch.rand(4, count, generator=generator, dtype=torch.float64)
    sign = torch.where(share < 0.5, -1.0, 1.0).double()
    rows = {
        "plain": plain,
        "far from zero": plain + 100,
        "largest": torch.full_like(plain, most),
        "near the largest": (0.97 + 0.02 * share) * most,
        "a few of the largest": torch.where(share < 0.3, most, plain),
        "of both signs": sign * most,
        "a third, of both signs": sign * most / 3,
        "all small": plain * torch.finfo(dtype).tiny * 1000,
        "zeros": torch.zeros_like(plain),
    }
    return {name: row.to(dtype) for name, row in rows.items()}


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_norms_are_finite_where_eagers_are(dtype):
    compiled = torch.compile(_statistics, backend="aotc", dynamic=False)
    wrong = []
    for count in COUNTS[dtype]:
        for name, x in _inputs(count, dtype).items():
            found, eager, wide = compiled(x), _statistics(x), _statistics(x.double())
            for key, expected in eager.items():
                if not _is_right(found[key], expected, wide[key].to(dtype), name, key):
                    wrong.append((count, name, key))
    assert not wrong


def _is_right(
    found: torch.Tensor, eager: torch.Tensor, wide: torch.Tensor, name: str, key: str
) -> bool:
    if name == "largest" and key in ("variance", "deviation", "deviation of all"):
        return True  # a difference of one bit from the mean has an infinite square
    if name == "all small" and found.dtype is torch.float64:
        return True  # whose variance is 0 in eager
    tolerance = TOLERANCES[found.dtype] * (10 if name == "far from zero" else 1)
    scale = tolerance * float(torch.where(eager.isfinite(), eager, 0).abs().max())
    near = [torch.isclose(found, each, tolerance, scale) for each in (eager, wide)]
    return bool((near[0] | near[1] | ~torch.isfinite(eager)).all())


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan], ids=str)
def test_what_is_not_finite_gives_nan(bad):
    x = torch.randn(4, 49, generator=torch.Generator().manual_seed(1))
    x[1, 7] = bad
    compiled = torch.compile(_statistics, backend="aotc", dynamic=False)
    found, eager = compiled(x), _statistics(x)
    for key in ("layer_norm", "group_norm", "instance_norm", "deviation", "variance"):
        assert torch.equal(found[key].isnan(), eager[key].isnan()), key
