"""What a graph becomes does not depend on the values of weights, and each stored constant knows
what it was computed from."""

import numpy
import pytest
import torch
from refit_models import Drawn, Everything, fill

from aotc.aot.capture.exported import graph_of
from aotc.aot.ir.reference import interpret
from aotc.aot.refit import weights_graph
from aotc.aot.rewrites.rewrite import rewrite_each
from aotc.aot.targets.families import find_target

FAMILIES = {name: find_target(name).traits for name in ("cpu-x86-64-v3", "cuda:sm_90")}
EACH = [{name: traits} for name, traits in FAMILIES.items()] + [FAMILIES]
KINDS = ("zeros", "ones", "counted")


def graphs(model, inputs):
    """The rewritten graphs of a model, for each family by itself and for both."""
    with torch.no_grad():
        graph = graph_of(model.eval(), inputs)
    return [graph, *(each for row in EACH for each, _ in rewrite_each(graph, row).values())]


def models():
    yield "everything", Everything, (torch.zeros(2, 6, dtype=torch.long),)
    for seed in range(10):
        yield f"drawn-{seed}", lambda seed=seed: Drawn(seed), (torch.randn(4, 8, 24),)


MODELS = list(models())


@pytest.mark.parametrize(
    ("make", "inputs"), [row[1:] for row in MODELS], ids=[r[0] for r in MODELS]
)
def test_values_of_weights_decide_nothing(make, inputs):
    expected = graphs(fill(make(), "random"), inputs)
    for kind in KINDS:
        for one, other in zip(expected, graphs(fill(make(), kind), inputs), strict=True):
            assert one.outputs == other.outputs  # nodes are interned: equal ones are one object
            assert one.constants.keys() == other.constants.keys()


def test_expressions_give_what_is_stored_for_other_weights():
    inputs = (torch.zeros(2, 6, dtype=torch.long),)
    pair = [graphs(fill(Everything(), "random", seed), inputs)[1:] for seed in (1, 2)]
    for one, other in zip(*pair, strict=True):
        made = {name: row for name, row in one.constants.items() if row.expression is not None}
        assert made
        graph, given = weights_graph(made)
        new = {row.name: row for each in other.constants.values() for row in each.leaves}
        found = interpret(graph, [new[row.name].array for row in given])
        for name, array in zip(made, found, strict=True):
            assert numpy.array_equal(array, other.constants[name].array)


def test_indices_and_settings_are_still_looked_at():
    graph = graphs(Everything(), (torch.zeros(2, 6, dtype=torch.long),))[1]
    leaves = {leaf.name: leaf for row in graph.constants.values() for leaf in (*row.leaves, row)}
    assert "factor" not in leaves  # a literal of the kernels
    assert not leaves["places"].is_replaceable
    assert leaves["tokens.weight"].names == ("head.weight", "tokens.weight")
