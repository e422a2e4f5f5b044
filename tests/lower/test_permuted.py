"""Tensors whose dims are put in another order on processors: blocks are transposed in registers
wherever the rows of a kernel lie."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.reference import interpret
from aotc.aot.targets.cpu.target import CPU

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import graph_of, operand
from schedule_runner import Job

pytestmark = [pytest.mark.triton, pytest.mark.slow]
SHAPES = [(33, 7, 5, 20), (16, 16, 3, 3), (17, 1, 40, 2), (3, 2, 5, 4, 19)]


def test_every_order_of_dims(tmp_path):
    generator, job, cases = numpy.random.default_rng(7), Job(), []
    for shape in SHAPES:
        for dims in itertools.islice(itertools.permutations(range(len(shape))), 0, None, 2):
            x = operand("x", *shape)
            graph = graph_of([b.unary("neg", b.permute(x, dims))])
            given = [generator.standard_normal(shape).astype("float32")]
            (expected,) = interpret(graph, given)
            cases.append((shape, dims, expected, job.add(graph, given, 0, CPU)))
    buffers = job.run(tmp_path, "native", 2)
    assert not job.errors
    for shape, dims, expected, ((name, found),) in cases:
        assert numpy.array_equal(buffers[name].reshape(found), expected), (shape, dims)
