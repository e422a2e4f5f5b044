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


@pytest.mark.parametrize(("size", "start"), list(itertools.product((5, 11), STARTS)))
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


@pytest.mark.parametrize(
    ("part", "low"), [(slice(-2, None), 2), (slice(-1, None), 1), (slice(1, None), 1)], ids=str
)
def test_a_size_of_one_is_taken_where_shapes_hold_there(part, low):
    """torch says `x[-2:]` has two elements, which one element has not."""
    shapes = ({1: torch.export.Dim.AUTO},)
    example = (torch.zeros(2, 5),)
    captured = capture(spec_of(lambda x: x[:, part] * 2.0, example, dynamic_shapes=shapes))
    assert [dim.low for dim in captured.dims] == [low]


def test_sizes_that_may_not_be_one_together():
    """n + m - 3 rows from the third on: none of one size alone, fewer than none of both."""

    def model(x, y):
        return torch.cat([x, y])[3:]

    shapes = ({0: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO})
    captured = capture(spec_of(model, (torch.zeros(3), torch.zeros(5)), dynamic_shapes=shapes))
    for one, other in itertools.product(range(1, 4), repeat=2):
        sizes = dict(zip(captured.dims, (one, other), strict=True))
        if any(size < dim.low for dim, size in sizes.items()):
            continue
        if not all(fits(guard, sizes) for guard in captured.guards):
            continue
        named = {dim.name: size for dim, size in sizes.items()}
        data = [numpy.arange(1.0 * size, dtype="f4") for size in (one, other)]
        (found,) = interpret(at_sizes(captured.graph, named), data)
        numpy.testing.assert_array_equal(found, numpy.concatenate(data)[3:])


def fits(guard, sizes):
    value = fixed(substitute(guard.size, sizes))
    return (guard.low is None or value >= guard.low) and (guard.high is None or value <= guard.high)
