"""A deeper encoder of the same layers costs launches, not kernels: counted, never timed."""

import pytest

torch = pytest.importorskip("torch")

from aotc.aot.pipeline import BuildOptions, build  # noqa: E402  needs torch

pytestmark = pytest.mark.torch

SPEC = """
import torch

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)
        self.up, self.down = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)
        self.first, self.second = torch.nn.LayerNorm(32), torch.nn.LayerNorm(32)

    def forward(self, x):
        parts = self.qkv(x).view(2, 8, 3, 4, 8).permute(2, 0, 3, 1, 4)
        seen = torch.nn.functional.scaled_dot_product_attention(*parts)
        x = self.first(x + self.out(seen.transpose(1, 2).reshape(2, 8, 32)))
        return self.second(x + self.down(torch.nn.functional.gelu(self.up(x))))

model = torch.nn.Sequential(*(Layer() for _ in range({layers})))
example_inputs = (torch.randn(2, 8, 32),)
"""


def built(layers, folder):
    spec = folder / f"encoder{layers}.py"
    spec.write_text(SPEC.replace("{layers}", str(layers)))
    options = BuildOptions(cache_folder=folder / "cache")
    return build(str(spec), folder / f"bundle{layers}", ("cpu",), options)


def test_twelve_layers_compile_what_four_do(tmp_path):
    four = built(4, tmp_path)
    (few,) = four.targets
    assert four.compiled - four.weights_kernels == few.kernels < few.launches
    twelve = built(12, tmp_path)
    (many,) = twelve.targets
    assert (twelve.compiled, twelve.cache_hits) == (0, few.kernels + four.weights_kernels)
    assert many.kernels == few.kernels
    assert many.code_bytes == few.code_bytes
    # Of eight layers more: what one layer launches, eight times.
    assert (many.launches - few.launches) % 8 == 0
    assert many.launches > few.launches
