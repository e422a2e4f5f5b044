"""Grids that no GPU starts as they are: folded, every kernel gives the reference's numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.narrow import at_sizes
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.size import Dim, Extent, size_of
from aotc.aot.ir.storage import widen
from aotc.aot.lower import grids, lower
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.compile import compile_kernel
from aotc.aot.targets.cuda.machines import GPUS
from aotc.runtime.bundle.plan_rules import GRID_LIMITS

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import attention_attrs, graph_of, op, operand, values, weight
from schedule_runner import Job

pytestmark = pytest.mark.triton
TRAITS = GPUS[90]
TOLERANCES = {"f32": 5e-5, "bf16": 2e-2}
LINE = 2  # programs of a line in the cases here, so that nearly all grids are folded
BATCH = 5
SIZES = {"n": 7, "few": 5}
DIMS = {"n": Dim("n", 1, 1 << 20, 7), "few": Dim("few", 1, 9, 4)}


def product(count: Extent, rows: Extent, columns: int, depth: int, dtype: str = "f32") -> Node:
    left = operand("x", count, rows, depth, dtype=dtype)
    return op("matmul", left, operand("y", count, depth, columns, dtype=dtype)) * 0.5


def few_rows() -> Node:
    right = b.permute(weight("w", BATCH, 24, 40, dtype="bf16"), (0, 2, 1))
    return op("matmul", operand("x", BATCH, size_of(DIMS["few"]), 40, dtype="bf16"), right)


def convolution(channels: int, filters: int, groups: int) -> Node:
    attrs = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": groups}
    return make("convolution", (operand("x", 2, channels * groups, 9, 7),
                                weight("w", filters, channels, 3, 3)), attrs)  # fmt: skip


def attention(heads: int) -> Node:
    shapes = {
        "q": (BATCH, heads, 1, 16),
        "k": (BATCH, heads, 300, 16),
        "v": (BATCH, heads, 300, 16),
    }
    attrs = attention_attrs(0.25)
    return op("attention", *(operand(name, *shape) for name, shape in shapes.items()), **attrs)


# The graphs, and forms that are folded in each (without the letters of axes with a tail).
CASES: dict[str, tuple[Callable[[], Node], set[str]]] = {
    "product": (lambda: product(BATCH, 33, 20, 40), {"plain"}),
    "long product": (lambda: product(3, 20, 40, 600, "bf16"), {"split", "plain"}),
    "row": (lambda: product(BATCH, 1, 90, 100), {"gemv"}),
    "dynamic batch": (lambda: product(size_of(DIMS["n"]), 3, 20, 40), {"plain"}),
    "dynamic rows": (few_rows, {"gemv_rows"}),
    "convolution": (lambda: convolution(16, 136, 1), {"windows"}),
    "groups": (lambda: convolution(32, 96, 3), {"windows"}),
    "attention": (lambda: attention(2), {"split"}),
}


def rewritten(build: Callable[[], Node]) -> Graph:
    return rewrite(graph_of([build()]), traits=TRAITS)[0]


def folded_forms(graph: Graph) -> dict[str, str]:
    """A folded form of each kind, by its name without the letters of axes with a tail."""
    found: dict[str, str] = {}
    for spec in lower(schedule(graph, TRAITS), TRAITS):
        for row in spec.candidates:
            if f"{grids.WHICH} = " in spec.form(row).source:
                *first, last = row.form.split("_")
                plain = "_".join(first) if first and set(last) <= set("mnk") else row.form
                found.setdefault(plain, row.form)
    return found


def inputs_of(graph: Graph) -> list[numpy.ndarray]:
    nodes = at_sizes(graph, SIZES).inputs
    return [values(node.type, 100 + number) for number, node in enumerate(nodes)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """By case and folded form the output, all run in one process."""
    job, names, launches = Job(sizes=SIZES), {}, {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grids, "LINE", LINE)
        for name, (build, _) in CASES.items():
            graph = rewritten(build)
            for plain, form in folded_forms(graph).items():
                first = len(job.launches)
                ((names[name, plain], _),) = job.add(graph, inputs_of(graph), form, TRAITS)
                launches[name, plain] = range(first, len(job.launches))
        buffers = job.run(tmp_path_factory.mktemp("grids"))
    assert any(max(launch["grid"][2:]) > 1 for launch in job.launches)
    for name, array in buffers.items():
        assert not (name.startswith("zeroed") and array.any()), "a kernel leaves its counters set"
    return {key: job.error(launches[key]) or buffers[buffer] for key, buffer in names.items()}


@pytest.mark.parametrize("name", CASES)
def test_folded_kernels_agree_with_the_reference(name, results):
    build, forms = CASES[name]
    graph = at_sizes(graph_of([build()]), SIZES)
    (node,) = graph.outputs
    (wanted,) = (widen(each, node.dtype) for each in interpret(graph, inputs_of(graph)))
    found = {form: array for (of, form), array in results.items() if of == name}
    assert forms <= found.keys()
    for form, array in found.items():
        assert not isinstance(array, str), f"{form}: {array}"
        array = widen(array.reshape(node.shape), node.dtype)
        atol = TOLERANCES[node.dtype] * numpy.abs(wanted).max()
        numpy.testing.assert_allclose(array, wanted, rtol=0, atol=atol, err_msg=form)


LARGE: dict[str, Callable[[], Node]] = {
    "product": lambda: product(70_000, 3, 20, 40),
    "row": lambda: product(100_000, 1, 90, 10),
    "heads": lambda: op("attention", *(operand(n, 70_000, 2, 1, 16) for n in "qkv"), scale=0.25,
                        causal=False, offset=0, window=0, softcap=0.0, has_sinks=False,
                        is_safe=False),
    "dynamic": lambda: product(size_of(Dim("n", 1, 1 << 20, 70_000)), 3, 20, 40),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_large_grids_are_folded(name):
    """`attention 20261154003`; all that a device starts, and all programs that there are."""
    for spec in lower(schedule(rewritten(LARGE[name]), TRAITS), TRAITS):
        for row in spec.candidates:
            grid = [grids.typical(extent) for extent in row.grid]
            assert all(each <= most for each, most in zip(grid, GRID_LIMITS, strict=True))
        first = spec.candidates[0]
        form, params = spec.form(first), [(each.name, each.type) for each in spec.params_of(first)]
        assert compile_kernel(form.source, form.function, params, first.config, "sm_90").code


def test_grids_that_fit_stay_as_they_are():
    for spec in lower(schedule(rewritten(lambda: product(65_535, 3, 20, 40)), TRAITS), TRAITS):
        assert all(f"{grids.WHICH} = " not in form.source for form in spec.forms)
