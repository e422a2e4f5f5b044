"""Schedules for graphs drawn at random give the reference's numbers, run as native code, those of
GPUs in any of their kernels' configs."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir.reference import interpret
from aotc.aot.ir.storage import widen
from aotc.aot.schedule import schedule
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import values
from drawn_graphs import drawn_graph
from schedule_runner import Job

pytestmark = [pytest.mark.triton, pytest.mark.slow]
COUNT = 20  # graphs of one job
TOLERANCES = {"f32": 2e-4, "bf16": 2e-2}


TARGETS = {"sm_90": GPUS[90], "sm_80": GPUS[80], "cpu": CPU}


@pytest.mark.parametrize("traits", TARGETS.values(), ids=TARGETS)
def test_kernels_have_an_order(traits):
    for seed in range(300):
        schedule(drawn_graph(seed), traits)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(100 * k, marks=pytest.mark.nightly) for k in range(1, 25))]
)
def test_kernels_agree_with_the_reference(first, target, tmp_path):
    job, rows, rng = Job(), [], random.Random(first)
    for seed in range(first, first + COUNT):
        graph = drawn_graph(seed)
        inputs = [values(node.type, 7 * number + 1) for number, node in enumerate(graph.inputs)]
        start = len(job.launches)
        outputs = job.add(graph, inputs, lambda spec: rng.choice(spec.candidates), TARGETS[target])
        rows.append((seed, graph, inputs, outputs, range(start, len(job.launches))))
    buffers = job.run(tmp_path, "native", 4)
    for seed, graph, inputs, outputs, launches in rows:
        assert not job.error(launches), f"seed {seed}: {job.error(launches)}"
        expected = interpret(graph, inputs)
        for node, (name, shape), array in zip(graph.outputs, outputs, expected, strict=True):
            found = widen(buffers[name].reshape(shape), node.dtype)
            wanted = widen(array, node.dtype)
            atol = TOLERANCES[node.dtype] * max(1.0, numpy.abs(wanted).max(initial=0.0))
            numpy.testing.assert_allclose(
                found, wanted, rtol=0, atol=atol, err_msg=f"seed {seed}: {node!r}"
            )
