"""The model with Triton kernels of its own, built once for the CPU and for a GPU."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

SPEC = Path(__file__).with_name("kernels_of_user.py")


@pytest.fixture(scope="session")
def kernel_bundle(tmp_path_factory, cache):
    from aotc.aot.cli.program import run

    out = tmp_path_factory.mktemp("calls") / "bundle"
    options = ["--target", "cpu", "--target", "cuda:sm_90", "--quiet", "--cache-dir", str(cache)]
    assert run(["build", str(SPEC), "-o", str(out), *options]) == 0
    return out
