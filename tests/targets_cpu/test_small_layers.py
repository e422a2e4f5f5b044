"""Linear layers of 16 bits behind what is computed in one kernel with them or before them: few rows
and odd widths, as the heads of networks have them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

SPEC = '''
"""Heads as entry points of one bundle; the build compares each with eager."""
import itertools

import torch
from torch import nn
from torch.nn import functional

from aotc.aot import EntryPoint


class Head(nn.Module):
    """What may stand before a layer: a mean over an image, a norm, an activation, nothing."""

    def __init__(self, before, inputs, outputs):
        super().__init__()
        self.before = before
        self.norm = nn.LayerNorm(inputs)
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x):
        for name in self.before:
            if name == "mean":
                x = x.mean((2, 3))
            elif name == "norm":
                x = self.norm(x)
            else:
                x = getattr(functional, name)(x)
        return self.layer(x)


BEFORE = ((), ("norm",), ("mean", "norm"), ("norm", "gelu"))
ROWS, INPUTS, OUTPUTS = (1, 5), (96, 320, 333), (10, 64)
torch.manual_seed(0)
heads, entry_points = [], {}
CASES = list(itertools.product(BEFORE, ROWS, INPUTS))[::STEP]
for number, case in enumerate(CASES):
    before, rows, inputs = case
    heads.append(Head(before, inputs, OUTPUTS[number % 2]))
    x = torch.randn((rows, inputs, 3, 3) if "mean" in before else (rows, inputs)).to(torch.DTYPE)
    function = lambda model, x, number=number: model[number](x)
    entry_points[f"head_{number}"] = EntryPoint((x,), function=function)
model = nn.ModuleList(heads).to(torch.DTYPE).eval()
'''


# By day all heads in bf16, and those of each width and start in f16: every fifth.
@pytest.mark.parametrize(
    ("dtype", "step"),
    [("bfloat16", 1), ("float16", 5), pytest.param("float16", 1, marks=pytest.mark.nightly)],
)
def test_heads_of_networks(dtype, step, aotc, cache, tmp_path):
    spec = tmp_path / "heads.py"
    spec.write_text(SPEC.replace("DTYPE", dtype).replace("STEP", str(step)))
    out = tmp_path / "heads.aotc"
    code, said, errors = aotc("build", spec, "-o", out, "--target", "cpu", "--cache-dir", cache)
    assert code == 0, errors
    assert said.count("(random inputs)") == len(range(0, 24, step))
