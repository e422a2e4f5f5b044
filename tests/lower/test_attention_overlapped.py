"""The Gluon form of attention, run with numpy and threads, and when it is offered."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir.reference import interpret
from aotc.aot.lower import lower
from aotc.aot.lower.attention import candidates as attention_space
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.compile import compile_kernel
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parent))

import gluon_runner
from attention_cases import CASES, Case, arrays_of, graph_of

TRAITS = replace(GPUS[90], multiprocessors=3)  # so that each program has several tiles
SMALL = {
    "full": Case(1, 2, 1, 300, 280, 64, 64, "f16"),
    "causal": Case(1, 3, 1, 300, 300, 64, 64, "f16", causal=True),
    "causal-offset": Case(1, 2, 2, 140, 400, 64, 64, "f16", causal=True, offset=100),
    "causal-none": Case(1, 2, 2, 300, 200, 64, 64, "f16", True, -150, is_safe=True),
    "window": Case(1, 3, 1, 420, 420, 64, 64, "f16", causal=True, window=150),
    "window-narrow": Case(1, 2, 2, 300, 300, 64, 64, "f16", causal=True, offset=5, window=11),
    "window-none": Case(1, 2, 2, 500, 200, 64, 64, "f16", True, 20, 90, is_safe=True),
    "packed": Case(2, 4, 2, 200, 200, 64, 64, "f16", causal=True, is_packed=True),
    "padded": Case(1, 2, 2, 130, 150, 48, 40, "f16"),
    "one-block": Case(1, 3, 3, 129, 40, 64, 64, "f16"),
    "huge": Case(1, 2, 2, 130, 150, 64, 64, "f16", times=2.0**40),
    "wide": Case(1, 2, 2, 140, 150, 128, 128, "f16"),
}


def spec_of(case):
    (spec,) = lower(schedule(graph_of(case), TRAITS), TRAITS)
    return spec


def offered(case):
    return [row for row in spec_of(case).candidates if row.form == "overlapped"]


@pytest.fixture
def for_any_size(monkeypatch):
    monkeypatch.setattr(attention_space, "LARGE_ROWS", 1)
    monkeypatch.setattr(attention_space, "CANDIDATES", 100)


@pytest.mark.parametrize("name", SMALL)
def test_numbers(name, for_any_size):
    graph, spec = graph_of(SMALL[name]), spec_of(SMALL[name])
    (group,) = schedule(graph, TRAITS).groups
    arrays = arrays_of(graph)
    (expected,) = interpret(graph, arrays)
    inputs = [numpy.ascontiguousarray(arrays[graph.inputs.index(node)]) for node in group.reads]
    candidates = [row for row in spec.candidates if row.form == "overlapped"]
    assert candidates
    for candidate in candidates:
        output = numpy.full(group.roots[0].node.shape, numpy.nan, expected.dtype)
        form, config = spec.form(candidate), dict(candidate.constexprs)
        gluon_runner.run(form.source, form.function, candidate.grid, config, [*inputs, output])
        numpy.testing.assert_allclose(
            output.reshape(expected.shape).astype("float32"), expected.astype("float32"),
            rtol=0, atol=3e-3, err_msg=str(candidate),
        )  # fmt: skip


def test_a_barrier_too_few_is_found(for_any_size, monkeypatch):
    monkeypatch.setattr(gluon_runner, "PATIENCE_S", 1.0)
    spec = spec_of(SMALL["one-block"])
    candidate = next(row for row in spec.candidates if row.form == "overlapped")
    form = spec.form(candidate)
    source = form.source.replace("mbarrier.arrive(q_free.index(half))", "pass")
    assert source != form.source
    arrays = [numpy.zeros(1 << 16, "float16") for _ in range(4)]
    with pytest.raises(TimeoutError):
        gluon_runner.run(source, form.function, (1, 1, 1), dict(candidate.constexprs), arrays)


@pytest.mark.parametrize(
    "case",
    [
        CASES["odd"],  # f32, and not square
        replace(SMALL["full"], mask=("bool", (1, 1, 1, 280))),
        replace(SMALL["full"], size=256, elements=256),
        replace(SMALL["packed"], size=36, elements=36),  # rows that no descriptor can address
    ],
)
def test_what_it_cannot_do_is_not_offered(case, for_any_size):
    assert not offered(case)


@pytest.mark.triton
def test_it_compiles_without_spills():
    spec = spec_of(Case(1, 2, 1, 1024, 1024, 128, 128, "bf16", causal=True))
    candidate = next(row for row in spec.candidates if row.form == "overlapped")
    form = spec.form(candidate)
    params = [(param.name, param.type) for param in spec.params_of(candidate)]
    binary = compile_kernel(form.source, form.function, params, candidate.config, "sm_90")
    assert (binary.spill_bytes, binary.threads) == (0, 384)


def test_small_problems_are_spared_its_compilation():
    assert not offered(SMALL["full"])
