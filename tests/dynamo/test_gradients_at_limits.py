"""Gradients of activations where they bend and at infinities: eager's.

Not at NaN: there the vectors of torch's kernels and their last elements give different gradients;
some of torch's decompositions give a third one, which is ours.
"""

import math

import pytest
import torch
from torch.nn import functional as F

pytestmark = [pytest.mark.torch, pytest.mark.triton]
INF = math.inf
POINTS = [INF, -INF, 0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 0.5, -0.5, 20.0, -20.0, 1e-30]
ACTIVATIONS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "leaky_relu": F.leaky_relu,
    "threshold": lambda x: F.threshold(x, 0.5, 2.0),
    "elu": F.elu,
    "selu": F.selu,
    "softplus": F.softplus,
    "logsigmoid": F.logsigmoid,
    "clamp": lambda x: x.clamp(-1, 1),
    "abs": torch.abs,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


AT_NAN = dict.fromkeys(("relu6", "hardtanh", "hardshrink", "hardswish", "elu"), 1.0)
AT_NAN["selu"] = 1.0507010


def outputs(*inputs):
    return tuple(f(x) for f, x in zip(ACTIVATIONS.values(), inputs, strict=True))


def gradients(call, points=POINTS):
    leaves = [torch.tensor(points, requires_grad=True) for _ in ACTIVATIONS]
    return torch.autograd.grad([each.sum() for each in call(*leaves)], leaves)


def test_gradients_at_limits_are_eagers(cache, monkeypatch):
    monkeypatch.setenv("AOTC_CACHE_DIR", str(cache))
    torch._dynamo.reset()
    compiled = torch.compile(outputs, backend="aotc", options={"fallback": "error"})
    found = gradients(compiled)
    for name, own, expected in zip(ACTIVATIONS, found, gradients(outputs), strict=True):
        torch.testing.assert_close(own, expected, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}")
    at_nan = dict(zip(ACTIVATIONS, gradients(compiled, [math.nan] * len(POINTS)), strict=True))
    for name, expected in AT_NAN.items():  # as docs/torch-compile.md says
        torch.testing.assert_close(at_nan[name], torch.full_like(at_nan[name], expected))
