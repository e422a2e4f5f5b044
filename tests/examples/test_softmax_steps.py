"""The kernels of docs/how-to/softmax-to-the-limit.md: each step on the CPU, and a GPU's code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

EXAMPLE = Path(__file__).parents[2] / "examples" / "profiling" / "softmax_steps.py"
STEPS = ["apart", "together", "online", "held", "spread"]


@pytest.fixture
def bundle(aotc, cache, tmp_path):
    out = tmp_path / "steps.aotc"
    words = ("--target", "cpu", "--target", "cuda-sm_90", "--quiet", "--cache-dir", cache)
    code, _, errors = aotc("build", EXAMPLE, "-o", out, *words)
    assert code == 0, errors
    return out


def test_each_step_is_softmax(bundle):
    from aotc.runtime import load

    with load(bundle, device="cpu") as program:
        assert list(program.entries) == STEPS
        x = torch.randn(program.entries["apart"].inputs[0].shape).mul(5).bfloat16()
        for name in STEPS:
            away = (program[name](x).double() - x.double().softmax(-1)).abs()
            assert bool((away <= 2**-8 * x.double().softmax(-1) + 2**-20).all()), name


def test_a_warp_that_holds_a_row_spills_and_eight_do_not(aotc, bundle):
    """Which is what the page says of a GPU's code."""
    code, out, errors = aotc("inspect", bundle, "--json")
    assert code == 0, errors
    (target,) = [each for each in json.loads(out)["targets"] if each["name"] == "cuda-sm_90"]
    rows = {each["threads"]: each for each in target["kernels"] if each["name"] == "one_pass"}
    assert rows[32]["spill_bytes"] > 1000
    assert rows[256]["spill_bytes"] == 0
