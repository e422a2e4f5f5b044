"""Graphs that are split over ranks give what whole ones give: models, and programs of the fuzzer of
which any value may be split."""

from __future__ import annotations

import random

import numpy
import pytest
import torch
from fuzz.generate import Choice
from fuzz.rows.table import FAMILIES
from fuzz.trial import Task
from lockstep import initial, part_of, run
from torch import nn

from aotc.aot.capture.capture import capture
from aotc.aot.capture.spec import load_spec, spec_of
from aotc.aot.errors import AotcError
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.storage import widen
from aotc.aot.sharding import split as splitting
from aotc.aot.sharding.rules import sharded
from aotc.aot.sharding.split import split
from aotc.aot.sharding.splitter import Sharded

pytestmark = [pytest.mark.torch]
LIMITS = {"f64": 1e-9, "f32": 2e-4, "f16": 5e-2, "bf16": 2e-1}
FIRST = 202611270000000
MORE = [pytest.param(seed, marks=pytest.mark.nightly) for seed in range(3, 60)]


def assert_is_the_whole(captured, part, ranks):
    """Every rank has the outputs of the graph, and its part of the new states, but for elements
    that the model's own roundings decide."""
    graph, inputs, states = captured.graph, captured.golden_inputs, initial(captured.graph)
    expected = interpret(graph, [*inputs, *states])
    ends = list(zip(graph.inputs, part.inputs, strict=True))[len(graph.given) :]
    rows = [
        [*inputs]
        + [
            part_of(whole, local, array, rank, ranks)
            for (whole, local), array in zip(ends, states, strict=True)
        ]
        for rank in range(ranks)
    ]
    with numpy.errstate(all="ignore"):
        found = run(part, rows)
    count = len(graph.returned)
    nodes = (*graph.returned, *graph.new_states)
    limits = [LIMITS.get(node.dtype, 0.0) for node in nodes]
    for rank in range(ranks):
        differing = []
        for at, node in enumerate(nodes):
            own, whole = found[rank][at], expected[at]
            if at >= count:
                whole = part_of(node, part.new_states[at - count], whole, rank, ranks)
            assert own.shape == whole.shape
            differing.append(is_apart(own, whole, node.dtype, limits[at]))
        if any(each.any() for each in differing[:count]) and captured.undecided is not None:
            outputs = (*found[rank][:count], *expected[count:])
            masks = captured.undecided(outputs, limits)
            golden = (*captured.golden_outputs[:count], *expected[count:])
            rows = zip(differing, masks, expected, golden, nodes, limits, strict=True)
            differing = [
                each & ~mask & ~is_apart(whole, exported, node.dtype, limit)
                if mask is not None and mask.shape == each.shape
                else each
                for each, mask, whole, exported, node, limit in rows
            ]
        assert not any(each.any() for each in differing)


def is_apart(found, expected, dtype, limit):
    """Which elements are further away than a share of the largest one."""
    one, other = (numpy.asarray(widen(each, dtype), numpy.float64) for each in (found, expected))
    finite = numpy.isfinite(other)
    scale = max(1.0, float(numpy.abs(other[finite]).max(initial=0.0)))
    with numpy.errstate(invalid="ignore"):
        away = numpy.where(one == other, 0.0, numpy.abs(one - other))
    away[numpy.isnan(one) & numpy.isnan(other)] = 0.0
    return ~(away <= limit * scale)


class Attention(nn.Module):
    """Heads, a cache of keys that is written at places, a mask."""

    def __init__(self, heads=4, size=8, batch=2):
        super().__init__()
        width = heads * size
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.out = nn.Linear(width, width, bias=False)
        self.heads, self.size, self.batch = heads, size, batch
        self.register_buffer("keys", torch.zeros(batch, heads, 6, size))

    def forward(self, x, at):
        rows = x.shape[1]
        parts = (self.batch, rows, self.heads, self.size)
        query, key = (each(x).view(parts).transpose(1, 2) for each in (self.query, self.key))
        batch = torch.arange(self.batch)[:, None, None]
        heads = torch.arange(self.heads)[None, :, None]
        self.keys.index_put_((batch, heads, at[None, None]), key)
        scores = (query @ self.keys.transpose(2, 3)).softmax(-1)
        found = (scores @ self.keys).transpose(1, 2).reshape(x.shape)
        return self.out(found)


