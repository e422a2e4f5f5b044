"""Conversions round, and 16-bit values decide as eager's do: the bits are eager's."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from aotc.aot.capture.capture import capture
from aotc.aot.capture.importer import to_array
from aotc.aot.capture.spec import Spec
from aotc.aot.dynamo import aotc
from aotc.aot.pipeline import BuildOptions, build
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.targets.cuda.compile import compile_cubin
from aotc.aot.targets.cuda.machines import GPUS
from aotc.aot.targets.toolchain import load_kernel
from aotc.runtime import load
from tests.rounding import programs

sys.path.insert(0, str(Path(__file__).parents[1] / "lower"))

from schedule_runner import Job

pytestmark = [pytest.mark.torch, pytest.mark.triton]
STRICT = {"fallback": "error"}
SEEDS = (20, 24)  # chains of torch.compile: first, end
MIXED = range(60, 63)
GRADIENTS = range(3)


@pytest.fixture(autouse=True)
def forgetful(tmp_path_factory, monkeypatch):
    """A Dynamo that has met nothing."""
    monkeypatch.setenv("AOTC_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def differing(found, expected) -> int:
    """How many elements differ, NaN counting as itself."""
    found, expected = found.double(), expected.double()
    return int((~((found == expected) | (found.isnan() & expected.isnan()))).sum())


def wrong(found, expected) -> list[tuple[int, int]]:
    """(place of a result, elements that differ) of all that differ."""
    assert len(found) == len(expected)
    assert [each.dtype for each in found] == [each.dtype for each in expected]
    counts = [differing(*pair) for pair in zip(found, expected, strict=True)]
    return [(place, count) for place, count in enumerate(counts) if count]


def names(program: programs.Together, x, y) -> list[str]:
    """The program that each result belongs to."""
    rows = [(name, made(x)) for name, made in programs.NAMED.items()]
    rows += [(f"chain {at}", made(x, y)) for at, made in enumerate(program.chains)]
    return [name for name, made in rows for _ in programs.leaves(made)]


def test_named_programs_in_torch_compile():
    x, _ = programs.arguments(1)

    def together(x):
        return [programs.leaves(program(x)) for program in programs.NAMED.values()]

    found = torch.compile(together, backend=aotc, options=STRICT)(x)
    rows = zip(programs.NAMED, found, together(x), strict=True)
    assert {name: wrong(*pair) for name, *pair in rows if wrong(*pair)} == {}


@pytest.mark.parametrize("seed", range(*SEEDS))
def test_random_chains_in_torch_compile(seed):
    program, (x, y) = programs.chain(seed), programs.arguments(seed)
    found = torch.compile(program, backend=aotc, options=STRICT)(x, y)
    assert wrong(programs.leaves(found), programs.leaves(program(x, y))) == []


@pytest.mark.parametrize("seed", MIXED)
def test_every_operation_rounds_where_that_is_asked_for(seed):
    program, (x, y) = programs.mixed(seed), programs.arguments(seed)
    options = {**STRICT, "round_intermediates": True}
    found = torch.compile(program, backend=aotc, options=options)(x, y)
    assert wrong(programs.leaves(found), programs.leaves(program(x, y))) == []


@pytest.mark.parametrize("seed", GRADIENTS)
def test_gradients_are_converted_at_each_step(seed):
    program, (x, weight) = programs.gradient_chain(seed), programs.arguments(seed)
    compiled, gradients = torch.compile(program, backend=aotc, options=STRICT), []
    for function in (compiled, program):
        leaf = x.clone().requires_grad_()
        function(leaf).backward(weight)
        gradients.append(leaf.grad)
    assert gradients[1].abs().sum() > 0
    assert wrong(gradients[:1], gradients[1:]) == []


def test_a_bundle(tmp_path):
    options = BuildOptions(cache_folder=tmp_path / "cache", allow_mismatch=True)
    build(f"{programs.__file__}", tmp_path / "bundle", ["cpu"], options)
    model, (x, y) = programs.build_model(), programs.arguments(5)
    found = [torch.from_dlpack(each) for each in load(tmp_path / "bundle")(x, y)]
    labels = names(model, x, y)
    assert [(labels[at], count) for at, count in wrong(found, list(model(x, y)))] == []


@pytest.mark.parametrize("rounds", [True, False])
def test_a_bundle_that_rounds_after_each_operation(rounds, tmp_path):
    options = BuildOptions(
        cache_folder=tmp_path / "cache", allow_mismatch=True, round_intermediates=rounds
    )
    build(f"{programs.__file__}:build_mixed", tmp_path / "bundle", ["cpu"], options)
    facts = json.loads((tmp_path / "bundle" / "provenance.json").read_text())
    assert facts["round_intermediates"] == rounds
    x, y = programs.arguments(7)
    found = [torch.from_dlpack(each) for each in load(tmp_path / "bundle")(x, y)]
    # Without it, some result differs: else the programs would prove nothing.
    assert (wrong(found, list(programs.Mixed()(x, y))) == []) == rounds


PAIR = """
import triton
import triton.language as tl


@triton.jit
def pair(in0, out0, X: tl.constexpr):
    r = tl.arange(0, X)
    tl.store(out0 + r, (tl.load(in0 + r) * 3.0).to(tl.{name}).to(tl.float32) + 1.0)
"""


@pytest.mark.parametrize(("name", "suffix"), [("float16", "f16"), ("bfloat16", "bf16")])
def test_code_of_a_gpu_keeps_a_pair_of_conversions(name, suffix):
    function = load_kernel(PAIR.format(name=name), "pair")
    params = [("in0", "*fp32"), ("out0", "*fp32")]
    cubin = compile_cubin(function, params, {"X": 128}, 90, {}, "pair")
    assert f"cvt.rn.{suffix}.f32" in cubin.texts["ptx"]
    assert f"cvt.f32.{suffix}" in cubin.texts["ptx"]


def test_forms_of_a_gpu(tmp_path):
    """Run as native code here."""
    model, (x, y) = programs.Together(40, 2), programs.arguments(6)
    captured = capture(Spec("rounding", "rounding", (x, y), {}, model))
    graph, _ = rewrite(captured.graph, traits=GPUS[90])
    job = Job()
    outputs = job.add(graph, captured.golden_inputs, 0, GPUS[90])
    results = job.run(tmp_path, "native")
    assert not job.errors, next(iter(job.errors.values()))
    labels, expected = names(model, x, y), map(to_array, model(x, y))
    different = [
        label
        for label, (name, shape), wanted in zip(labels, outputs, expected, strict=True)
        if (results[name].reshape(shape) != wanted).any()
    ]
    assert different == []
