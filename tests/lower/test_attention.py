"""Attention kernels: every form on odd sizes, masks, shared heads and views, against float64."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.storage import widen
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import KernelSpec, lower
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parent))

from attention_cases import CASES, MORE, Case, arrays_of, graph_of
from schedule_runner import Job

pytestmark = pytest.mark.triton
TRAITS = GPUS[90]
TOLERANCES = {"f32": 2e-5, "bf16": 2e-2, "f16": 3e-3}
FORMS = ("plain", "tf32x3", "descriptor", "split")


def launched(job: Job, key: str, graph: Graph, spec: KernelSpec, number: int) -> tuple[str, int]:
    """Add one candidate with buffers of its own; gives the output's name and the launch."""
    candidate = spec.candidates[number]
    group = schedule(graph, TRAITS).groups[0]
    arguments = []
    for place, node in enumerate([*group.reads, *(root.node for root in group.roots)]):
        name = f"{key}/{number}/{place}"
        is_input = node in graph.inputs
        array = numpy.full(node.shape, 0x7FC0 if node.dtype == "bf16" else 0, node_dtype(node))
        if not is_input and array.dtype.kind == "f":
            array[...] = numpy.nan
        job.arrays[name] = arrays_of(graph)[graph.inputs.index(node)] if is_input else array
        job.dtypes[name] = node.dtype
        arguments.append(name)
    output = arguments[-1]
    for row in candidate.scratch:
        arguments.append(f"{key}/{number}/{row.name}")
        dtype = {"*fp32": "f32", "*i32": "i32"}[row.type]
        fill = 0 if row.is_zeroed else numpy.nan
        job.arrays[arguments[-1]] = numpy.full(row.nbytes // 4, fill, DTYPES[dtype].numpy)
        job.dtypes[arguments[-1]] = dtype
    form = spec.form(candidate)
    launch = {
        "source": form.source,
        "function": form.function,
        "grid": candidate.grid,
        "config": dict(candidate.constexprs),
        "args": arguments,
    }
    # Twice: what a launch leaves in zeroed scratch must serve the next one.
    job.launches += [launch, launch] if candidate.scratch else [launch]
    return output, len(job.launches) - 1


def node_dtype(node: Node) -> str:
    return DTYPES[node.dtype].numpy


def spec_of(graph: Graph) -> KernelSpec:
    (spec,) = lower(schedule(graph, TRAITS), TRAITS)
    return spec


def chosen(spec: KernelSpec) -> list[int]:
    """One candidate of each form, and the pick."""
    found = {0}
    for form in FORMS:
        found.update([n for n, row in enumerate(spec.candidates) if row.form == form][-1:])
    return sorted(found)


def ran(cases, folder):
    """(case, candidate) → what one of each form stores, or why it does not run."""
    job, places = Job(), {}
    for name, case in cases.items():
        graph = graph_of(case)
        spec = spec_of(graph)
        for number in chosen(spec):
            places[name, number] = launched(job, name, graph, spec, number)
    buffers = job.run(folder)
    return {
        key: job.errors.get(launch) or buffers[output] for key, (output, launch) in places.items()
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return ran(CASES, tmp_path_factory.mktemp("attention"))


@pytest.mark.parametrize("name", CASES)
def test_every_form_agrees_with_the_reference(name, results):
    check(CASES[name], {number: found for (case, number), found in results.items() if case == name})


@pytest.mark.nightly
@pytest.mark.parametrize("name", MORE)
def test_more_cases(name, tmp_path):
    found = ran({name: MORE[name]}, tmp_path)
    check(MORE[name], {number: each for (_, number), each in found.items()})


def check(case, found_by_number):
    graph = graph_of(case)
    (expected,) = interpret(graph, arrays_of(graph))
    wanted = widen(expected, graph.outputs[0].dtype)
    for number, found in found_by_number.items():
        assert not isinstance(found, str), found
        tolerance = TOLERANCES[case.dtype]
        shown = f"candidate {spec_of(graph).candidates[number]}"
        array = widen(found.reshape(expected.shape), graph.outputs[0].dtype)
        numpy.testing.assert_allclose(array, wanted, rtol=0, atol=tolerance, err_msg=shown)


def test_heads_are_read_and_written_without_copies():
    plan = schedule(graph_of(CASES["packed"]), TRAITS)
    (group,) = plan.groups
    assert group.kind == "attention"
    assert [node.op for node in group.reads] == ["input"]
    spec = spec_of(graph_of(CASES["packed"]))
    assert {candidate.form for candidate in spec.candidates} >= {"plain", "descriptor"}


def test_misaligned_heads_get_no_descriptor():
    case = replace(CASES["packed"], size=36, elements=36)
    spec = spec_of(graph_of(case))
    assert {candidate.form for candidate in spec.candidates} == {"plain"}


FAST = {
    "large heads": (Case(4, 32, 32, 4096, 4096, 128, 128, "bf16"), "overlapped"),
    "few tiles": (Case(2, 16, 4, 1111, 1500, 128, 128, "bf16"), "overlapped"),
    "small heads": (Case(4, 16, 16, 4096, 4096, 64, 64, "bf16"), "plain"),
    "encoder": (Case(8, 12, 12, 128, 128, 64, 64, "bf16"), "plain"),
    "decoding": (Case(1, 32, 8, 1, 65536, 64, 64, "bf16"), "split"),
}


@pytest.mark.parametrize("name", FAST)
def test_the_pick_is_of_the_form_that_was_fastest(name):
    case, form = FAST[name]
    assert spec_of(graph_of(case)).candidates[0].form == form


@pytest.mark.parametrize("capability", GPUS)
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("size", [32, 128, 256])
def test_tiles_fit_into_shared_memory(capability, dtype, size):
    traits = GPUS[capability]
    for queries in (1, 300):
        graph = graph_of(Case(1, 4, 2, queries, 4096, size, size, dtype))
        (spec,) = lower(schedule(graph, traits), traits)
        for candidate in spec.candidates:
            config = dict(candidate.config)
            stages = config.get("num_stages", config.get("STAGES"))
            nbytes = stages * config["BN"] * 2 * size * DTYPES[dtype].itemsize_bytes
            assert nbytes < traits.shared_bytes, str(candidate)
