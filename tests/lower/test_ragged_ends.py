"""Elementwise kernels of a GPU whose number of elements ends within a vector."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir.reference import interpret
from aotc.aot.lower import lower
from aotc.aot.rewrites.memory import place_ops
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import graph_of, op, operand
from schedule_runner import Job

pytestmark = pytest.mark.triton
TRAITS = GPUS[90]
SIZES = (2049, 4099, 5000, 30_001, 100_003)


def total(size, dtype="f32"):
    x, y = (operand(name, size, dtype=dtype) for name in "xy")
    return graph_of([op("mul", op("add", x, y), 0.5)])


def text(graph):
    (spec,) = lower(schedule(graph, TRAITS), TRAITS)
    return spec.form(spec.candidates[0]).source


@pytest.mark.parametrize("dtype", ["f32", "f16", "i64"])
def test_programs_but_the_last_load_without_a_mask(dtype):
    for size in SIZES:
        whole, _, rest = text(total(size, dtype)).partition("else:")
        assert bool(rest) == (size % 8 != 0)
        assert ("mask=" in whole) == (not rest)


def test_short_ones_have_one_text():
    assert "else:" not in text(total(2047))


def test_elements_are_those_of_the_reference(tmp_path):
    job, found = Job(), []
    for size in SIZES:
        graph = total(size)
        given = [numpy.random.default_rng(size).standard_normal(size, "float32") for _ in "xy"]
        found.append((job.add(place_ops(graph)[0], given, 0, TRAITS), interpret(graph, given)))
    buffers = job.run(tmp_path, "native", 4)
    assert not job.errors
    for ((stored, shape),), (expected,) in found:
        numpy.testing.assert_array_equal(buffers[stored].reshape(shape), expected)
