"""A second process neither traces nor compiles; what the caches lost is made again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.triton, pytest.mark.slow]
HERE = Path(__file__).parent
PROGRAM = """
import json, sys
sys.path.insert(0, {tests!r})
import torch
import dynamo_models
from aotc.aot.dynamo import aotc
from aotc.aot.dynamo.programs import counters

def said(model, arguments, example):
    before = counters()
    torch._dynamo.reset()
    torch.manual_seed(0)
    module = getattr(dynamo_models, model)(**arguments)
    compiled = torch.compile(module, backend=aotc, options={{"fallback": "eager"}})
    result = compiled(eval(example))
    result.float().square().sum().backward()
    return {{
        "counters": {{name: count - before[name] for name, count in counters().items()}},
        "loaded": sorted(name for name in sys.modules if name.startswith({heavy!r})),
        "gradients": [float(each.grad.abs().sum()) for each in module.parameters()],
    }}

print(json.dumps([said(*case) for case in {cases!r}]))
"""
# What a start from the caches leaves alone; Dynamo itself imports Triton and parts of Inductor.
HEAVY = (
    *(f"aotc.aot.{stage}" for stage in ("ir", "lower", "plan", "schedule", "targets", "tune")),
    *("aotc.aot.capture.aten_graph", "aotc.aot.dynamo.graphs", "aotc.aot.rewrites.rewrite"),
    *(f"torch._inductor.{name}" for name in ("compile_fx", "graph", "lowering", "scheduler")),
)
CASES = {
    "perceptron": ("Perceptron", {}, "torch.randn(5, 12)"),
    "regions": ("Solving", {}, "torch.randn(5, 5)"),
    "layouts": ("Convolutions", {}, "torch.randn(2, 3, 11, 11)"),
    "flow": ("Repeated", {}, "torch.randn(4, 5)"),
    "draws": ("Transformer", {"dropout": 0.5}, "torch.randint(0, 20, (2, 8))"),
    "effects": ("Solving", {"is_checked": True}, "torch.randn(5, 5)"),  # last: it is traced again
}


def process(names, caches, **more):
    """What a process said of each case, one after the other."""
    cases = [CASES[name] for name in names]
    code = PROGRAM.format(tests=str(HERE.parent), heavy=HEAVY, cases=cases)
    variables = {**os.environ, **caches, **more}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr
    return dict(zip(names, json.loads(done.stdout), strict=True))


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """What a first process said of each case, and the caches that it filled."""
    folder = tmp_path_factory.mktemp("filled")
    return process(CASES, caches_in(folder)), folder


@pytest.fixture(scope="module")
def seconds(filled):
    """What a second process said."""
    return process(CASES, caches_in(filled[1]))


@pytest.fixture
def caches(filled, tmp_path):
    """A copy of the caches that the first process filled."""
    shutil.copytree(filled[1], tmp_path / "caches")
    return caches_in(tmp_path / "caches")


def caches_in(folder):
    names = ("AOTC_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    return {name: str(folder / name.lower()) for name in names}


@pytest.mark.parametrize("case", [case for case in CASES if case != "effects"])
def test_it_compiles_and_traces_nothing(case, filled, seconds):
    first, second = filled[0][case], seconds[case]
    assert first["counters"]["programs_made"] >= 2
    assert first["counters"]["traces_skipped"] == 0
    assert second["counters"]["traces_skipped"] == second["counters"]["graphs"] == 2
    assert second["counters"]["programs_made"] == second["counters"]["kernels_compiled"] == 0
    assert second["counters"]["programs_cached"] == first["counters"]["programs_made"]
    assert second["gradients"] == first["gradients"]
    assert second["loaded"] == []


def test_effects_are_traced_again(filled, seconds):
    first, second = filled[0]["effects"], seconds["effects"]
    assert second["counters"]["traces_skipped"] == second["counters"]["programs_made"] == 0
    assert second["gradients"] == first["gradients"]


def test_without_torchs_cache_it_traces_and_compiles_nothing(caches):
    said = process(["perceptron"], caches, TORCHINDUCTOR_AUTOGRAD_CACHE="0")
    counted = said["perceptron"]["counters"]
    assert counted["traces_skipped"] == counted["programs_made"] == 0
    assert counted["programs_cached"] == 2


def test_programs_that_the_cache_lost_are_made_again(filled, caches):
    (programs,) = Path(caches["AOTC_CACHE_DIR"]).glob("programs-v*")
    stored = {path.relative_to(programs) for path in programs.rglob("*") if path.is_file()}
    shutil.rmtree(programs)
    again = process(["perceptron"], caches)["perceptron"]
    assert again["counters"]["programs_made"] == 2
    assert again["counters"]["kernels_compiled"] == 0
    assert again["gradients"] == filled[0]["perceptron"]["gradients"]
    found = {path.relative_to(programs) for path in programs.rglob("*") if path.is_file()}
    assert found
    assert found <= stored  # under their keys, where the next process looks
