"""Nodes are interned by meaning, types are inferred, texts and legality hold."""

from __future__ import annotations

import math
import string

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotc.aot.errors import InternalError, TypeRuleError
from aotc.aot.ir import build
from aotc.aot.ir.graph import Constant, Graph, IllegalNodeError, made_for, make
from aotc.aot.ir.legal import REWRITTEN_KINDS, check, violations
from aotc.aot.ir.text import GraphTextError, parse_graph, parse_type, print_graph
from aotc.aot.ir.types import TensorType, round_scalar


def tensor(name: str, *shape: int, dtype: str = "f32"):
    return make("input", (), {"name": name, "dtype": dtype, "shape": shape})


def graph_of(*outputs, constants=None):
    inputs = tuple(
        dict.fromkeys(n for n in Graph((), outputs, (), (), {}).nodes() if n.op == "input")
    )
    names = tuple(node.attr("name") for node in inputs)
    output_names = tuple(f"output_{number}" for number in range(len(outputs)))
    return Graph(inputs, outputs, names, output_names, constants or {})


def test_equal_nodes_are_the_same_object():
    x = tensor("x", 4)
    assert make("exp", (x,)) is make("exp", (x,), source="model.py:3 in forward")
    assert make("exp", (x,)) is not make("log", (x,))


@pytest.mark.parametrize(("left", "right"), [(0.0, -0.0), (1.0, math.nan), (math.inf, -math.inf)])
def test_literals_that_differ_are_kept_apart(left, right):
    assert build.scalar(left, "f32") is not build.scalar(right, "f32")
    assert build.scalar(right, "f32") is build.scalar(right, "f32")


def test_literals_of_several_types_are_kept_apart():
    kinds = {build.scalar(1, "i64"), build.scalar(1, "i32"), build.scalar(True, "bool")}
    assert len(kinds) == 3


def test_source_is_taken_from_the_surrounding_block():
    with made_for("model.py:7 in forward"):
        node = make("erf", (tensor("source_test", 3),))
    assert node.source == "model.py:7 in forward"


ILLEGAL = [
    ("add", (tensor("x", 4), tensor("y", 5)), {}, "differ"),
    ("add", (tensor("x", 4), tensor("y", 4, dtype="f16")), {}, "element types differ"),
    ("exp", (tensor("n", 4, dtype="i64"),), {}, "is not float"),
    ("sum", (tensor("x", 4),), {"axes": (1,)}, "exceed the rank"),
    ("sum", (tensor("x", 4),), {"axis": 1}, "attributes are"),
    ("add", (tensor("x", 4),), {}, "1 operands, expected 2"),
    ("reshape", (tensor("x", 4),), {"shape": (5,)}, "do not fit"),
    ("permute", (tensor("x", 4, 5),), {"dims": (0, 0)}, "is not a permutation"),
    ("slice", (tensor("x", 4),), {"axis": 0, "start": 2, "stop": 9, "step": 1}, "extent"),
    ("matmul", (tensor("x", 4, 5), tensor("y", 4, 5)), {}, "K is 5 and 4"),
    ("concat", (tensor("x", 4, 5), tensor("y", 4, 6)), {"axis": 0}, "other dims differ"),
    ("nonsense", (), {}, "there is no such op"),
]


@pytest.mark.parametrize(("op", "operands", "attrs", "reason"), ILLEGAL)
def test_illegal_nodes_are_refused_with_the_reason(op, operands, attrs, reason):
    with pytest.raises(IllegalNodeError, match=reason):
        make(op, operands, attrs)


def test_scalars_are_rounded_to_their_type():
    assert round_scalar(0.1, "f32") == float(numpy.float32(0.1))
    assert round_scalar(1e300, "f32") == math.inf
    assert round_scalar(1.00390625, "bf16") == 1.0
    with pytest.raises(TypeRuleError, match="does not fit"):
        round_scalar(300, "i8")


def test_sixteen_bit_literals_keep_the_precision_of_f32():
    half = build.scalar(0.7071067811865476, "bf16")
    assert half.attr("value") == float(numpy.float32(0.7071067811865476))


SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)
VALUES = st.one_of(st.floats(width=32), st.integers(-5, 5).map(float))


@given(SHAPES, VALUES, st.text(string.ascii_lowercase, min_size=1, max_size=6), st.data())
def test_text_round_trips(shape, value, name, data):
    x = tensor(name, *shape)
    dims = tuple(data.draw(st.permutations(range(len(shape)))))
    moved = build.permute(build.unary("exp", x) + value, dims)
    total = build.reduce("sum", moved, range(len(shape)))
    graph = graph_of(total, moved)
    text = print_graph(graph, with_sources=True)
    again = parse_graph(text)
    assert again.outputs == graph.outputs
    assert print_graph(again, with_sources=True) == text


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("%1 = exp(%x) : f32[5]", "inferred"),
        ("%1 = exp(%y) : f32[4]", "y"),
        ("%1 = exp(%x", "expected"),
        ("%1 = reshape(%x, shape=(5,)) : f32[5]", "do not fit"),
    ],
)
def test_bad_text_names_its_line(line, reason):
    with pytest.raises(GraphTextError, match=reason) as caught:
        parse_graph(f"%x = input(name='x') : f32[4]\n{line}\nreturn out=%1\n")
    assert caught.value.line_number == 2


def test_types_print_and_parse():
    kind = TensorType("bf16", (4, 128))
    assert str(kind) == "bf16[4, 128]"
    assert parse_type(str(kind)) == kind
    assert kind.nbytes == 4 * 128 * 2
    assert parse_type("f32[]") == TensorType("f32", ())


def test_nodes_come_operands_first_and_inputs_in_order():
    x, y = tensor("x", 4), tensor("y", 4)
    graph = Graph((y, x), (x + 1.0,), ("y", "x"), ("out",), {})
    assert graph.nodes()[:2] == (y, x)
    assert graph.users()[x] == (graph.outputs[0],)
    assert graph.users()[y] == ()


def test_violations_are_all_listed():
    missing = build.constant("w", TensorType("f32", (4,)))
    stray = tensor("stray", 4)
    node = tensor("x", 4) + missing + stray
    graph = Graph((tensor("x", 4),), (node,), ("x",), ("out",), {})
    found = "; ".join(violations(graph))
    assert "constant `w` has no value" in found
    assert "input `stray` is not in the signature" in found
    with pytest.raises(InternalError, match="stage `somewhere`"):
        check(graph, "somewhere")


def test_constants_are_checked_against_their_nodes():
    node = build.constant("w", TensorType("bf16", (4,)))
    wrong = Constant("w", TensorType("bf16", (4,)), numpy.zeros(4, numpy.float32))
    assert "expected bf16[4]" in violations(graph_of(node, constants={"w": wrong}))[0]
    right = Constant("w", TensorType("bf16", (4,)), numpy.zeros(4, numpy.uint16))
    assert violations(graph_of(node, constants={"w": right})) == []


def test_kinds_that_a_stage_had_to_remove_are_named():
    attrs = {"stride": (1,), "padding": (0,), "dilation": (1,), "groups": 1}
    node = make("convolution", (tensor("x", 1, 2, 5), tensor("w", 3, 2, 3)), attrs)
    assert violations(graph_of(node)) == []
    found = violations(graph_of(node), REWRITTEN_KINDS)
    assert found == ["`convolution` should have been rewritten"]
