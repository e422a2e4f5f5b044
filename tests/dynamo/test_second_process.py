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
from dynamo_models import {model} as Model
from aotc.aot.dynamo import aotc
from aotc.aot.dynamo.programs import counters

torch.manual_seed(0)
module = Model({arguments})
compiled = torch.compile(module, backend=aotc, options={{"fallback": "eager"}})
result = compiled({example})
result.float().square().sum().backward()
loaded = sorted(name for name in sys.modules if name.startswith({heavy!r}))
gradients = [float(each.grad.abs().sum()) for each in module.parameters()]
print(json.dumps({{"counters": counters(), "loaded": loaded, "gradients": gradients}}))
"""
# What a start from the caches leaves alone; Dynamo itself imports Triton and parts of Inductor.
HEAVY = (
    *(f"aotc.aot.{stage}" for stage in ("ir", "lower", "plan", "schedule", "targets", "tune")),
    *("aotc.aot.capture.aten_graph", "aotc.aot.dynamo.graphs", "aotc.aot.rewrites.rewrite"),
    *(f"torch._inductor.{name}" for name in ("compile_fx", "graph", "lowering", "scheduler")),
)
CASES = {
    "perceptron": ("Perceptron", "", "torch.randn(5, 12)"),
    "regions": ("Solving", "", "torch.randn(5, 5)"),
    "layouts": ("Convolutions", "", "torch.randn(2, 3, 11, 11)"),
    "effects": ("Solving", "is_checked=True", "torch.randn(5, 5)"),
    "draws": ("Transformer", "dropout=0.5", "torch.randint(0, 20, (2, 8))"),
}


def process(case, caches, **more):
    model, arguments, example = CASES[case]
    facts = {"tests": str(HERE.parent), "heavy": HEAVY}
    code = PROGRAM.format(model=model, arguments=arguments, example=example, **facts)
    variables = {**os.environ, **caches, **more}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """`filled(case)`: what a first process said, and the caches that it filled."""
    known = {}

    def first(case):
        if case not in known:
            folder = tmp_path_factory.mktemp("filled")
            known[case] = process(case, caches_in(folder)), folder
        return known[case]

    return first


@pytest.fixture
def after_first(filled, tmp_path):
    """`after_first(case)`: what a first process said, and a copy of the caches that it filled."""

    def copied(case):
        said, folder = filled(case)
        shutil.copytree(folder, tmp_path / case)
        return said, caches_in(tmp_path / case)

    return copied


def caches_in(folder):
    names = ("AOTC_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    return {name: str(folder / name.lower()) for name in names}


@pytest.mark.parametrize("case", [case for case in CASES if case != "effects"])
def test_it_compiles_and_traces_nothing(case, after_first):
    first, caches = after_first(case)
    second = process(case, caches)
    assert first["counters"]["programs_made"] >= 2
    assert first["counters"]["traces_skipped"] == 0
    assert second["counters"]["traces_skipped"] == second["counters"]["graphs"] == 2
    assert second["counters"]["programs_made"] == second["counters"]["kernels_compiled"] == 0
    assert second["counters"]["programs_cached"] == first["counters"]["programs_made"]
    assert second["gradients"] == first["gradients"]
    assert second["loaded"] == []


def test_effects_are_traced_again(after_first):
    first, caches = after_first("effects")
    second = process("effects", caches)
    assert second["counters"]["traces_skipped"] == second["counters"]["programs_made"] == 0
    assert second["gradients"] == first["gradients"]


def test_without_torchs_cache_it_traces_and_compiles_nothing(after_first):
    _, caches = after_first("perceptron")
    counted = process("perceptron", caches, TORCHINDUCTOR_AUTOGRAD_CACHE="0")["counters"]
    assert counted["traces_skipped"] == counted["programs_made"] == 0
    assert counted["programs_cached"] == 2


def test_programs_that_the_cache_lost_are_made_again(after_first):
    first, caches = after_first("perceptron")
    (programs,) = Path(caches["AOTC_CACHE_DIR"]).glob("programs-v*")
    shutil.rmtree(programs)
    again = process("perceptron", caches)
    assert again["counters"]["programs_made"] == 2
    assert again["counters"]["kernels_compiled"] == 0
    assert again["gradients"] == first["gradients"]
    assert process("perceptron", caches)["counters"]["programs_made"] == 0
