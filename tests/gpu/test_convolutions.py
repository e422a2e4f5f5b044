"""Convolutions of f32 on a GPU: as exact as torch's own, under either setting of its switch."""

import copy
import subprocess
import sys
import textwrap

import pytest

from aotc.runtime import load

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from torch import nn  # noqa: E402

SHAPE = (2, 3, 61, 47)


class Net(nn.Module):
    """Results with one reader and with two, pooled, joined, scaled and transposed."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.norm = nn.Conv2d(3, 48, 3, padding=1), nn.BatchNorm2d(48)
        self.down, self.block = nn.Conv2d(48, 96, 3, 2, 1), nn.Conv2d(96, 96, 3, padding=1)
        self.point, self.groups = nn.Conv2d(96, 96, 1), nn.Conv2d(96, 96, 3, padding=1, groups=4)
        self.up, self.head = nn.ConvTranspose2d(96, 48, 2, 2), nn.Conv2d(96, 20, 5, padding=2)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.running_var, 0.5, 1.5)

    def forward(self, x):
        first = self.norm(self.stem(x)).relu()
        low = self.down(nn.functional.max_pool2d(first, 2)).relu()
        low = self.block(low).relu() + low
        low = self.groups(self.point(low)).relu()
        wide = nn.functional.interpolate(self.up(low), first.shape[2:])
        return self.head(torch.cat([wide, first], 1))


def model():
    return Net().eval()


@pytest.mark.parametrize("allow_tf32", [False, True])
def test_errors_are_those_of_torch(allow_tf32, tmp_path):
    spec, out = tmp_path / "net.py", tmp_path / "net.aotc"
    spec.write_text(
        textwrap.dedent(f"""
            import sys
            import torch
            sys.path.insert(0, {str(__file__.rpartition("/")[0])!r})
            from test_convolutions import SHAPE, model as make

            torch.backends.cudnn.allow_tf32 = {allow_tf32}
            model = make()
            example_inputs = (torch.randn(SHAPE),)
        """)
    )
    command = [sys.executable, "-m", "aotc.aot.cli", "build", spec, "-o", out, "--target", "cuda"]
    command += ["--cache-dir", tmp_path / "cache"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    eager = model().cuda()
    exact = copy.deepcopy(eager).double()
    flags = torch.backends.cudnn.flags(enabled=True, allow_tf32=allow_tf32)
    with load(out, device="cuda") as program, torch.no_grad(), flags:
        for seed in range(5):
            x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed)).cuda()
            expected = exact(x.double())
            ours, theirs = ((each.double() - expected).abs() for each in (program(x), eager(x)))
            assert ours.mean() < 1.5 * theirs.mean()
            assert ours.max() < 2 * theirs.max()
