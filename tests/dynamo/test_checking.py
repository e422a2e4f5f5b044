"""`options={"check": "first"}`: each graph's first call beside eager."""

from __future__ import annotations

import pytest
import torch

from aotc.aot.dynamo import aotc, graphs
from aotc.aot.dynamo.checking import FirstCall
from aotc.aot.dynamo.errors import GraphDiffers, OptionInvalid
from aotc.aot.dynamo.options import read_options

pytestmark = [pytest.mark.torch, pytest.mark.triton]
CHECKED = {"check": "first", "fallback": "error"}


@pytest.fixture
def compared(monkeypatch):
    """Kinds of graph whose first call was compared, in order."""
    seen = []
    original = FirstCall._compare

    def compare(self, module, *rest):
        names = [node.name for node in module.graph.find_nodes(op="placeholder")]
        is_backward = any(name.startswith("tangents") for name in names)
        seen.append("backward" if is_backward else "forward")
        original(self, module, *rest)

    monkeypatch.setattr(FirstCall, "_compare", compare)
    return seen


def spoiled(monkeypatch, which):
    """Our code gives a wrong number in the graphs of a kind."""
    original = graphs._own

    def own(module, *rest, **named):
        code, call = original(module, *rest, **named)
        names = [node.name for node in module.graph.find_nodes(op="placeholder")]
        if any(name.startswith("tangents") for name in names) != (which == "backward"):
            return code, call

        def wrong(arguments):
            results = call(arguments)
            for value in results:
                if isinstance(value, torch.Tensor) and value.is_floating_point():
                    value.view(-1)[0] += 1
            return results

        return code, wrong

    monkeypatch.setattr(graphs, "_own", own)


def test_forward_and_backward_are_compared_once_each(fresh, compared):
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
    compiled = torch.compile(module, backend=aotc, options=CHECKED)
    for _ in range(3):
        compiled(torch.randn(4, 8)).sum().backward()
    assert compared == ["forward", "backward"]


def test_a_later_process_compares_again(fresh, compared):
    """What was compared is kept for nobody: a start from torch's cache has no graph."""
    for _ in range(2):
        torch._dynamo.reset()
        compiled = torch.compile(lambda x: x.sin() * 3 + 1, backend=aotc, options=CHECKED)
        compiled(torch.arange(5.0))
    assert compared == ["forward", "forward"]


@pytest.mark.parametrize("which", ["forward", "backward"])
def test_a_graph_that_differs_is_named_with_its_line(fresh, monkeypatch, which):
    spoiled(monkeypatch, which)

    def model(x):
        return (x * 2).tanh()  # the line

    x = torch.randn(4, requires_grad=True)
    compiled = torch.compile(model, backend=aotc, options=CHECKED)
    with pytest.raises(GraphDiffers) as raised:
        compiled(x).sum().backward()
    assert raised.value.kind == which
    assert "test_checking.py:" in raised.value.source
    assert "in model" in raised.value.source


def test_without_the_option_nothing_is_compared(fresh, compared, monkeypatch):
    spoiled(monkeypatch, "forward")
    x = torch.randn(4)
    assert torch.compile(lambda x: x * 5 - 1, backend=aotc)(x)[0] != x[0] * 5 - 1
    assert compared == []


def test_what_a_graph_writes_to_is_compared(fresh, compared):
    def model(x):
        x.add_(1)
        return x * 2

    x = torch.zeros(3)
    found = torch.compile(model, backend=aotc, options={"check": "first"})(x)
    assert found.tolist() == [2, 2, 2]
    assert x.tolist() == [1, 1, 1]
    assert compared == ["forward"]


def test_ops_that_torch_keeps_in_order_are_run_beside_it(fresh, compared):
    options = {"check": "first", "fallback": "eager"}
    compiled = torch.compile(lambda x: torch.linalg.inv(x) * 2, backend=aotc, options=options)
    x = torch.randn(3, 3) + 4 * torch.eye(3)
    torch.testing.assert_close(compiled(x), torch.linalg.inv(x) * 2)
    assert compared == ["forward"]


def test_drawn_numbers_are_the_same_for_both(fresh, compared):
    def model(x):
        return torch.nn.functional.dropout(x, 0.5) + 1

    torch.manual_seed(3)
    expected = model(torch.ones(40))
    torch.manual_seed(3)
    found = torch.compile(model, backend=aotc, options={"check": "first"})(torch.ones(40))
    torch.testing.assert_close(found, expected)
    assert compared == ["forward"]


def test_what_the_option_takes():
    assert read_options(None).check == "off"
    assert read_options({"check": "first"}).check == "first"
    with pytest.raises(
        OptionInvalid, match="option `check` is 'always', expected one of off, first"
    ):
        read_options({"check": "always"})
