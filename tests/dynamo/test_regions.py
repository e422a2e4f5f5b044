"""How a graph is cut where torch computes some of its nodes: drawn graphs, run region by region."""

from __future__ import annotations

import random

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from aotc.aot.dynamo import aotc
from aotc.aot.dynamo.regions import regions

aten = torch.ops.aten
LEFT = aten.cumsum.default  # stands for what is left to torch
ELEMENTWISE = (torch.sin, torch.neg, lambda x: x.t().t(), lambda x: x.double().float())


def drawn_function(rng, steps):
    """A function of four matrices: elementwise, products, sums and what is left, in any order."""
    plan = [(rng.randrange(5), rng.random(), rng.random(), rng.randrange(4)) for _ in range(steps)]

    def function(*given):
        values = list(given)
        for kind, first, second, which in plan:
            a, b = (values[int(each * len(values))] for each in (first, second))
            if kind == 0:
                values.append(torch.cumsum(a, 0))
            elif kind == 1:
                values.append(a @ b / 5)
            elif kind == 2:
                values.append(a - b.sum(0))
            else:
                values.append(ELEMENTWISE[which](a) + b)
        return tuple(values[-3:])

    return function


def run(module, parts, given):
    """The results of a graph, its regions run in their order."""
    known = dict(zip(module.graph.find_nodes(op="placeholder"), given, strict=True))
    for part in parts:
        results = part.module(*[known[node] for node in part.arguments])
        known.update(zip(part.results, results, strict=True))
    (output,) = module.graph.find_nodes(op="output")
    return [known[node] for node in output.args[0]]


@pytest.mark.parametrize("seed", range(40))
def test_drawn_graphs_in_regions(seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    given = [torch.randn(5, 5) for _ in range(4)]
    module = make_fx(drawn_function(rng, rng.randint(4, 24)))(*given)
    module.graph.eliminate_dead_code()
    left = {node for node in module.graph.nodes if node.target is LEFT}
    parts = regions(module, left)
    assert frozenset().union(*(part.nodes for part in parts)) == {
        node for node in module.graph.nodes if node.op == "call_function"
    }
    assert [part.is_left for part in parts] == [part.nodes <= left for part in parts]
    for found, expected in zip(run(module, parts, given), module(*given), strict=True):
        assert torch.equal(found, expected)


def test_what_is_computed_anew_is_computed_where_it_is_read():
    """The gradient of a deep chain: each layer's derivative comes from a saved activation alone."""

    def backward(gradient, *saved):
        for each in saved:
            gradient = torch.cumsum(
                gradient * each.double().sin().mul(2).float().t().contiguous(), 0
            )
        return gradient

    given = [torch.randn(3, 3) for _ in range(6)]
    module = make_fx(backward)(*given)
    parts = regions(module, {node for node in module.graph.nodes if node.target is LEFT})
    own = [part for part in parts if not part.is_left]
    assert len(own) == 5
    assert [len(part.results) for part in own] == [1] * 5
    names = [node.name for node in module.graph.find_nodes(op="placeholder")]
    read = [{node.name for node in part.arguments} & set(names[1:]) for part in own]
    assert read == [{name} for name in names[1:]]


def test_a_kernel_keeps_what_is_fused_behind_it():
    """What follows a product stays in its region, though only a later one reads it."""

    def function(a, b):
        product = (a @ b).relu()
        return torch.cumsum(a, 0) + product

    given = [torch.randn(4, 4) for _ in range(2)]
    module = make_fx(function)(*given)
    parts = regions(module, {node for node in module.graph.nodes if node.target is LEFT})
    first = {node.target for node in parts[0].nodes}
    assert {aten.mm.default, aten.relu.default} <= first


def test_nothing_moves_past_a_write():
    def function(a, b):
        early = a.sin()
        late = torch.cumsum(b, 0)
        return early + late, aten.copy_(a, late)

    given = [torch.randn(4, 4) for _ in range(2)]
    module = make_fx(function)(*given)
    parts = regions(module, {node for node in module.graph.nodes if node.target is LEFT})
    assert [node.target for node in parts[0].nodes] == [aten.sin.default]


def test_a_graph_in_regions_gives_a_constant(fresh):
    """As a tensor of the caller's own at each call."""

    def function(x):
        return torch.linalg.inv(x), torch.tensor([1.0, 2.0])

    compiled = torch.compile(function, backend=aotc, options={"fallback": "eager"})
    for _ in range(2):
        _, found = compiled(torch.eye(3) * 2)
        assert found.tolist() == [1.0, 2.0]
        found += 1
