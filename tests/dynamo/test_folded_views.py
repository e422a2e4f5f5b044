"""Products that torch runs op by op, with views of their operands as one call each."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from aotc.aot.capture.aten_signature import CHOSEN, RELAID
from aotc.aot.dynamo import library_products
from aotc.aot.dynamo.eager_graph import eager_graph
from aotc.aot.dynamo.folded_views import folded
from aotc.aot.dynamo.options import read_options

aten = torch.ops.aten


def of_weight(g, x):
    """A gradient of a weight, as AOTAutograd writes it for tensors of three dims."""
    rows = aten.permute.default(aten.view.default(g, [6, 4]), [1, 0])
    return aten.mm.default(rows, aten.view.default(x, [6, 5]))


def both(g, x, weight):
    """Gradients of the data and of the weight; the rows are read twice, once through more views."""
    rows = aten.view.default(g, [6, 4])
    data = aten.view.default(aten.mm.default(rows, weight), [2, 3, 5])
    return data, aten.permute.default(of_weight(aten.view.default(rows, [2, 3, 4]), x), [1, 0])


def of_products(g, x, weight):
    """A view of a product in a product."""
    return aten.mm.default(aten.t.default(both(g, x, weight)[1]), aten.t.default(weight))


CASES = {of_weight: 2, both: 3, of_products: 4}


def given_of(function):
    torch.manual_seed(0)
    given = [torch.randn(2, 3, 4), torch.randn(2, 3, 5), torch.randn(4, 5)]
    return given[: function.__code__.co_argcount]


def traced(function, *given):
    module = make_fx(lambda *values: _row(function(*values)))(*given)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def _row(found):
    return found if isinstance(found, tuple) else (found,)


def calls(run):
    return [node.target for node in run.__self__.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("function", CASES, ids=lambda each: each.__name__)
def test_results_are_the_same_by_fewer_calls(function):
    given = given_of(function)
    expected = _row(function(*given))
    module = traced(function, *given)
    kept = eager_graph(module)
    reopened = pickle.loads(pickle.dumps(kept))
    for graph in (kept, reopened):
        for one, other in zip(graph.opened()(list(given)), expected, strict=True):
            assert torch.equal(one, other)
            assert one.stride() == other.stride()
    targets = calls(folded(module, kept.folds))
    assert calls(folded(reopened.module, reopened.folds)) == targets
    assert torch.mm in targets
    assert aten.mm.default not in targets
    assert len(targets) < len(calls(module.forward))
    assert sum(each.__name__ == "_reinterpret_tensor" for each in targets) == CASES[function]


def test_arguments_that_lie_elsewhere_are_laid_first():
    """Strides that are not the trace's, and an offset."""
    g, x = given_of(of_weight)
    call = pickle.loads(pickle.dumps(eager_graph(traced(of_weight, g, x)))).opened()
    apart = torch.randn(3, 2, 4).transpose(0, 1).copy_(g)
    behind = torch.empty(31)[1:].view(2, 3, 5).copy_(x)
    (found,) = call([apart, behind])
    assert torch.equal(found, of_weight(g, x))


def test_views_of_arguments_that_are_given_otherwise_than_traced_stay_as_they_are(monkeypatch):
    """What is saved of convolutions lies channels last; the views above keep the traced strides,
    and torch may not have them of that memory, so that they are not chosen for its library."""
    monkeypatch.setattr(library_products, "FEWEST_MULTIPLICATIONS", 1)
    given = [each.bfloat16() for each in given_of(of_weight)]
    for is_relaid in (False, True):
        module = traced(of_weight, *given)
        (first, *_) = module.graph.find_nodes(op="placeholder")
        if is_relaid:
            first.meta[RELAID] = first.meta["val"]
        folds = eager_graph(module).folds
        assert len(folds.rows) == 2 - is_relaid
        library_products.choose(module, replace(read_options({}), ordinal=0))
        chosen = [node.target for node in module.graph.nodes if CHOSEN in node.meta]
        assert chosen.count(aten.view.default) == 2 - is_relaid
        assert aten.mm.default in chosen


def test_graphs_without_products_and_open_sizes_stay_as_they_are():
    module = traced(lambda x: aten.add.Tensor(aten.view.default(x, [6]), 1), torch.randn(2, 3))
    assert not eager_graph(module).folds.rows
    assert folded(module, eager_graph(module).folds) == module.forward
    module = make_fx(lambda g, x: (of_sizes(g, x),), tracing_mode="symbolic")(*given_of(of_weight))
    assert not eager_graph(module).folds.rows


def of_sizes(g, x):
    rows = g.shape[0] * g.shape[1]
    left = aten.permute.default(aten.view.default(g, [rows, g.shape[2]]), [1, 0])
    return aten.mm.default(left, aten.view.default(x, [rows, x.shape[2]]))