def attention():
    return Attention(), (torch.randn(2, 3, 32), torch.tensor([1, 2, 4]))


def language():
    net = nn.Sequential(nn.Embedding(48, 32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32),
                        nn.LayerNorm(32), nn.Linear(32, 48, bias=False))  # fmt: skip
    net[5].weight = net[0].weight  # tied
    return net, (torch.randint(0, 48, (2, 5)),)


def joint():
    class Net(nn.Module):
        """Query, key and value by one linear layer."""

        def __init__(self):
            super().__init__()
            self.all, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

        def forward(self, x):
            q, k, v = self.all(x).split(32, -1)
            q, k, v = (each.view(2, 5, 4, 8).transpose(1, 2) for each in (q, k, v))
            found = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(found.transpose(1, 2).reshape(2, 5, 32))

    return Net(), (torch.randn(2, 5, 32),)


def recurrence():
    return nn.LSTM(16, 24, num_layers=2, batch_first=True), (torch.randn(2, 4, 16),)


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 16),
                         nn.Softmax(-1)), (torch.randn(2, 3, 8, 8),)  # fmt: skip


MODELS = (attention, language, joint, recurrence, convolutions)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("made", MODELS, ids=lambda made: made.__name__)
def test_models_are_what_they_were(made, ranks):
    torch.manual_seed(ranks)
    net, example = made()
    captured = capture(spec_of(net.eval(), example))
    (part,) = split([captured.graph], ranks, least_bytes=1)
    assert any(node.op == "exchange" for node in part.nodes())
    assert_is_the_whole(captured, part, ranks)


class Written(nn.Module):
    """A cache `[4, 6, 8, 4]` of which rows are written at flat places, or at places by dims."""

    def __init__(self, write):
        super().__init__()
        self.made, self.write = nn.Linear(12, 24), write
        self.register_buffer("keys", torch.zeros(4, 6, 8, 4))

    def forward(self, x, at):
        rows = self.made(x)[:, :2].view(4, 2, 6, 4).transpose(1, 2)
        self.keys.copy_(self.write(self.keys, rows, at).view(4, 6, 8, 4))
        return self.keys * 1


def flat(at):
    return (torch.arange(4)[:, None, None] * 6 + torch.arange(6)[None, :, None]) * 8 + at


