"""The Gluon form of attention, run with numpy and threads, and when it is offered."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir.narrow import at_sizes
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.size import KERNEL_PREFIX, Dim, size_of
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
    "cap": Case(1, 3, 1, 300, 300, 64, 64, "f16", causal=True, softcap=0.5, times=3.0),
    "cap-huge": Case(1, 2, 2, 130, 150, 64, 64, "f16", softcap=20.0, times=2.0**40),
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


BATCH, ROWS, KEYS = Dim("batch", 1, 3, 2), Dim("rows", 1, 2000, 700), Dim("keys", 1, 999, 600)
VARYING = {
    "full": (
        Case(BATCH, 2, 1, ROWS, KEYS, 64, 64, "f16"),
        ((1, 130, 128), (3, 1, 1), (2, 129, 300)),
    ),
    "causal": (
        Case(BATCH, 3, 1, ROWS, ROWS, 64, 64, "f16", causal=True),
        ((1, 300, 1), (2, 128, 1), (1, 5, 1)),
    ),
    "window": (
        Case(BATCH, 2, 2, ROWS, ROWS, 64, 64, "f16", causal=True, window=90),
        ((1, 300, 1), (2, 256, 1), (1, 1, 1)),
    ),
    "packed": (
        Case(BATCH, 4, 2, ROWS, ROWS, 64, 64, "f16", causal=True, is_packed=True),
        ((2, 200, 1), (3, 64, 1), (1, 131, 1)),
    ),
    "of-one-length": (
        Case(2, 2, 2, KEYS, 256, 64, 64, "f16"),
        ((1, 1, 140), (1, 1, 128)),
    ),
    "of-many-keys": (
        Case(1, 2, 2, 100, Dim("keys", 128, 999, 600), 64, 64, "f16"),
        ((1, 1, 128), (1, 1, 200)),
    ),
}  # fmt: skip


def varying(case: Case) -> Case:
    """The case with sizes in place of dims."""
    names = ("batch", "queries", "keys")
    sizes = {name: getattr(case, name) for name in names}
    return replace(
        case, **{name: size_of(size) for name, size in sizes.items() if isinstance(size, Dim)}
    )


@pytest.mark.parametrize("name", VARYING)
def test_numbers_where_sizes_vary(name, for_any_size):
    case, calls = VARYING[name]
    graph, spec = graph_of(varying(case)), spec_of(varying(case))
    (group,) = schedule(graph, TRAITS).groups
    candidates = [row for row in spec.candidates if row.form == "overlapped"]
    assert candidates
    for sizes in calls:
        known = dict(zip(("batch", "rows", "keys"), sizes, strict=True))
        here = at_sizes(graph, known)
        arrays = arrays_of(here)
        (expected,) = interpret(here, arrays)
        inputs = [arrays[graph.inputs.index(node)] for node in group.reads]
        numbers = {KERNEL_PREFIX + dim.name: known[dim.name] for dim in spec.sizes}
        for candidate in candidates:
            output = numpy.full(expected.size, numpy.nan, expected.dtype)
            form, config = spec.form(candidate), numbers | dict(candidate.constexprs)
            gluon_runner.run(form.source, form.function, (3, 1, 1), config, [*inputs, output])
            numpy.testing.assert_allclose(
                output.reshape(expected.shape).astype("float32"), expected.astype("float32"),
                rtol=0, atol=3e-3, err_msg=f"{candidate} {known}",
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
@pytest.mark.parametrize(
    "case",
    [
        Case(1, 2, 1, 1024, 1024, 128, 128, "bf16", causal=True),
        varying(Case(BATCH, 2, 1, ROWS, ROWS, 128, 128, "bf16", causal=True)),
        varying(Case(BATCH, 2, 1, ROWS, KEYS, 64, 64, "bf16")),
        Case(1, 2, 1, 1024, 1024, 128, 128, "bf16", causal=True, softcap=50.0),
    ],
)
def test_it_compiles_without_spills(case):
    spec = spec_of(case)
    candidate = next(row for row in spec.candidates if row.form == "overlapped")
    form = spec.form(candidate)
    params = [(param.name, param.type) for param in spec.params_of(candidate)]
    binary = compile_kernel(form.source, form.function, params, candidate.config, "sm_90")
    assert (binary.spill_bytes, binary.threads) == (0, 384)


def test_small_problems_are_spared_its_compilation():
    assert not offered(SMALL["full"])
