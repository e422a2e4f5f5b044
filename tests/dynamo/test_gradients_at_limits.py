"""Gradients of functions that bend, where they bend, at infinities and at NaN: eager's.

Of what torch's vectors and its last elements give at NaN, ours is what the vectors give
(`docs/torch-compile.md`). Gradients of the results are not finite either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch.nn import functional as F

pytestmark = [pytest.mark.torch, pytest.mark.triton]
INF, NAN = math.inf, math.nan
BENDS = [0.0, 1.0, 3.0, 6.0, 0.5, 0.1, 0.9, 2.0, 20.0, 1e-30, INF]
POINTS = [*BENDS, *(-each for each in BENDS), NAN]
SLOPES = [1.0, -2.0, 0.0, -0.0, INF, -INF, NAN]
VECTORS = 64  # elements of each kind, so that every kernel's vectors hold them all
TOLERANCES = {
    torch.float64: 1e-7,  # eager's sixth of `hardsigmoid` is that of f32
    torch.float32: 2e-5,
    torch.float16: 3e-3,
    torch.bfloat16: 2e-2,
}
FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardtanh of other ends": lambda x: F.hardtanh(x, -2.0, 0.5),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "leaky_relu": F.leaky_relu,
    "leaky_relu that falls": lambda x: F.leaky_relu(x, -0.5),
    "prelu": lambda x: F.prelu(x, x.new_full((1,), 0.25)),
    "rrelu": lambda x: F.rrelu(x, training=False),
    "threshold": lambda x: F.threshold(x, 0.5, 2.0),
    "elu": F.elu,
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 2.0),
    "softplus": F.softplus,
    "softplus of another end": lambda x: F.softplus(x, 2.0, 1.0),
    "logsigmoid": F.logsigmoid,
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp from below": lambda x: x.clamp(min=-1),
    "clamp from above": lambda x: x.clamp(max=1),
    "clamp by tensors": lambda x: x.clamp(torch.full_like(x, -1), torch.ones_like(x)),
    "maximum": lambda x: torch.maximum(x, torch.zeros_like(x)),
    "fmax": lambda x: torch.fmax(x, torch.zeros_like(x)),
    "minimum": lambda x: torch.minimum(x, torch.ones_like(x)),
    "abs": torch.abs,
    "sgn": torch.sgn,
    "where": lambda x: torch.where(x > 0, x, x * 2),
    "nan_to_num": torch.nan_to_num,
    "logit": torch.logit,
    "logit within ends": lambda x: torch.logit(x, 0.1),
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "mish": F.mish,
    "tanhshrink": F.tanhshrink,
    "softsign": F.softsign,
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "l1": lambda x: F.l1_loss(x, torch.ones_like(x), reduction="none"),
    "mse": lambda x: F.mse_loss(x, torch.ones_like(x), reduction="none"),
    "smooth l1": lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none"),
    "smooth l1 of a wide bend": lambda x: F.smooth_l1_loss(
        torch.zeros_like(x), x, reduction="none", beta=3.0
    ),
    "huber": lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none", delta=3.0),
    "hinge": lambda x: F.hinge_embedding_loss(x, -torch.ones_like(x), reduction="none"),
    "binary cross-entropy of logits": lambda x: F.binary_cross_entropy_with_logits(
        x, torch.full_like(x, 0.25), reduction="none"
    ),
}


def outputs(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(f(x) for f, x in zip(FUNCTIONS.values(), inputs, strict=True))


def gradients(
    call: Callable[..., Sequence[torch.Tensor]], data: torch.Tensor, slopes: torch.Tensor
) -> list[torch.Tensor]:
    leaves = [data.clone().requires_grad_() for _ in FUNCTIONS]
    return list(torch.autograd.grad(call(*leaves), leaves, [slopes] * len(leaves)))


# Of the two short types one says that they are rounded as eager rounds them.
@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(dtype, marks=pytest.mark.nightly if dtype is torch.float16 else ())
        for dtype in TOLERANCES
    ],
    ids=str,
)
def test_gradients_at_limits_are_those_of_eagers_vectors(dtype, cache, monkeypatch):
    monkeypatch.setenv("AOTC_CACHE_DIR", str(cache))
    torch._dynamo.reset()
    grid = torch.meshgrid(
        *(torch.tensor(each, dtype=torch.float64) for each in (POINTS, SLOPES)), indexing="ij"
    )
    data, slopes = (each.reshape(-1, 1).repeat(1, VECTORS).to(dtype) for each in grid)
    compiled = torch.compile(outputs, backend="aotc", options={"fallback": "error"})
    faults = []
    found, wanted = gradients(compiled, data, slopes), gradients(outputs, data, slopes)
    for name, own, expected in zip(FUNCTIONS, found, wanted, strict=True):
        own, expected = own[:, 0].double(), expected[:, 0].double()
        limits, given = torch.finfo(dtype), slopes[:, 0].double().nan_to_num(0.0, 0.0, 0.0)
        # A slope is a difference of terms as large as 1.
        room = TOLERANCES[dtype] * expected.abs() + limits.eps * given.abs() + limits.tiny
        same = (own == expected) | (own.isnan() & expected.isnan())
        is_right = same | ((own - expected).abs() <= room)
        for at in (~is_right).nonzero().flatten().tolist():
            x, g = data[at, 0].item(), slopes[at, 0].item()
            faults.append(f"{name} at {x}, {g}: {own[at].item()}, eager {expected[at].item()}")
    assert not faults, f"{len(faults)} differ:\n" + "\n".join(faults[:40])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bound", [0.0, 0.3, 0.5])
def test_softshrink_is_that_of_vectors(dtype, bound):
    """+0 where it is constant, for negative operands too; NaN of NaN."""
    limits = torch.tensor([0.0, -0.0, bound, -bound, math.nan, math.inf, -math.inf, 0.2, -0.2])
    x = torch.cat([limits, torch.randn(119)]).to(dtype)
    found = torch.compile(lambda x: F.softshrink(x, bound), backend="aotc")(x)
    expected = F.softshrink(x, bound)
    assert torch.equal(found.nan_to_num(9.0), expected.nan_to_num(9.0))
    assert torch.equal(torch.signbit(found) & ~x.isnan(), torch.signbit(expected) & ~x.isnan())
