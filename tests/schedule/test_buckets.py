"""Ranges of sizes: together they hold every call, and the example has kernels of its own."""

from __future__ import annotations

import itertools

import pytest

from aotc.aot.ir.size import Dim
from aotc.aot.schedule.buckets import buckets

CASES = [
    (),
    (Dim("n", 1, 1, 1),),
    (Dim("n", 1, 40, 20),),
    (Dim("batch", 1, 9, 4), Dim("seq", 3, 140, 128)),
    (Dim("batch", 2, 5, 4), Dim("height", 7, 20, 16), Dim("width", 7, 20, 12)),
]


@pytest.mark.parametrize("dims", CASES)
def test_every_call_has_a_range(dims):
    found = buckets(dims)
    for sizes in itertools.product(*(range(dim.low, dim.high + 1) for dim in dims)):
        holding = [
            row
            for row in found
            if all(dim.low <= size <= dim.high for dim, size in zip(row, sizes, strict=True))
        ]
        assert holding
    assert all(dim.low <= dim.typical <= dim.high for row in found for dim in row)


@pytest.mark.parametrize("dims", CASES[2:])
def test_the_example_comes_first(dims):
    assert [(dim.low, dim.high) for dim in buckets(dims)[0]] == [
        (dim.typical, dim.typical) for dim in dims
    ]
