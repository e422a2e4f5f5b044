"""Inputs and outputs in channels last on a real device, compared with eager torch."""

import subprocess
import sys

import pytest

from aotc.runtime import load
from aotc.runtime.errors import InputNotContiguous
from aotc.runtime.verify import verify

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

SPEC = """
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 32, 3, padding=1), nn.Conv2d(32, 16, 1)
        self.norm = nn.GroupNorm(4, 32)

    def forward(self, x, y):
        inside = torch.relu(self.norm(self.first(x)))
        return self.second(inside), inside.mean((2, 3)), y + 1


def build_model():
    return Net().eval().to(memory_format=torch.channels_last)


x = torch.randn(2, 8, 12, 20).to(memory_format=torch.channels_last)
example_inputs = (x, torch.randn(6, 10).t())
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The model for the device here and for the CPU."""
    folder = tmp_path_factory.mktemp("orders")
    (folder / "net.py").write_text(SPEC)
    command = [sys.executable, "-m", "aotc.aot.cli", "build", folder / "net.py"]
    command += ["-o", folder / "bundle", "--target", "cuda", "--target", "cpu"]
    command += ["--cache-dir", folder / "cache"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return folder


def test_numbers_and_strides_are_those_of_eager(bundle):
    from aotc.aot.capture.spec import load_spec

    module = load_spec(str(bundle / "net.py")).module.cuda()
    with load(bundle / "bundle", device="cuda") as program:
        for _ in range(3):
            x = torch.randn(2, 8, 12, 20, device="cuda").to(memory_format=torch.channels_last)
            y = torch.randn(6, 10, device="cuda").t()
            with torch.no_grad():
                expected = module(x, y)
            found = program(x, y)
            outs = tuple(torch.empty_like(each) for each in found)
            program(x, y, out=outs)
            bound = program.bind(x, y)
            for one, wanted, out, again in zip(found, expected, outs, bound(), strict=True):
                torch.testing.assert_close(one, wanted, rtol=2e-3, atol=2e-3)
                if one.dim() == 4:  # others are contiguous, whatever the model's own are
                    assert one.stride() == wanted.stride()
                assert torch.equal(out, one)
                assert torch.equal(torch.as_tensor(again, device="cuda"), one)
        other = x.contiguous()  # a call copies it into the order that it reads
        for one, wanted in zip(program(other, y), found, strict=True):
            assert torch.equal(one, wanted)
            assert one.stride() == wanted.stride()
        with pytest.raises(InputNotContiguous):
            program.bind(other, y)
        found = program(x.cpu().numpy(), y.cpu().numpy())
        for one, wanted in zip(found, expected, strict=True):
            assert abs(one - wanted.cpu().numpy()).max() < 2e-3


def test_the_bundle_verifies_on_both(bundle):
    for device in ("cuda", "cpu"):
        assert {each.status for each in verify(bundle / "bundle", device=device)} == {"ok"}
