"""Programs that the fuzzer found wrong once, as specs: built, and behind torch.compile."""

from __future__ import annotations

import runpy
from contextlib import closing
from pathlib import Path

import pytest
import torch

from aotc.aot.pipeline import BuildOptions, build
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
    assert_right(found, model, inputs)


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.stem)
def test_torch_compile_gives_eager_numbers(path, cache, monkeypatch):
    monkeypatch.setenv("AOTC_CACHE_DIR", str(cache))
    model, inputs, is_dynamic = _spec(path)
    torch._dynamo.reset()
    call = torch.compile(model, backend="aotc", dynamic=is_dynamic, options={"fallback": "error"})
    assert_right(call(*inputs), model, inputs)


def assert_right(found, model, inputs):
    """Eager's numbers; or, of f32, as near to f64's as eager's own, whose sums have another order
    on each processor."""
    for place, (own, expected) in enumerate(zip(found, model(*inputs), strict=True)):
        try:
            torch.testing.assert_close(own, expected, equal_nan=True)
        except AssertionError:
            if expected.dtype is not torch.float32:
                raise
            wide = model(*(x.double() if x.is_floating_point() else x for x in inputs))[place]
            eager = float((expected - wide).abs().max())
            torch.testing.assert_close(
                own.double(), wide.double(), rtol=1.3e-6, atol=max(1e-5, eager), equal_nan=True
            )


def _spec(path):
    """Model, example inputs, whether their sizes vary."""
    names = runpy.run_path(str(path))
    return names["model"], names["example_inputs"], "dynamic_shapes" in names
