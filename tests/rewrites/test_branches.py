"""Branches as choices: the same numbers, and only where both cost little and refuse no data."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.control import Part, control, operand
from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.legal import check
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.types import TensorType
from aotc.aot.rewrites.branches import choose_both
from aotc.aot.rewrites.rewrite import rewrite


def leaf(name, dtype="f64", shape=(4, 3)):
    return make("input", (), {"name": name, "dtype": dtype, "shape": shape})


X, Y, FLAG = leaf("x"), leaf("y"), leaf("flag", "bool", ())


def graph(first, other, x=X, y=Y):
    """flag ? first(x, y) : other(x, y), each a list of results."""
    given = [operand("a", x), operand("b", y)]
    inside = [each.inside for each in given]
    parts = [Part(*branch(*inside)) for branch in (first, other)]
    found = control("branch", parts, given, condition=FLAG)
    names = tuple(f"output_{number}" for number in range(len(found)))
    return Graph((FLAG, x, y), found, ("flag", "x", "y"), names, {})


CHEAP = {
    "arithmetic": (lambda a, b: ((a + b, a * 2.0),), lambda a, b: ((b - a, b),)),
    "views": (lambda a, b: ((build.transpose(a),),), lambda a, b: ((build.transpose(b + 1.0),),)),
    "literals": (
        lambda a, b: ((build.expand(build.scalar(1.0, "f64"), (2,)),),),
        lambda a, b: ((build.expand(build.scalar(2.0, "f64"), (2,)),),),
    ),
}
LARGE = TensorType("f64", (1 << 12, 64))


def is_branch(found):
    return any(node.op == "control" for node in found.nodes())


@pytest.mark.parametrize("name", CHEAP)
def test_cheap_branches_are_choices_of_the_same_numbers(name):
    before = graph(*CHEAP[name])
    after, count = choose_both(before)
    assert count == 1
    assert not is_branch(check(after, "test"))
    generator = numpy.random.default_rng(1)
    for flag in (True, False):
        given = [numpy.array(flag), *generator.standard_normal((2, 4, 3))]
        for one, other in zip(interpret(before, given), interpret(after, given), strict=True):
            numpy.testing.assert_array_equal(one, other)


def test_choices_within_choices():
    def inner(a, b):
        given = [operand("c", a), operand("d", b)]
        one, other = (each.inside for each in given)
        parts = [Part((one + other,)), Part((one - other,))]
        return (control("branch", parts, given, condition=_is_positive(a)),)

    before = graph(inner, lambda a, b: ((a * b,),))
    after, count = choose_both(before)
    assert count == 2
    assert not is_branch(after)
    given = [numpy.array(True), *numpy.random.default_rng(2).standard_normal((2, 4, 3))]
    numpy.testing.assert_array_equal(interpret(before, given)[0], interpret(after, given)[0])


def _is_positive(a):
    first = build.reshape(build.slice_axis(build.slice_axis(a, 0, 0, 1), 1, 0, 1), ())
    return first > 0.0


KEPT = {
    "a product": (
        lambda a, b: ((build.matmul(a, build.transpose(b)),),),
        lambda a, b: ((build.matmul(b, build.transpose(a)),),),
        (4, 3),
    ),
    "a sum": (
        lambda a, b: ((build.reduce("sum", a, (0,)),),),
        lambda a, b: ((build.reduce("sum", b, (0,)),),),
        (4, 3),
    ),
    "more than what both read in common": (
        lambda a, b: ((a + 1.0,),),
        lambda a, b: ((b + 1.0,),),
        LARGE.shape,
    ),
    "much arithmetic of many elements": (
        lambda a, b: ((build.unary("sin", a + b),),),
        lambda a, b: ((build.unary("cos", a * b),),),
        LARGE.shape,
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_others_stay_branches(name):
    first, other, shape = KEPT[name]
    before = graph(first, other, leaf("x", shape=shape), leaf("y", shape=shape))
    after, count = choose_both(before)
    assert (count, after.outputs) == (0, before.outputs)
    assert is_branch(rewrite(before)[0])


def test_a_branch_that_checks_its_data_stays_one():
    def first(a, b):
        row = {"kind": "divisor", "operation": "div", "place": "", "low": 0, "high": 0}
        whole = build.cast(b, "i64")
        return (a + b,), (), (make("check", (whole,), row),)

    before = graph(first, lambda a, b: ((a - b,),))
    assert choose_both(before)[1] == 0
