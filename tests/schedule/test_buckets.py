"""Ranges of sizes: together they hold every call, and the example has kernels of its own."""

from __future__ import annotations

import itertools

import pytest

from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.size import Dim, size_of
from aotc.aot.schedule.buckets import CUTS, FINE_CUTS, FINE_CUTS_OF_ONE, buckets, ranges

DIMS = [
    (),
    (Dim("n", 1, 1, 1),),
    (Dim("n", 1, 40, 20),),
    (Dim("batch", 1, 9, 4), Dim("seq", 3, 140, 128)),
    (Dim("batch", 2, 5, 4), Dim("height", 7, 20, 16), Dim("width", 7, 20, 12)),
    (Dim("n", 5, 3000, 7),),
]
CASES = [(dims, cuts) for dims in DIMS for cuts in (CUTS, FINE_CUTS, FINE_CUTS_OF_ONE)]


def writing_prompts(batch: Dim, tokens: Dim, length: Dim) -> Graph:
    """A product of all tokens, of which as many are written to a cache."""
    rows, long = size_of(batch) * size_of(tokens), size_of(batch) * size_of(length)
    x = make("input", (), {"name": "x", "dtype": "f32", "shape": (rows, 256)})
    weight = make("input", (), {"name": "w", "dtype": "f32", "shape": (256, 64)})
    cache = make("input", (), {"name": "cache", "dtype": "f32", "shape": (long, 1)})
    return Graph((x, weight, cache), (make("matmul", (x, weight)), make("neg", (cache,))),
                 ("x", "w", "cache"), ("y", "kept"), {})  # fmt: skip


@pytest.mark.parametrize(("dims", "cuts"), CASES)
def test_every_call_has_a_range(dims, cuts):
    found = ranges(dims, dims[::-1], cuts)
    ends = [sorted({dim.low, dim.high, *range(dim.low, dim.high, 1 + dim.high // 99)})
            for dim in dims]  # fmt: skip
    for sizes in itertools.product(*ends):
        holding = [
            row
            for row in found
            if all(dim.low <= size <= dim.high for dim, size in zip(row, sizes, strict=True))
        ]
        assert holding
    assert all(dim.low <= dim.typical <= dim.high for row in found for dim in row)


@pytest.mark.parametrize(("dims", "cuts"), CASES[6:])
def test_the_example_comes_first(dims, cuts):
    assert [(dim.low, dim.high) for dim in ranges(dims, dims, cuts)[0]] == [
        (dim.typical, dim.typical) for dim in dims
    ]


def test_the_dims_are_cut_that_the_work_grows_with():
    batch, tokens, length = Dim("b", 1, 64, 2), Dim("t", 1, 2048, 8), Dim("l", 2, 4096, 512)
    found = buckets(writing_prompts(batch, tokens, length), is_fine=True, has_example=False)
    by_name = [{dim.name: (dim.low, dim.high) for dim in row} for row in found]
    assert {row["l"] for row in by_name} == {(2, 4096)}
    assert {row["t"][0] for row in by_name} == {1, *FINE_CUTS[0]}
    assert {row["b"][0] for row in by_name} == {1, *FINE_CUTS[1]}


def test_typical_sizes_of_a_gpu_s_ranges_fill_tiles():
    (_, *found) = ranges((Dim("n", 1, 8192, 7),), (Dim("n", 1, 8192, 7),), FINE_CUTS_OF_ONE)
    assert [row[0].typical for row in found] == [2048, 512, 128, 32, 7, 2, 1]


def test_a_dim_by_itself_is_cut_more_often():
    batch, fixed = Dim("b", 1, 64, 2), Dim("t", 1, 1, 1)
    found = buckets(writing_prompts(batch, fixed, Dim("l", 2, 4096, 512)), is_fine=True)
    assert {row[0].low for row in found} == {1, 2, 5, 17}
