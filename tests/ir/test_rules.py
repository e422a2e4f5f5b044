"""The driver of rules does each piece of work once: counted, never timed."""

from aotc.aot.ir import build, rules
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.match import any_node, call
from aotc.aot.ir.ops import OPS, OpDef
from aotc.aot.ir.rules import Context, Rule, apply_rules

LENGTH = 40


def chain(start):
    nodes = [start]
    for _ in range(LENGTH):
        nodes.append(make("exp", (make("neg", (nodes[-1],)),)))
    return nodes


def graph_of(output, *inputs):
    names = tuple(node.attr("name") for node in inputs)
    return Graph(inputs, (output,), names, ("y",), {})


def value(name):
    return make("input", (), {"name": name, "dtype": "f32", "shape": (4,)})


def test_what_is_constant_is_asked_of_each_node_once(monkeypatch):
    looked_at = []
    real = Node.sizes
    monkeypatch.setattr(Node, "sizes", lambda node: looked_at.append(node) or real(node))
    context = Context()
    nodes = chain(build.expand(build.scalar(2.0, "f32"), (4,)))
    assert all(context.is_constant(node) for node in reversed(nodes))
    assert len(looked_at) == len(set(looked_at))
    assert not any(context.is_constant(node) for node in chain(value("x")))


def test_a_pattern_that_did_not_match_is_not_tried_again(monkeypatch):
    x = any_node("x")
    table = (
        Rule("never", call("exp", call("sin", x)), lambda x: x),
        Rule("neg-neg", call("neg", call("neg", x)), lambda x: x),
    )
    failed = []
    real = rules.match

    def counted(pattern, node):
        found = real(pattern, node)
        if found is None:
            failed.append((id(pattern), node))
        return found

    monkeypatch.setattr(rules, "match", counted)
    given = value("x")
    # Each pass undoes one pair, so that there are several passes over the rest.
    last = chain(given)[-1]
    for _ in range(6):
        last = make("neg", (last,))
    result, applied = apply_rules(graph_of(last, given), table)
    assert applied.counts["neg-neg"] > 1
    assert result.outputs == (chain(given)[-1],)
    assert len(failed) == len(set(failed)) > LENGTH


def test_a_node_that_is_there_is_not_inferred_again(monkeypatch):

    given = value("x")
    first = make("exp", (given,))
    inferred = []
    real = OpDef.infer
    monkeypatch.setattr(
        OpDef, "infer", lambda self, *rest: inferred.append(self) or real(self, *rest)
    )
    assert make("exp", (given,)) is first
    assert inferred == []
    make("sin", (given,))
    assert inferred == [OPS["sin"]]


def test_a_rule_that_left_a_node_is_asked_again_when_its_uses_change():
    asked = []

    def once(root: Node, inner: Node, context: Context) -> Node | None:
        asked.append(root)
        return inner if context.is_used_once(inner) else None

    x = any_node("x")
    table = (
        Rule("exp-of-one-reader", call("exp", any_node("inner")), once),
        Rule("drop-second", call("maximum", x, call("tan", any_node("y"))), lambda x: x),
    )
    given = value("x")
    shared = make("sin", (given,))
    # The second reader of `shared` goes in the first pass, and with it what kept the rule away.
    last = make("maximum", (make("exp", (shared,)), make("tan", (shared,))))
    result, applied = apply_rules(graph_of(last, given), table)
    assert applied.counts["exp-of-one-reader"] == 1
    assert result.outputs == (shared,)
    assert len(asked) == 2


def test_a_rule_that_left_a_node_is_not_asked_again_while_its_uses_stay():
    asked = []

    def never(root: Node, inner: Node, context: Context) -> Node | None:
        asked.append(root)
        return None if context.is_used_once(inner) else inner

    x = any_node("x")
    table = (
        Rule("never", call("exp", any_node("inner")), never),
        Rule("neg-neg", call("neg", call("neg", x)), lambda x: x),
    )
    given = value("x")
    last = make("exp", (given,))
    for _ in range(6):
        last = make("neg", (last,))
    context = Context()
    graph, _ = apply_rules(graph_of(last, given), table, context=context)
    apply_rules(graph, table, context=context)
    assert len(asked) == 1
