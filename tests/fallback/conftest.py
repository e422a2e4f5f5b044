"""The model that leaves ops to torch in every way, built once."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "hostile"), str(FOLDER.parent / "pack")]
SPEC = Path(__file__).with_name("ops_of_torch.py")


@pytest.fixture(scope="session")
def torch_bundle(tmp_path_factory, cache):
    """The bundle of `ops_of_torch`; nothing may be written to it."""
    from aotc.aot.cli.program import run

    out = tmp_path_factory.mktemp("fallback") / "bundle"
    options = ["--fallback", "torch", "--quiet", "--cache-dir", str(cache)]
    assert run(["build", str(SPEC), "-o", str(out), *options]) == 0
    return out
