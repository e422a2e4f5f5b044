"""Layers of PT2E, quantised numbers written out: built with products of their codes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = [pytest.mark.torch, pytest.mark.triton]

from torch import nn  # noqa: E402

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import load_spec  # noqa: E402
from aotc.aot.pipeline import BuildOptions, build  # noqa: E402
from aotc.aot.rewrites.rewrite import rewrite  # noqa: E402
from aotc.aot.traits import TargetTraits  # noqa: E402
from aotc.runtime import load  # noqa: E402
from aotc.runtime.drivers.cpu.driver import ISA_FEATURES, features  # noqa: E402

MODEL = """
import torch
import torch.ao.quantization.fx._decomposed
from torch import nn

Q = torch.ops.quantized_decomposed
SCALE = 0.03125


class Layer(nn.Module):
    def __init__(self, layer, zero):
        super().__init__()
        self.layer, self.zero = layer, zero
        weight = layer.weight.detach()
        rows = weight.flatten(1).abs().amax(1) / 127
        self.register_buffer("scale", rows)
        self.register_buffer("zeros", torch.zeros(len(rows), dtype=torch.int64))
        place = rows.reshape(-1, *[1] * (weight.dim() - 1))
        self.register_buffer("codes", (weight / place).round().to(torch.int8))

    def forward(self, x):
        given = Q.quantize_per_tensor.default(x, SCALE, self.zero, 0, 255, torch.uint8)
        x = Q.dequantize_per_tensor.default(given, SCALE, self.zero, 0, 255, torch.uint8)
        whole = (self.codes, self.scale, self.zeros, 0, -128, 127, torch.int8)
        weight = Q.dequantize_per_channel.default(*whole)
        bias, layer = self.layer.bias, self.layer
        if isinstance(layer, nn.Linear):
            return nn.functional.linear(x, weight, bias)
        spaces = layer.stride, layer.padding, layer.dilation, layer.groups
        return nn.functional.conv2d(x, weight, bias, *spaces)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.images = nn.ModuleList([
            Layer(nn.Conv2d(3, 16, 3, padding=1), 117),
            Layer(nn.Conv2d(3, 70, 5, stride=2, padding=2), 0),
            Layer(nn.Conv2d(3, 8, 1), 255),
            Layer(nn.Conv2d(3, 6, 3, groups=3, padding=1), 9),
        ])
        self.rows = nn.ModuleList([Layer(nn.Linear(96, 40), 131), Layer(nn.Linear(96, 64), 0)])

    def forward(self, image, rows):
        return *(each(image) for each in self.images), *(each(rows) for each in self.rows)


def build_model():
    torch.manual_seed(0)
    return Model()


def numbers(*shape):
    drawn = torch.Generator().manual_seed(1)
    return (torch.randint(-140, 140, shape, generator=drawn) + 0.3) * SCALE


example_inputs = (numbers(2, 3, 13, 11), numbers(2, 5, 96))
"""


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    path = tmp_path_factory.mktemp("written_out") / "model.py"
    path.write_text(MODEL)
    return path


def exact(spec):
    """The example's results in f64."""
    x, rows = (each.double() for each in spec.arguments)
    found = []
    for each in (*spec.module.images, *spec.module.rows):
        data = rows if isinstance(each.layer, nn.Linear) else x
        codes = (data / 0.03125).round().add(each.zero).clamp(0, 255)
        data = (codes - each.zero) * 0.03125
        place = each.scale.double().reshape(-1, *[1] * (each.codes.dim() - 1))
        layer = each.layer.double()
        layer.weight = nn.Parameter(each.codes.double() * place)
        found.append(layer(data).detach())
    return found


@pytest.mark.parametrize("name", ISA_FEATURES)
def test_layers_have_the_numbers_of_their_codes(name, spec, cache, tmp_path):
    if not ISA_FEATURES[name] <= features():
        pytest.skip(f"this processor is not {name}")
    build(str(spec), tmp_path / "out", (f"cpu-{name}",), BuildOptions(cache_folder=cache))
    loaded = load_spec(str(spec))
    with load(tmp_path / "out", threads=1) as program:
        results = program(*loaded.arguments)
    for result, expected in zip(results, exact(loaded), strict=True):
        limit = 2e-6 * expected.abs().amax()  # a product of f32, three roundings and a bias
        assert (result.double() - expected).abs().amax() <= limit


def test_products_are_of_codes(spec):
    graph = rewrite(capture(load_spec(str(spec))).graph, TargetTraits())[0]
    products = [node for node in graph.nodes() if node.kind.startswith("matmul")]
    # Filters of 24 bytes are folded, and channels in groups are multiplied as f32.
    assert [node.inputs[0].dtype for node in products].count("i8") == 4
