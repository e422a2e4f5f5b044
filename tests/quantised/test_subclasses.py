"""Weights of a tensor subclass without memory, as torchao's are, through a whole build."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = [pytest.mark.torch, pytest.mark.triton]

from aotc.aot.capture.spec import load_spec  # noqa: E402
from aotc.aot.pipeline import BuildOptions, build  # noqa: E402
from aotc.runtime import load  # noqa: E402

MODEL = """
import torch
from torch.utils import _pytree as pytree


class Codes(torch.Tensor):
    @staticmethod
    def __new__(cls, codes, scale):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=scale.dtype)

    def __init__(self, codes, scale):
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self):
        return ["codes", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, parts, context, size, stride):
        return cls(parts["codes"], parts["scale"])

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
        if function in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            (own,) = arguments
            return cls(own.codes, own.scale)
        plain = pytree.tree_map_only(cls, lambda own: own.codes * own.scale, arguments)
        return function(*plain, **(keywords or {}))


def build_model():
    model = torch.nn.Linear(64, 48)
    codes = torch.randint(-127, 128, (48, 64), dtype=torch.int8)
    weight = Codes(codes, torch.rand(48, 1) + 0.1)
    model.weight = torch.nn.Parameter(weight, requires_grad=False)
    return model


example_inputs = (torch.randn(4, 64),)
"""


def test_a_bundle_has_the_model_s_numbers(tmp_path, cache):
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    build(str(path), tmp_path / "out", ("cpu",), BuildOptions(cache_folder=cache))
    spec = load_spec(str(path))
    weight, (x,) = spec.module.weight, spec.arguments
    exact = x.double() @ (weight.codes.double() * weight.scale).t() + spec.module.bias.double()
    with load(tmp_path / "out", threads=1) as program:
        found = program(x)
    assert (found.double() - exact).abs().max() <= 1e-5 * exact.abs().max()
