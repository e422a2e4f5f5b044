"""Slices of dims that vary: the elements that Python names, at every size of their range."""

from __future__ import annotations

import itertools

import numpy
import pytest

from aotc.aot.ir.narrow import at_sizes
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.size import fixed, substitute

torch = pytest.importorskip("torch")

from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
from aotc.aot.capture.spec import spec_of  # noqa: E402

pytestmark = pytest.mark.torch
STARTS = (-7, -4, 3)
ENDS = ((None, 1), (None, 3), (9, 1), (9, 2))  # and steps
LARGEST = 14


@pytest.mark.parametrize(("size", "start"), itertools.product((5, 11), STARTS))
def test_slices_are_those_of_python(size, start):
    parts = [slice(start, *ends) for ends in ENDS]

    def model(x):
        return tuple(x[:, part] * 2.0 for part in parts)

    shapes = ({1: torch.export.Dim.AUTO},)
    captured = capture(spec_of(model, (torch.zeros(2, size),), dynamic_shapes=shapes))
    (dim,) = captured.dims
    lengths = [n for n in range(dim.low, min(dim.high, LARGEST) + 1) if holds(captured, dim, n)]
    assert size in lengths
    for length in lengths:
        data = numpy.arange(2.0 * length, dtype="f4").reshape(2, length)
        found = interpret(at_sizes(captured.graph, {dim.name: length}), [data])
        for part, result in zip(parts, found, strict=True):
            numpy.testing.assert_array_equal(result, data[:, part] * 2.0, f"{part} of {length}")


def holds(captured, dim, length):
    """Whether a size meets the conditions under which torch exported the program."""
    for guard in captured.guards:
        value = fixed(substitute(guard.size, {dim: length}))
        if value < (guard.low or value) or value > (guard.high or value):
            return False
    return True
