"""Dropout and other random numbers inside of graphs are eager's own, forward and backward."""

from __future__ import annotations

import copy

import pytest
import torch
from dynamo_models import Transformer
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from aotc.aot.dynamo import aotc
from aotc.aot.dynamo.programs import counters

pytestmark = [pytest.mark.torch, pytest.mark.triton]
STRICT = {"fallback": "error"}


class Layer(nn.Module):
    """A linear between two functions."""

    def __init__(self, before, after, width=6):
        super().__init__()
        self.before, self.after, self.linear = before, after, nn.Linear(width, width)

    def forward(self, x):
        return self.after(self.linear(self.before(x)))


def assert_as_eager(module, *inputs, seeds=(1, 2), options=None, **compiling):
    """Results, gradients and what the generator gives next are eager's, seed after seed."""
    own = copy.deepcopy(module)
    compiled = torch.compile(own, backend=aotc, options=options or STRICT, **compiling)
    for seed in seeds:
        found = []
        for each, called in ((module, module), (own, compiled)):
            each.zero_grad()
            torch.manual_seed(seed)
            result = called(*inputs)
            result.float().square().sum().backward()
            gradients = [weight.grad for weight in each.parameters()]
            found.append([result.detach(), *gradients, torch.rand(3)])
        for one, other in zip(found[1], found[0], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        assert torch.equal(found[0][0] == 0, found[1][0] == 0)


def dropped(p, **named):
    return lambda x: functional.dropout(x, p, **named)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_dropout(p, fresh):
    before = counters()["regions_left"]
    assert_as_eager(Layer(dropped(0.3), dropped(p)), torch.randn(5, 6))
    assert counters()["regions_left"] == before


KINDS = {
    "by chances": (lambda x: x + torch.bernoulli(torch.sigmoid(x)), (5, 6)),
    "in place": (lambda x: functional.dropout(x * 2, 0.4, inplace=True), (5, 6)),
    "alpha": (lambda x: functional.alpha_dropout(x, 0.3, training=True), (5, 6)),
    "feature alpha": (lambda x: functional.feature_alpha_dropout(x, 0.3, True), (2, 4, 3, 6)),
    "whole channels": (functional.dropout2d, (2, 4, 3, 6)),
    "noise": (lambda x: x + torch.randn_like(x) * torch.rand(6), (5, 6)),
    "whole numbers": (lambda x: x * torch.randint(0, 5, (6,)) + torch.randperm(6), (5, 6)),
    "into another": (lambda x: x * torch.empty_like(x).uniform_(0.5, 1.5), (5, 6)),
    "exponential": (lambda x: x - torch.empty(6).exponential_().log(), (5, 6)),
    "normal": (lambda x: x + torch.zeros(6).normal_(1.0, 2.0), (5, 6)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_other_draws(kind, fresh):
    draw, shape = KINDS[kind]
    assert_as_eager(Layer(draw, dropped(0.5)), torch.randn(shape))


@pytest.mark.parametrize("turn", ["channels last", "transposed", "slice"])
def test_masks_follow_the_memory_of_what_they_mask(turn, fresh):
    x = torch.randn(2, 3, 4, 6)
    given = {
        "channels last": x.to(memory_format=torch.channels_last),
        "transposed": torch.randn(2, 4, 3, 6).transpose(1, 2),
        "slice": torch.randn(2, 3, 8, 6)[:, :, ::2],
    }[turn]
    assert_as_eager(Layer(dropped(0.5), torch.sin), given)


def test_sizes_of_a_call(fresh):
    module = Layer(dropped(0.3), dropped(0.5))
    before = counters()["graphs"]
    own = copy.deepcopy(module)
    compiled = torch.compile(own, backend=aotc, options=STRICT, dynamic=True)
    for rows in (4, 9, 4):
        x = torch.randn(rows, 6)
        for each in (module, own):
            each.zero_grad()
        results = []
        for each in (module, compiled):
            torch.manual_seed(rows)
            results.append(each(x))
            results[-1].square().sum().backward()
        torch.testing.assert_close(*results)
        torch.testing.assert_close(own.linear.weight.grad, module.linear.weight.grad)
    assert counters()["graphs"] - before == 2


def test_attention_with_dropout(fresh):
    def attend(x):
        heads = x.view(2, 5, 2, 3).transpose(1, 2)
        return functional.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.4)

    assert_as_eager(Layer(torch.sin, attend), torch.randn(2, 5, 6))


def test_layers_of_torchs_own(fresh):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
    assert_as_eager(layer, torch.randn(2, 5, 8))


def test_autocast(fresh):
    module, x = Layer(dropped(0.3), dropped(0.5)), torch.randn(5, 6)
    compiled = torch.compile(module, backend=aotc, options=STRICT)
    results = []
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for each in (module, compiled):
            torch.manual_seed(3)
            results.append(each(x))
    assert results[1].dtype == torch.bfloat16
    torch.testing.assert_close(*results, rtol=2e-2, atol=2e-2)
    assert torch.equal(results[0] == 0, results[1] == 0)


class Checkpointed(nn.Module):
    """Dropout inside of a checkpoint, before and behind it."""

    def __init__(self, saves_state):
        super().__init__()
        self.inner, self.outer = Layer(dropped(0.3), dropped(0.5)), Layer(dropped(0.2), torch.sin)
        self.saves_state = saves_state

    def forward(self, x):
        x = functional.dropout(x, 0.1)
        named = {"use_reentrant": False, "preserve_rng_state": self.saves_state}
        return self.outer(checkpoint(self.inner, x, **named))


def test_checkpoints_drop_the_same_twice(fresh):
    assert_as_eager(Checkpointed(True), torch.randn(5, 6))


def test_a_transformer_with_dropout_of_several_graphs(fresh):
    class Broken(Transformer):
        def forward(self, tokens):
            x = self.blocks[0](self.tokens(tokens))
            torch._dynamo.graph_break()
            return self.head(functional.dropout(x, 0.5))

    assert_as_eager(Broken(dropout=0.5), torch.randint(0, 20, (2, 8)))


def test_gradients_accumulate_over_two_draws(fresh):
    module = Layer(dropped(0.3), dropped(0.5))
    own = copy.deepcopy(module)
    compiled = torch.compile(own, backend=aotc, options=STRICT)
    x = torch.randn(5, 6)
    for each in (module, compiled):
        torch.manual_seed(4)
        (each(x) + each(x)).square().sum().backward()
    torch.testing.assert_close(own.linear.weight.grad, module.linear.weight.grad)


def test_draws_of_what_is_computed_are_left_by_name(fresh):
    def drawn(x):
        return x + torch.multinomial(torch.sigmoid(x), 6)

    module = Layer(torch.sigmoid, drawn)
    assert_as_eager(module, torch.randn(5, 6), options={"fallback": "eager"})
    torch._dynamo.reset()
    compiled = torch.compile(module, backend=aotc, options=STRICT)
    with pytest.raises(Exception, match=r"multinomial.* draws random numbers"):
        compiled(torch.randn(5, 6))


@pytest.mark.parametrize("fallback", ["eager", "inductor"])
def test_draws_around_one_that_is_left_keep_their_order(fallback, fresh):
    """What draws behind it is left as well, in the order of the graph, whatever it depends on."""

    def drawn(x):
        first = torch.randn_like(x)
        chosen = torch.multinomial(torch.sigmoid(x + first), 6)
        late = torch.rand(6)
        return (
            x + first + chosen * torch.bernoulli(torch.sigmoid(x)) + functional.dropout(late, 0.3)
        )

    module = Layer(torch.sigmoid, drawn)
    assert_as_eager(module, torch.randn(5, 6), options={"fallback": fallback})