WRITES = {
    "index_copy": lambda keys, rows, at: keys.view(-1, 4).index_copy(
        0, flat(at).reshape(-1), rows.reshape(-1, 4)
    ),
    "index_add": lambda keys, rows, at: keys.view(-1, 4).index_add(
        0, flat(at).reshape(-1), rows.reshape(-1, 4)
    ),
    "at least": lambda keys, rows, at: keys.view(-1, 4).scatter_add(
        0, flat(at).reshape(-1, 1).clamp(min=20).expand(-1, 4), rows.reshape(-1, 4)
    ),
    "at most": lambda keys, rows, at: keys.view(-1, 4).scatter_add(
        0, flat(at).reshape(-1, 1).clamp(max=60).expand(-1, 4), rows.reshape(-1, 4)
    ),
    "by dims": lambda keys, rows, at: keys.index_put(
        (torch.arange(4)[:, None, None], torch.arange(6)[None, :, None], at), rows
    ),
}
PLACES = {
    "within": torch.tensor([2, 3]).expand(4, 6, 2),
    "of each head": torch.arange(12).reshape(1, 6, 2) % 8,
    "of the next head": torch.tensor([9, 12]) * (torch.arange(24) < 6).view(4, 6, 1),
    "of the head before": torch.tensor([-3, 2]) * (torch.arange(24) // 6 == 1).view(4, 6, 1),
}


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("write", WRITES)
def test_rows_at_any_places_are_those_of_the_whole(write, places):
    """Places along one dim may reach beyond it where the user adds them up."""
    if write == "by dims" and "head" in places and places != "of each head":
        pytest.skip("the model refuses such places")
    torch.manual_seed(1)
    example = (torch.randn(4, 6, 12), PLACES[places].contiguous())
    captured = capture(spec_of(Written(WRITES[write]).eval(), example))
    for ranks in (2, 3):
        (part,) = split([captured.graph], ranks, least_bytes=1)
        assert_is_the_whole(captured, part, ranks)


def test_rows_that_are_split_within_a_place():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.made = nn.Linear(16, 64)
            self.register_buffer("kept", torch.zeros(2, 8, 64))

        def forward(self, x, at):
            self.kept[torch.arange(2)[:, None], at[None]] = self.made(x)[:, :2]
            return self.kept * 1

    example = (torch.randn(2, 3, 16), torch.tensor([1, 4]))
    captured = capture(spec_of(Net().eval(), example))
    (part,) = split([captured.graph], 2, least_bytes=1)
    assert_is_the_whole(captured, part, 2)


def exchanges(graph):
    return sum(node.op == "exchange" and not node.attr("result") for node in graph.nodes())


def test_a_layer_has_an_exchange_after_each_pair_of_products():
    """Attention with its cache in heads, and a pair of linear layers: one all-reduce each."""
    torch.manual_seed(0)
    net, example = attention()
    (part,) = split([capture(spec_of(net.eval(), example)).graph], 2, least_bytes=1)
    assert exchanges(part) == 1
    assert [node.shape for node in part.inputs[len(part.given) :]] == [(2, 2, 6, 8)]
    net, example = language()
    (part,) = split([capture(spec_of(net.eval(), example)).graph], 2, least_bytes=1)
    assert exchanges(part) == 3  # the rows that are looked up, the pair, and the logits


def test_a_joint_projection_is_split_by_heads():
    torch.manual_seed(0)
    net, example = joint()
    (part,) = split([capture(spec_of(net.eval(), example)).graph], 2, least_bytes=1)
    assert exchanges(part) == 1


def test_small_weights_stay_whole():
    net, example = language()
    graph = capture(spec_of(net.eval(), example)).graph
    (part,) = split([graph], 2)
    assert exchanges(part) == 0


def split_anywhere(graph, ranks, seed, monkeypatch):
    """The graph, of which each value that can be is taken apart now and then."""
    rng = random.Random(seed)

    def anywhere(splitter, node):
        found = sharded(splitter, node)
        axes = [axis for axis in range(node.type.rank) if splitter.divides(node.shape, axis)]
        is_open = found.axis is None and node.op != "check" and not splitter.is_constant(node)
        if is_open and axes and rng.random() < 0.4:
            axis = rng.choice(axes)
            return Sharded(splitter.part(found.node, axis), axis)
        return found

    monkeypatch.setattr(splitting, "sharded", anywhere)
    (part,) = split([graph], ranks, least_bytes=1)
    return part


@pytest.mark.parametrize("seed", [0, 1, 2, *MORE])
@pytest.mark.parametrize("family", FAMILIES)
def test_programs_of_the_fuzzer_split_anywhere(family, seed, tmp_path, monkeypatch):
    path = tmp_path / "program.py"
    task = Task(family, FIRST + seed, Choice(is_dynamic=False, has_gradients=False))
    path.write_text(task.program().source())
    try:
        captured = capture(load_spec(str(path)))
    except AotcError as refused:
        pytest.skip(f"refused: {refused}")
    part = split_anywhere(captured.graph, 2, seed, monkeypatch)
    assert_is_the_whole(captured, part, 2)
