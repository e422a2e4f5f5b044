"""The code of torch's graphs is made when it is asked for, and is that of the graph then."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from aotc.aot.capture import graph_code  # noqa: E402
from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.graph_code import code_when_run  # noqa: E402
from aotc.aot.capture.spec import Spec  # noqa: E402


@pytest.fixture
def made(monkeypatch):
    """The modules whose code was made, one for each time."""
    found, make = [], graph_code._MAKE
    monkeypatch.setattr(graph_code, "_MAKE", lambda module: (found.append(module), make(module)))
    return found


def doubled():
    return torch.fx.symbolic_trace(lambda x: x * 2)


def edit(module, factor):
    (product,) = (node for node in module.graph.nodes if node.op == "call_function")
    product.args = (product.args[0], factor)
    module.recompile()


def test_each_way_to_ask_gives_the_code_of_the_last_graph(made):
    ways = {
        "a call": lambda module: module(torch.ones(())).item(),
        "forward": lambda module: module.forward(torch.ones(())).item(),
        "a copy": lambda module: copy.deepcopy(module)(torch.ones(())).item(),
        "code": lambda module: float(module.code.partition("x * ")[2].partition(";")[0]),
        "text": lambda module: float(str(module).partition("x * ")[2].partition(";")[0]),
    }
    for name, way in ways.items():
        module = doubled()
        with code_when_run():
            for factor in (3, 4):
                edit(module, factor)
            assert not made, name
            assert way(module) == 4, name
            assert len(made) == 1, name
            edit(module, 5)
        assert way(module) == 5, name
        edit(module, 6)
        assert way(module) == 6, name
        made.clear()


def test_a_capture_makes_the_code_of_few_of_its_graphs(made, monkeypatch):
    noted, note = [], graph_code._note
    monkeypatch.setattr(graph_code, "_note", lambda module: (noted.append(module), note(module)))
    module = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.GELU()).eval()
    found = capture(Spec("model", "model", (torch.randn(2, 4),), {}, module))
    assert [array.shape for array in found.golden_outputs] == [(2, 5)]
    assert 0 < 3 * len(made) <= len(noted)
    assert torch.fx.GraphModule.recompile is not graph_code._note
