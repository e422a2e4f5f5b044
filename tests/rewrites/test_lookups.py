"""Few writes become lookups; whether writes of varying sizes are few is asked of every call."""

from __future__ import annotations

import pytest

from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.size import Dim, size_of
from aotc.aot.rewrites.lookups import (
    MOST_ON_CPU,
    MOST_ON_GPU,
    look_up_on_cpu,
    look_up_on_gpu,
)

WAYS = ((look_up_on_cpu, MOST_ON_CPU), (look_up_on_gpu, MOST_ON_GPU))


def _graph(places, rows, merge):
    """`rows` writes to `places` places of 4 elements each, of which an index has one."""
    data = make("input", (), {"name": "data", "dtype": "f32", "shape": (places, 4)})
    index = make("input", (), {"name": "at", "dtype": "i64", "shape": (rows, 4)})
    source = make("input", (), {"name": "rows", "dtype": "f32", "shape": (rows, 4)})
    inputs = (data, index, source)
    written = make("scatter_rows", inputs, {"axis": 0, "merge": merge, "distinct": 1})
    return Graph(inputs, (written,), ("data", "at", "rows"), ("out",), {})


@pytest.mark.parametrize(("look_up", "most"), WAYS)
@pytest.mark.parametrize("merge", ["replace", "sum", "max"])
def test_the_example_sizes_of_a_range_decide_nothing(look_up, most, merge):
    for highest, typical in ((1 << 20, 2), (most // 32, 2), (most // 32, most // 32)):
        rows = size_of(Dim("n", 1, highest, typical))
        assert look_up(_graph(8, rows, merge))[1] == (highest == most // 32)


@pytest.mark.parametrize(("look_up", "most"), WAYS)
@pytest.mark.parametrize("merge", ["replace", "sum", "max"])
def test_fixed_sizes_are_counted(look_up, most, merge):
    assert look_up(_graph(most // 32, 8, merge))[1] == 1
    assert look_up(_graph(most // 32 + 1, 8, merge))[1] == 0
