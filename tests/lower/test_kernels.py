"""Generated kernels give the reference's numbers: every case, every candidate, in one process."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir.reference import interpret
from aotc.aot.ir.storage import widen

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import graph_of, values
from cases import CASES
from schedule_runner import Job

pytestmark = [pytest.mark.triton, pytest.mark.slow]
CANDIDATES = {"interpreter": 3, "native": 1}  # every config of a kernel costs a compilation
TOLERANCES = {"f32": 3e-5, "f64": 1e-12, "bf16": 2e-2, "f16": 3e-3}


@pytest.fixture(scope="module", params=CANDIDATES)
def results(request, tmp_path_factory):
    """For each case and candidate the outputs of its kernels, all run in one process."""
    job, names, launches = Job(), {}, {}
    for name, build in CASES.items():
        graph = graph_of(build())
        inputs = inputs_of(graph)
        for candidate in range(CANDIDATES[request.param]):
            first = len(job.launches)
            names[name, candidate] = job.add(graph, inputs, candidate)
            launches[name, candidate] = range(first, len(job.launches))
    buffers = job.run(tmp_path_factory.mktemp("kernels"), request.param)
    return {
        key: job.error(launches[key]) or [buffers[name].reshape(shape) for name, shape in outputs]
        for key, outputs in names.items()
    }


def inputs_of(graph):
    return [values(node.type, 100 + number) for number, node in enumerate(graph.inputs)]


@pytest.mark.parametrize("name", CASES)
def test_kernels_agree_with_the_reference(name, results):
    graph = graph_of(CASES[name]())
    expected = interpret(graph, inputs_of(graph))
    for candidate in (at for case, at in results if case == name):
        outputs = results[name, candidate]
        if isinstance(outputs, str):
            pytest.fail(outputs)
        for node, found, wanted in zip(graph.outputs, outputs, expected, strict=True):
            found, wanted = widen(found, node.dtype), widen(wanted, node.dtype)
            tolerance = TOLERANCES.get(node.dtype, 0.0)
            scale = numpy.abs(numpy.where(numpy.isfinite(wanted), wanted, 0)).max(initial=1e-30)
            numpy.testing.assert_allclose(
                found, wanted, rtol=0, atol=tolerance * scale, err_msg=f"candidate {candidate}"
            )
