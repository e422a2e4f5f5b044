"""`flex_attention` in a bundle: its functions are part of the attention, its tables weights."""

from __future__ import annotations

import textwrap

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from torch._higher_order_ops import utils  # noqa: E402
from torch.nn.attention import flex_attention  # noqa: E402

from aotc.aot.capture import op_modes  # noqa: E402
from aotc.aot.cli.program import run  # noqa: E402
from aotc.runtime import load  # noqa: E402

SPEC = """
import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

LENGTH = 48
BLOCKS = create_block_mask(lambda b, h, q, k: q >= k, None, None, LENGTH, LENGTH, "cpu")

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.slopes = nn.Parameter(torch.tensor([0.5, 0.25]))

    def forward(self, x):
        def with_slope(score, b, h, q, k):
            return score + (k - q) * self.slopes[h]

        q = x.view(2, LENGTH, 2, 16).transpose(1, 2)
        return flex_attention(q, q, q, score_mod=with_slope, block_mask=BLOCKS)

model = Model().eval()
example_inputs = (torch.randn(2, LENGTH, 32),)
"""


def test_it_builds_and_runs(tmp_path):
    spec, bundle = tmp_path / "spec.py", tmp_path / "bundle"
    spec.write_text(textwrap.dedent(SPEC))
    arguments = ["build", spec, "-o", bundle, "--quiet", "--cache-dir", tmp_path / "cache"]
    assert run([str(each) for each in arguments]) == 0
    x = torch.randn(2, 48, 32, generator=torch.Generator().manual_seed(1))
    with load(str(bundle)) as program:
        found = numpy.asarray(program(x.numpy()))
    q = x.double().view(2, 48, 2, 16).transpose(1, 2)
    places = torch.arange(48)
    away = places[None, :] - places[:, None]
    scores = q @ q.transpose(-2, -1) / 4 + away * torch.tensor([0.5, 0.25])[:, None, None]
    expected = scores.masked_fill(away > 0, -torch.inf).softmax(-1) @ q
    assert numpy.abs(found - expected.numpy()).max() < 1e-5


def test_it_is_not_compiled_while_golden_numbers_are_made(monkeypatch):
    """Nor by a torch that lacks what traces other control flow, as 2.11 does."""
    monkeypatch.delattr(utils, op_modes.TRACE, raising=False)
    with op_modes.traced_control_flow():
        assert getattr(flex_attention, op_modes.UNCOMPILED)
        assert not hasattr(utils, op_modes.TRACE)
    assert not getattr(flex_attention, op_modes.UNCOMPILED)
