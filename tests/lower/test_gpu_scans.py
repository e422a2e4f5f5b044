"""Scans of dynamic length as GPUs have them, run as native code of the processor."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.narrow import at_sizes
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.size import Dim, size_of
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.rewrites.scan import BLOCK, WALKED
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parent))

from schedule_runner import Job

pytestmark = pytest.mark.triton
TRAITS = GPUS[90]
KINDS = ("sum", "prod", "max", "min_place", "log_sum")
LENGTHS = (1, 31, BLOCK, BLOCK + 7, 2 * BLOCK + 1, 10 * BLOCK + 3)


def graph_of(longest):
    size = size_of(Dim("n", 1, longest, 700))
    x = make("input", (), {"name": "x", "dtype": "f32", "shape": (3, size)})
    outputs = [
        make("scan", (x,), {"kind": kind, "axis": 1, "is_reversed": is_reversed})
        for kind in KINDS
        for is_reversed in (False, True)
    ]
    names = tuple(f"out{number}" for number in range(len(outputs)))
    return Graph((x,), tuple(outputs), ("x",), names, {})


@pytest.mark.parametrize(("longest", "launches"), [(BLOCK, 1), (WALKED, 1), (1 << 16, 4)])
def test_launches_of_a_running_sum(longest, launches):
    whole = graph_of(longest)
    graph = Graph(whole.inputs, whole.outputs[:1], whole.input_names, ("out0",), {})
    assert len(schedule(rewrite(graph, TRAITS)[0], TRAITS).groups) == launches


@pytest.mark.parametrize("longest", [WALKED, 1 << 16])
def test_numbers(longest, tmp_path):
    graph = graph_of(longest)
    made, runs = rewrite(graph, TRAITS)[0], []
    for length in (each for each in LENGTHS if each <= longest):
        x = numpy.random.default_rng(length).standard_normal((3, length)).round(1)
        x = 1 + x.astype("float32") / 100
        job = Job(sizes={"n": length})
        names = job.add(made, [x], 0, TRAITS)
        runs.append((job, names, interpret(at_sizes(graph, {"n": length}), [x])))
    for job, names, expected in runs:
        buffers = job.run(tmp_path, "native", 2)
        assert not job.errors
        for (name, _), wanted in zip(names, expected, strict=True):
            found = buffers[name].reshape(wanted.shape)
            numpy.testing.assert_allclose(found, wanted, rtol=2e-5, err_msg=str(wanted.shape))
