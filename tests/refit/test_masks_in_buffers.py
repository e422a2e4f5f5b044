"""Causal masks in persistent buffers are part of the program, which takes no other values."""

import pytest
import torch
from safetensors import safe_open

from aotc import runtime
from aotc.aot.options import BuildOptions
from aotc.aot.pipeline import build
from aotc.runtime.bundle.parameters import PARAMETERS_NAME, Parameters
from aotc.runtime.errors import WeightsMismatch

LENGTH = 40
SPEC = (
    f"LENGTH = {LENGTH}"
    + """
import math
import torch
from torch import nn


class Block(nn.Module):  # nanoGPT's
    def __init__(self):
        super().__init__()
        self.mixed, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        seen = torch.tril(torch.ones(LENGTH, LENGTH))
        self.register_buffer("bias", seen.view(1, 1, LENGTH, LENGTH))

    def forward(self, x):
        length = x.shape[1]
        split = self.mixed(x).split(32, 2)
        q, k, v = (each.view(-1, length, 2, 16).transpose(1, 2) for each in split)
        att = (q @ k.transpose(-2, -1)) / math.sqrt(16)
        att = att.masked_fill(self.bias[:, :, :length, :length] == 0, float("-inf"))
        y = torch.softmax(att, dim=-1) @ v
        return x + self.out(y.transpose(1, 2).reshape(-1, length, 32))


def made(seed):
    torch.manual_seed(seed)
    return nn.Sequential(Block(), Block()).eval()


model = made(0)
example_inputs = (torch.randn(2, 24, 32),)
dynamic_shapes = ({1: torch.export.Dim("length", min=2, max=LENGTH - 1)},)
"""
)


@pytest.fixture(scope="module")
def bundle(cache, tmp_path_factory):
    folder = tmp_path_factory.mktemp("masks")
    (folder / "spec.py").write_text(SPEC)
    options = BuildOptions(cache_folder=cache)
    build(str(folder / "spec.py"), folder / "bundle", ("cpu-x86-64-v3",), options)
    return folder / "bundle"


def model_of(seed):
    names = {}
    exec(SPEC, names)
    return names["made"](seed)


def test_the_bundle_says_that_they_are_fixed_and_stores_none(bundle):
    listed = Parameters.from_bytes((bundle / PARAMETERS_NAME).read_bytes())
    assert {row.name for row in listed.fixed} == {"0.bias", "1.bias"}
    assert not {"0.bias", "1.bias"} & {name for row in listed.parameters for name in row.names}
    with safe_open(bundle / "weights.safetensors", "pt") as file:
        names = list(file.keys())
        assert not [name for name in names if file.get_slice(name).get_shape()[-1] == LENGTH]


def test_equal_values_are_taken_and_others_refused(bundle):
    program, other = runtime.load(bundle), model_of(1)
    x = torch.randn(2, 31, 32, generator=torch.Generator().manual_seed(5))
    before = program(x)
    tensors = other.state_dict()
    changed = {**tensors, "1.bias": torch.ones_like(tensors["1.bias"])}
    with pytest.raises(WeightsMismatch) as caught:
        program.load_weights(changed)
    assert caught.value.names["fixed"] == ["1.bias"]
    assert torch.equal(program(x), before)
    program.load_weights(tensors)
    with torch.no_grad():
        torch.testing.assert_close(program(x), other(x), atol=2e-6, rtol=0)
    program.load_weights({name: each for name, each in tensors.items() if "bias" not in name[:6]})
