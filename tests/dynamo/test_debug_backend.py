"""`backend="aotc_debug"`: what it says about graphs, and that it runs them as they are."""

from __future__ import annotations

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        hidden = self.norm(self.linear(x))
        hidden = hidden * torch.sigmoid(hidden)
        print("between")
        return hidden.softmax(-1)


def test_it_is_listed_without_an_import():
    assert {"aotc_debug", "aotc_rewrite"} <= set(torch._dynamo.list_backends())


def test_it_runs_as_eager_does_with_gradients(capsys):
    model, x = Broken(), torch.randn(4, 8, requires_grad=True)
    compiled = torch.compile(model, backend="aotc_debug")
    result = compiled(x)
    assert torch.equal(result, model(x))
    (gradient,) = torch.autograd.grad(result[:, 0].sum(), x)
    (expected,) = torch.autograd.grad(model(x)[:, 0].sum(), x)
    assert torch.equal(gradient, expected)


def test_it_tells_ops_groups_and_the_graph_break(capsys):
    torch.compile(Broken(), backend="aotc_debug")(torch.randn(4, 8))
    lines = capsys.readouterr().err.splitlines()
    heads = [line.split(": ")[1] for line in lines if line.startswith("graph ")]
    assert heads[0].startswith("4 ops, 2 fusable groups, ")
    assert heads[1].startswith("1 op, 1 fusable group, ")
    assert "call_function hidden layer_norm [4, 8] float32" in [
        " ".join(line.split()) for line in lines
    ]
    ends = [line for line in lines if line.startswith("  ended by")]
    assert "a graph break at test_debug_backend.py:27 in forward" in ends[0]
    assert any("layer_norm" in line for line in lines if line.startswith("  group "))


def test_what_has_no_import_is_named(capsys):
    def model(x):
        return torch.nn.functional.dropout(x, 0.5, training=True) + 1

    torch.compile(model, backend="aotc_debug")(torch.randn(4))
    text = capsys.readouterr().err
    assert "no import: `" in text
    assert "dropout" in text


def test_sizes_of_a_call_are_described(capsys):
    torch.compile(Broken(), backend="aotc_debug", dynamic=True)(torch.randn(4, 8))
    text = capsys.readouterr().err
    assert "2 fusable groups" in text
    assert "[s" in text


def test_an_option_is_refused_by_name():
    with pytest.raises(Exception, match="option `loud` of backend `aotc_debug` is not known"):
        torch.compile(Broken(), backend="aotc_debug", options={"loud": True})(torch.randn(4, 8))
