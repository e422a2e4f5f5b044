"""Products of the rows that a loop reads, before the loop: the same numbers, and only such."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.control import Part, control, operand
from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.legal import check
from aotc.aot.ir.reference import interpret
from aotc.aot.rewrites.rows import MOST_ROWS, multiply_rows_before

TURNS, WIDTH = 5, 6


def leaf(name, shape):
    return make("input", (), {"name": name, "dtype": "f64", "shape": shape})


def loop(step, rows=2, columns=WIDTH):
    """state = step(state, x[turn], w) for each turn."""
    x, w = leaf("x", (TURNS, rows, WIDTH)), leaf("w", (columns, WIDTH))
    begin = leaf("begin", (rows, columns))
    carried = [operand("turn", build.scalar(0, "i64")), operand("state", begin)]
    given = [operand("rows", x), operand("weights", w)]
    turn, state = (each.inside for each in carried)
    data, weights = (each.inside for each in given)
    row = make("take", (data, build.reshape(turn, (1,))), {"axis": 0})
    new = step(state, build.reshape(row, (rows, WIDTH)), build.transpose(weights))
    part = Part((), (turn + build.scalar(1, "i64"), new))
    _, last = control("repeat", [part], given, carried, count=TURNS, tag="test")
    names = ("x", "w", "begin")
    return Graph((x, w, begin), (last,), names, ("last",), {})


def products_in(graph):
    """How many products the body has."""
    (found,) = [node for node in graph.nodes() if node.op == "control"]
    (body,) = found.attr("bodies")
    return sum(node.op == "matmul" for node in body.graph.nodes())


STEPS = {
    "a product of the row": (lambda state, row, w: state * 0.5 + build.matmul(row, w), 1, 0),
    "of the row and of the state": (
        lambda state, row, w: build.unary("tanh", build.matmul(row, w) + build.matmul(state, w)),
        1,
        1,
    ),
    "of the state alone": (lambda state, row, w: build.matmul(state, w) + row, 0, 1),
    "of what the state changes": (lambda state, row, w: build.matmul(row, w * state), 0, 1),
    "of the row, changed": (lambda state, row, w: build.matmul(row * state, w), 0, 1),
}


@pytest.mark.parametrize("name", STEPS)
def test_products_of_rows_stand_before_the_loop(name):
    step, count, left = STEPS[name]
    rows = WIDTH if name == "of what the state changes" else 2
    before = loop(step, rows)
    after, found = multiply_rows_before(before)
    assert (found, products_in(after)) == (count, left)
    check(after, "test")
    generator = numpy.random.default_rng(3)
    given = [generator.standard_normal(node.shape) for node in before.inputs]
    expected, other = interpret(before, given), interpret(after, given)
    numpy.testing.assert_allclose(other[0], expected[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("rows", "columns"), [(MOST_ROWS + 1, WIDTH), (2, 5 * WIDTH)])
def test_many_rows_and_wide_products_stay(rows, columns):
    step = STEPS["a product of the row"][0]
    assert multiply_rows_before(loop(step, rows, columns))[1] == 0
