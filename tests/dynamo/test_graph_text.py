"""The text of one of Dynamo's graphs: equal for equal traces, different where a trace would be."""

from __future__ import annotations

import pytest
import torch

from aotc.aot.dynamo.graph_key import Unprintable, graph_text, has_user_ops

pytestmark = pytest.mark.torch


def graph_of(function, *arguments, **compiling):
    """Dynamo's graph of a function, and its text or the reason why it has none."""
    found = []

    def seeing(module, inputs):
        try:
            found.append((module, graph_text(module)))
        except Unprintable as reason:
            found.append((module, reason))
        return module.forward

    torch._dynamo.reset()
    torch.compile(function, backend=seeing, **compiling)(*arguments)
    ((module, text),) = found
    return module, text


def text_of(function, *arguments, **compiling):
    return graph_of(function, *arguments, **compiling)[1]


def scaled(x):
    return (x * 2.0).reshape(-1)[1:]


X = torch.ones(4, 6)


def test_it_is_the_same_for_the_same_graph():
    assert isinstance(text_of(scaled, X), str)
    assert text_of(scaled, X) == text_of(scaled, torch.zeros(4, 6))


OTHERS = {
    "shape": lambda: (scaled, torch.ones(6, 4)),
    "strides": lambda: (scaled, torch.ones(6, 4).t()),
    "dtype": lambda: (scaled, torch.ones(4, 6, dtype=torch.float64)),
    "offset": lambda: (scaled, torch.ones(5, 6)[1:]),
    "gradient": lambda: (scaled, torch.ones(4, 6, requires_grad=True)),
    "constant": lambda: (lambda x: (x * -0.0).reshape(-1)[1:], X),
    "whole number": lambda: (lambda x: (x * 2).reshape(-1)[1:], X),
    "slice": lambda: (lambda x: (x * 2.0).reshape(-1)[2:], X),
    "function": lambda: (lambda x: (x + 2.0).reshape(-1)[1:], X),
    "method": lambda: (lambda x: (x * 2.0).view(-1)[1:], X),
}


@pytest.mark.parametrize("what", OTHERS)
def test_it_tells_graphs_apart(what):
    text = text_of(*OTHERS[what]())
    assert isinstance(text, str)
    assert text != text_of(scaled, X)


def test_zeros_have_signs():
    assert text_of(lambda x: x * 0.0, X) != text_of(lambda x: x * -0.0, X)


def test_what_it_cannot_say_has_none():
    assert isinstance(text_of(scaled, torch.ones(5, 6), dynamic=True), Unprintable)
    whole = torch.ones(12)
    assert "share memory" in str(text_of(lambda x, y: x + y, whole[:6], whole[6:]))


def test_ops_of_the_users_are_seen():
    assert not has_user_ops(graph_of(scaled, X)[0])
    with torch.library._scoped_library("aotc_text_tests", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
        module, reason = graph_of(lambda x: torch.ops.aotc_text_tests.twice(x), X)
    assert has_user_ops(module)
    assert "op of the user's" in str(reason)
