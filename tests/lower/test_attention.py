"""Attention kernels: every form on odd sizes, masks, shared heads and views, against float64."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.interpret import interpret
from aotc.aot.ir.storage import widen
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import KernelSpec, lower
from aotc.aot.schedule import schedule
from aotc.aot.schedule.traits import GPUS

sys.path.insert(0, str(Path(__file__).parent))

from cases import values
from schedule_runner import Job

pytestmark = pytest.mark.triton
TRAITS = GPUS[90]
TOLERANCES = {"f32": 2e-5, "bf16": 2e-2, "f16": 3e-3}
FORMS = ("plain", "descriptor", "split")


@dataclass(frozen=True)
class Case:
    """One attention: batch, query and key heads, queries, keys, sizes of keys and values."""

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    size: int
    elements: int
    dtype: str = "f32"
    causal: bool = False
    offset: int = 0
    is_safe: bool = False
    mask: tuple[str, tuple[int, ...]] | None = None
    is_packed: bool = False  # q, k and v are slices of one [batch, queries, heads, size] product


CASES = {
    "odd": Case(2, 3, 3, 37, 53, 40, 24),
    "few": Case(2, 6, 2, 3, 77, 40, 40),
    "one": Case(1, 2, 2, 1, 50, 32, 32),
    "causal": Case(1, 2, 1, 70, 70, 32, 32, causal=True),
    "causal-offset": Case(1, 2, 2, 66, 90, 16, 16, causal=True, offset=24),
    "causal-few": Case(1, 4, 2, 5, 40, 32, 32, causal=True, offset=35),
    "causal-none": Case(1, 1, 1, 70, 40, 16, 16, causal=True, offset=-30, is_safe=True),
    "bool": Case(2, 2, 1, 66, 40, 32, 32, is_safe=True, mask=("bool", (2, 1, 1, 40))),
    "bool-not-safe": Case(1, 2, 2, 66, 20, 16, 16, mask=("bool", (1, 2, 66, 20))),
    "bias": Case(2, 2, 2, 66, 33, 32, 32, mask=("f32", (1, 2, 66, 33))),
    "bias-few": Case(1, 4, 1, 2, 33, 32, 32, "bf16", mask=("bf16", (1, 1, 2, 33))),
    "packed": Case(2, 4, 4, 65, 65, 32, 32, "bf16", is_packed=True),
    "packed-causal": Case(1, 4, 2, 72, 72, 64, 64, "f16", causal=True, is_packed=True),
}


def operand(name: str, shape: tuple[int, ...], dtype: str) -> Node:
    return make("input", (), {"name": name, "dtype": dtype, "shape": shape})


def graph_of(case: Case) -> Graph:
    inputs, operands = [], []
    heads = (case.heads, case.key_heads, case.key_heads)
    rows = (case.queries, case.keys, case.keys)
    sizes = (case.size, case.size, case.elements)
    if case.is_packed:
        product = operand("x", (case.batch * case.queries, sum(heads) * case.size), case.dtype)
        inputs.append(product)
        for place, count in enumerate(heads):
            first = sum(heads[:place]) * case.size
            part = build.slice_axis(product, 1, first, first + count * case.size)
            split = build.reshape(part, (case.batch, case.queries, count, case.size))
            operands.append(build.permute(split, (0, 2, 1, 3)))
    else:
        for name, count, length, size in zip("qkv", heads, rows, sizes, strict=True):
            inputs.append(operand(name, (case.batch, count, length, size), case.dtype))
        operands += inputs
    if case.mask:
        inputs.append(operand("mask", case.mask[1], case.mask[0]))
        operands.append(inputs[-1])
    attrs = {"causal": case.causal, "offset": case.offset, "is_safe": case.is_safe}
    result = make("attention", tuple(operands), {"scale": case.size**-0.5, **attrs})
    turned = build.permute(result, (0, 2, 1, 3))
    rows_of = (case.batch * case.queries, case.heads * case.elements)
    names = tuple(str(node.attr("name")) for node in inputs)
    return Graph(tuple(inputs), (build.reshape(turned, rows_of),), names, ("out",), {})


def arrays_of(graph: Graph) -> list[numpy.ndarray]:
    found = [values(node.type, 7 + place) for place, node in enumerate(graph.inputs)]
    mask = graph.inputs[-1]
    if mask.attr("name") == "mask" and mask.dtype == "f32":
        # One row hides all keys by the smallest finite number, one by -inf but for one key.
        found[-1][..., 0, :] = numpy.finfo(numpy.float32).min
        found[-1][..., 1, 1:] = -numpy.inf
    if mask.attr("name") == "mask" and mask.dtype == "bool":
        found[-1][0, ..., 0, :] = False
    return found


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


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    job, places = Job(), {}
    for name, case in CASES.items():
        graph = graph_of(case)
        spec = spec_of(graph)
        for number in chosen(spec):
            places[name, number] = launched(job, name, graph, spec, number)
    buffers = job.run(tmp_path_factory.mktemp("attention"))
    return {
        key: job.errors.get(launch) or buffers[output] for key, (output, launch) in places.items()
    }


@pytest.mark.parametrize("name", CASES)
def test_every_form_agrees_with_the_reference(name, results):
    graph = graph_of(CASES[name])
    (expected,) = interpret(graph, arrays_of(graph))
    wanted = widen(expected, graph.outputs[0].dtype)
    for (case, number), found in results.items():
        if case != name:
            continue
        assert not isinstance(found, str), found
        tolerance = TOLERANCES[CASES[name].dtype]
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
