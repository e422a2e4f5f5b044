"""Programs that the fuzzer found wrong once, as specs: built, and behind torch.compile."""

from __future__ import annotations

import runpy
from contextlib import closing
from pathlib import Path

import pytest
import torch

from aotc.aot.build import BuildOptions, build
from aotc.aot.tasks.workers import Workers
from aotc.runtime import load

pytestmark = [pytest.mark.torch, pytest.mark.triton]
COMPLEX = ("transform_of_two_points",)  # torch.compile leaves them to Inductor
FOUND = sorted((Path(__file__).parent / "found").glob("*.py"))
COMPILED = [path for path in FOUND if path.stem not in COMPLEX]


@pytest.fixture(scope="module")
def workers():
    with Workers(1) as pool:
        yield pool


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_a_bundle_gives_eager_numbers(path, workers, cache, tmp_path):
    model, inputs, _ = _spec(path)
    build(str(path), tmp_path / "bundle", ["cpu"], BuildOptions(cache), executor=workers)
    with closing(load(tmp_path / "bundle")) as program:
        found = program(*inputs)
    for own, expected in zip(found, model(*inputs), strict=True):
        torch.testing.assert_close(own, expected, equal_nan=True)


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.stem)
def test_torch_compile_gives_eager_numbers(path, cache, monkeypatch):
    monkeypatch.setenv("AOTC_CACHE_DIR", str(cache))
    model, inputs, is_dynamic = _spec(path)
    torch._dynamo.reset()
    call = torch.compile(model, backend="aotc", dynamic=is_dynamic, options={"fallback": "error"})
    for own, expected in zip(call(*inputs), model(*inputs), strict=True):
        torch.testing.assert_close(own, expected, equal_nan=True)


def _spec(path):
    """Model, example inputs, whether their sizes vary."""
    names = runpy.run_path(str(path))
    return names["model"], names["example_inputs"], "dynamic_shapes" in names
