"""`aotc build --rewrites`: a kernel of the user's in place of an expression."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest

from aotc import runtime
from aotc.aot.options import BuildOptions
from aotc.aot.pipeline import build
from aotc.aot.rewrites.registry import digest_of
from aotc.aot.rewrites.user_rewrites import load_rewrites

pytestmark = [pytest.mark.torch, pytest.mark.triton]
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_kernel_takes_the_place_of_an_expression(tmp_path):
    rewrites = load_rewrites(EXAMPLES / "rewrites" / "swiglu.py")
    options = BuildOptions(cache_folder=tmp_path / "cache", rewrites=rewrites)
    with_kernel, without = tmp_path / "with", tmp_path / "without"
    report = build(str(EXAMPLES / "swiglu.py"), with_kernel, ("cpu",), options)
    assert all(check.is_ok for target in report.targets for check in target.checks)
    facts = json.loads((with_kernel / "provenance.json").read_text())
    assert facts["rewrites"] == {each.name: each.digest for each in rewrites}
    assert digest_of(rewrites) != digest_of(())
    (target,) = facts["targets"].values()
    assert [group["name"] for group in target["groups"]].count("gate_kernel") == 1
    build(str(EXAMPLES / "swiglu.py"), without, ("cpu",), BuildOptions(options.cache_folder))
    x = numpy.random.default_rng(1).standard_normal((4, 33, 96), numpy.float32)
    found, expected = (runtime.load(path)(x) for path in (with_kernel, without))
    numpy.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
