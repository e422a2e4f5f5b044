"""Bundles of these tests: two of one signature with a dynamic batch, built once."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "pack"))
sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "serving"))

SPEC = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed({seed})
        self.embedding = torch.nn.Embedding(50, 16)
        self.out = torch.nn.Linear(16, 4)

    def forward(self, ids, scale):
        return self.out(self.embedding(ids) * scale[:, None, None]).relu().sum(1)

model = Model().eval()
example_inputs = (torch.arange(12).reshape(2, 6), torch.ones(2))
batch = torch.export.Dim("batch", min=1, max=64)
length = torch.export.Dim("length", min=1, max=32)
dynamic_shapes = ({{0: batch, 1: length}}, {{0: batch}})
"""


@pytest.fixture(scope="session")
def bundles(tmp_path_factory, cache):
    """Two bundles of one signature: (i64[batch, length], f32[batch]) to f32[batch, 4]."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    from aotc.aot.cli.program import run

    folder = tmp_path_factory.mktemp("serving")
    found = []
    for seed in (0, 1):
        spec = folder / f"spec{seed}.py"
        spec.write_text(SPEC.format(seed=seed))
        found.append(folder / f"bundle{seed}")
        line = ["build", spec, "-o", found[-1], "--quiet", "--target", "cpu", "--cache-dir", cache]
        assert run([str(word) for word in line]) == 0
    return found


@pytest.fixture(scope="session")
def native(tmp_path_factory):
    """A bundle without torch: y = 15 · x of 192 i64 numbers."""
    pytest.importorskip("triton")
    import native_bundle

    return native_bundle.write(tmp_path_factory.mktemp("native") / "bundle")
