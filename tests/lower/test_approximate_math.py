"""Approximate functions of 16-bit epilogues: as exact as their results, also far out."""

import sys
from math import erfc, tanh
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir.ops import OPS
from aotc.aot.ir.storage import narrow, widen
from aotc.aot.lower import lower
from aotc.aot.schedule import schedule
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS
from aotc.kernels.templates.registry import APPROXIMATE, called_functions

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import graph_of, op, operand
from schedule_runner import Job

WIDTH = 16
REFERENCES = {
    "gelu": lambda x: 0.5 * x * erfc(-x / 2**0.5),
    "gelu_tanh": lambda x: 0.5 * x * (1 + tanh(0.7978845608028654 * x * (1 + 0.044715 * x * x))),
}
ULPS = {"bf16": 2.0**-7, "f16": 2.0**-10}  # relative distance of neighbours, at most
SMALLEST = 6e-6  # results below are only small: f16 has few digits there


def epilogue(name: str, dtype: str, rows: int):
    """f(x · identity): the product gives x itself."""
    x = operand("x", rows, WIDTH, dtype=dtype)
    return graph_of([op(name, op("matmul", x, operand("identity", WIDTH, WIDTH, dtype=dtype)))])


def alone(name: str, dtype: str, rows: int):
    """f(x) · 1, which is rounded once."""
    return graph_of([op("mul", op(name, operand("x", rows, WIDTH, dtype=dtype)), 1.0)])


@pytest.mark.triton
@pytest.mark.parametrize("dtype", ULPS)
def test_every_16_bit_number_on_a_processor(dtype, tmp_path):
    """Nearly as exact as a value rounded once: far less than the half ulp that the type costs."""
    bits = numpy.arange(1 << 16, dtype=numpy.uint16).reshape(-1, WIDTH)
    stored = bits if dtype == "bf16" else bits.view(numpy.float16)
    job = Job()
    ((name, _),) = job.add(alone("gelu", dtype, len(bits)), [stored], "plain", CPU)
    results = job.run(tmp_path, "native")
    assert not job.errors
    with numpy.errstate(invalid="ignore"):  # of signalling NaN
        given = widen(stored, dtype).ravel().astype(float)
    found = widen(results[name], dtype).ravel().astype(float)
    is_number = numpy.isfinite(given)
    assert numpy.isnan(found[numpy.isnan(given)]).all()
    wanted = numpy.array([REFERENCES["gelu"](x) for x in given[is_number]])
    half = ULPS[dtype] / 2
    error = numpy.abs(found[is_number] - wanted)
    assert (error <= half * 1.02 * numpy.abs(wanted) + 1e-7).all()


@pytest.mark.triton
@pytest.mark.parametrize("dtype", ULPS)
def test_as_exact_as_the_result(dtype, tmp_path):
    points = numpy.concatenate([numpy.linspace(-12, 12, 1020), [300.0, -300.0, 60000.0, 0.0]])
    x = narrow(points.astype(numpy.float32).reshape(-1, WIDTH), dtype)
    identity = narrow(numpy.eye(WIDTH, dtype=numpy.float32), dtype)
    job, names = Job(), {}
    for name in REFERENCES:
        graph = epilogue(name, dtype, len(x))
        ((names[name], _),) = job.add(graph, [x, identity], "plain", GPUS[90])
    results = job.run(tmp_path)
    assert not job.errors
    for name, reference in REFERENCES.items():
        wanted = numpy.array([reference(float(each)) for each in widen(x, dtype).ravel()])
        found = widen(results[names[name]], dtype).ravel().astype(float)
        error = numpy.abs(found - wanted)
        assert (error <= ULPS[dtype] * numpy.abs(wanted) + SMALLEST).all(), name


def test_only_16_bit_results_are_approximate():
    def text(dtype, traits):
        (spec,) = lower(schedule(epilogue("gelu", dtype, 64), traits), traits)
        return "".join(form.source for form in spec.forms)

    assert "def gelu_approximate" in text("bf16", GPUS[90])
    assert "gelu_approximate" not in text("f32", GPUS[90]) + text("bf16", CPU)
    assert "def gelu_by_short_tail" in text("bf16", CPU)
    assert "def gelu_by_tail" in text("f32", CPU)
    assert "_tail" not in text("f64", CPU) + text("bf16", GPUS[90])


def test_every_form_has_its_function():
    called = [row.approximate.partition("(")[0] for row in OPS.values()]
    assert set(called_functions(APPROXIMATE)) <= set(called)
