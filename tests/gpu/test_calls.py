"""Triton kernels of a model's own on a real device, compared with eager torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from aotc.runtime import load

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

SPECS = {
    "each way": Path(__file__).parents[1] / "calls" / "kernels_of_user.py",
    "example": Path(__file__).parents[2] / "examples" / "triton_kernels.py",
}


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("tune", ["off", "quick"])
def test_a_bundle_gives_the_numbers_of_eager_torch(name, tune, tmp_path):
    from aotc import kernels
    from aotc.aot.capture.spec import load_spec

    command = [sys.executable, "-m", "aotc.aot.cli", "build", SPECS[name], "-o", tmp_path / "out"]
    command += ["--target", "cuda", "--tune", tune, "--cache-dir", tmp_path / "cache"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    spec = load_spec(str(SPECS[name]))
    arguments = [torch.randn_like(each) for each in spec.arguments]
    with torch.no_grad(), kernels.on_cpu():
        expected = spec.module(*arguments)
    with load(tmp_path / "out", device="cuda") as program:
        for _ in range(3):  # what a call updates starts from the same contents each time
            found = program(*(each.cuda() for each in arguments))
            torch.cuda.synchronize()
            leaves = torch.utils._pytree.tree_leaves((found, expected))
            pairs = zip(leaves[: len(leaves) // 2], leaves[len(leaves) // 2 :], strict=True)
            for one, wanted in pairs:
                torch.testing.assert_close(one.cpu(), wanted, rtol=2e-3, atol=2e-3)
