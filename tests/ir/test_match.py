"""Patterns bind what they should, and the driver reaches a fixed point or says that it does not."""

from __future__ import annotations

import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.match import AnyLiteral, any_node, both_orders, call, either, match, root_ops
from aotc.aot.ir.rules import Rule, apply_rules

x, y, c = any_node("x"), any_node("y"), AnyLiteral("c")


def tensor(name: str, *shape: int):
    return make("input", (), {"name": name, "dtype": "f32", "shape": shape})


A, B = tensor("a", 4, 8), tensor("b", 4, 8)


def graph_of(node):
    return Graph((A, B), (node,), ("a", "b"), ("out",), {})


def test_operators_build_patterns_that_bind_operands():
    assert match(x * y + 1.0, A * B + 1.0) == {"x": A, "y": B}
    assert match(x * y + 1.0, A * B + 2.0) is None


def test_a_repeated_name_is_one_node():
    assert match(x * x, A * A) == {"x": A}
    assert match(x * x, A * B) is None


def test_numbers_match_up_to_rounding_and_keep_the_sign_of_zero():
    third = A * (1 / 3)
    assert match(x * (1 / 3), third) is not None
    assert match(x * 0.33333, third) is None
    assert match(x + 0.0, A + -0.0) is None


def test_literals_and_attributes_are_bound():
    node = build.reduce("sum", A * 3.0, (1,))
    assert match(call("sum", x * c, axes="axes"), node) == {"x": A, "c": 3.0, "axes": (1,)}


def test_choices_backtrack():
    # The first order binds x to b, which the second operand then refutes.
    pattern = call("add", both_orders(x * y), x)
    found = match(pattern, B * A + A)
    assert found == {"x": A, "y": B}


def test_root_ops_of_choices():
    assert root_ops(either(x + y, x * y)) == {"add", "mul"}
    with pytest.raises(ValueError, match="begins with an op"):
        root_ops(x)


def test_replacement_of_another_type_is_refused():
    rule = Rule("bad", call("exp", x), lambda x: build.reduce("sum", x, (0,)))
    node = build.unary("exp", A)
    result, applied = apply_rules(graph_of(node), (rule,))
    assert result.outputs == (node,)
    assert applied.refused == {"bad": 1}


def test_guards_and_the_context_decide():
    rule = Rule(
        "once",
        call("neg", call("exp", x, name="inner")),
        lambda x: build.unary("log", x),
        lambda inner, context: context.is_used_once(inner),
    )
    inner = build.unary("exp", A)
    single = -inner
    assert apply_rules(graph_of(single), (rule,))[1].counts == {"once": 1}
    double = single + inner
    assert apply_rules(graph_of(double), (rule,))[1].counts == {}


def test_replacements_keep_the_source_of_what_they_replace():
    rule = Rule("swap", call("exp", x), lambda x: make("cos", (x,)))
    node = make("exp", (tensor("source", 4, 8),), source="model.py:9 in forward")
    graph = Graph(node.inputs, (node,), ("source",), ("out",), {})
    (output,) = apply_rules(graph, (rule,))[0].outputs
    assert output.source == "model.py:9 in forward"


def test_a_table_that_must_end_and_does_not_is_an_error():
    there = Rule("there", call("exp", x), lambda x: build.unary("log", x))
    back = Rule("back", call("log", x), lambda x: build.unary("exp", x))
    with pytest.raises(RuntimeError, match="do not come to an end"):
        apply_rules(graph_of(build.unary("exp", A)), (there, back))
