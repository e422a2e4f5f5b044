"""Texts of graphs with sizes mean the very same nodes."""

import random

import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.size import Dim, largest, size_of, smallest
from aotc.aot.ir.text import GraphTextError, parse_extent, parse_graph, parse_type, print_graph

DIMS = (Dim("n", 1, 64, 8), Dim("rows", 2, 100, 7), Dim("s0", 1, 1 << 20, 128))


def drawn(chosen, depth=3):
    """A size, drawn."""
    if depth == 0 or chosen.random() < 0.2:
        return chosen.choice([*map(size_of, DIMS), chosen.randint(1, 40)])
    left, right = drawn(chosen, depth - 1), drawn(chosen, depth - 1)
    way = chosen.randrange(6)
    if way == 0:
        return left + right
    if way == 1:
        return left * right
    if way == 2:
        return left - right
    if way == 3:
        return left // chosen.randint(2, 9)
    return (largest if way == 4 else smallest)(left, right)


def test_formulas_read_back_as_the_same_sizes():
    chosen = random.Random(0)
    for _ in range(2000):
        size = drawn(chosen)
        assert parse_extent(str(size), DIMS) == size


def test_a_graph_of_dims_reads_back():
    n, rows, _ = map(size_of, DIMS)
    x = make("input", (), {"name": "x", "dtype": "f32", "shape": (2 * n + 1, rows)})
    y = make("input", (), {"name": "y", "dtype": "f32", "shape": (rows, largest(n, 8))})
    z = build.reshape(make("matmul", (x, y)), ((2 * n + 1) * largest(n, 8),))
    graph = Graph((x, y), (z,), ("x", "y"), ("z",), {})
    text = print_graph(graph)
    assert parse_graph(text, dims=DIMS).outputs == (z,)
    with pytest.raises(GraphTextError):
        parse_graph(text)


def test_types_read_back():
    assert parse_type("f32[]").shape == ()
    assert parse_type("bf16[4, 8]").shape == (4, 8)
    n = size_of(DIMS[0])
    assert parse_type("f32[2*n, max(n, 3)]", DIMS).shape == (2 * n, largest(n, 3))
