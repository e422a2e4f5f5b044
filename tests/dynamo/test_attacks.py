"""What training scripts do beside a plain step: each is eager's, or is refused by a name."""

from __future__ import annotations

import copy

import pytest
import torch
from dynamo_models import Perceptron
from torch import nn
from torch.nn import functional

from aotc.aot.dynamo import aotc

pytestmark = [pytest.mark.torch, pytest.mark.triton]
STRICT = {"fallback": "error"}


def compiled_copy(module, **compiling):
    own = copy.deepcopy(module)
    return own, torch.compile(own, backend=aotc, options=STRICT, **compiling)


def assert_gradients(own, module, atol=1e-5):
    for one, other in zip(own.parameters(), module.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=atol)


def test_a_graph_is_differentiated_twice_over_the_same_values(fresh):
    module, x = Perceptron(), torch.randn(5, 12)
    own, compiled = compiled_copy(module)
    for each in (module, compiled):
        loss = each(x).square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
    assert_gradients(own, module)


def test_a_graph_that_was_freed_says_so(fresh):
    loss = compiled_copy(Perceptron())[1](torch.randn(5, 12)).square().sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_gradients_of_gradients_are_refused_by_name(fresh):
    x = torch.randn(5, 12, requires_grad=True)
    result = compiled_copy(Perceptron())[1](x).square().sum()
    (gradient,) = torch.autograd.grad(result, x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        gradient.sum().backward()


def test_hooks_on_parameters_and_results_run(fresh):
    module, x = Perceptron(), torch.randn(5, 12)
    own, compiled = compiled_copy(module)
    for each, called in ((module, module), (own, compiled)):
        for weight in each.parameters():
            weight.register_hook(lambda gradient: gradient * 2)
        result = called(x)
        result.register_hook(lambda gradient: gradient.clamp(-1, 1))
        result.square().sum().backward()
    assert_gradients(own, module)


def test_an_argument_that_requires_a_gradient_is_written_to(fresh):
    def model(x, weight):
        x.add_(weight)
        return x.sin() + x

    compiled = torch.compile(model, backend=aotc, options=STRICT)
    found = []
    for each in (model, compiled):
        torch.manual_seed(0)
        leaf, weight = torch.randn(4, 3, requires_grad=True), torch.randn(3, requires_grad=True)
        x = leaf * 1
        each(x, weight).square().sum().backward()
        found.append((x.detach(), leaf.grad, weight.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_writes_show_through_views_of_the_argument(fresh):
    def model(x):
        x[1:].add_(1)
        return x[0], x.view(-1)[2:] * 2

    compiled = torch.compile(model, backend=aotc, options=STRICT)
    one, other = torch.zeros(3, 4), torch.zeros(3, 4)
    expected, found = model(one), compiled(other)
    assert torch.equal(one, other)
    assert found[0].data_ptr() == other.data_ptr()
    for each, wanted in zip(found, expected, strict=True):
        assert torch.equal(each, wanted)


class Tied(nn.Module):
    """One weight as table and head, another module used twice, and weights that nothing reads."""

    def __init__(self):
        super().__init__()
        self.table, self.inner, self.unread = nn.Embedding(7, 6), nn.Linear(6, 6), nn.Linear(2, 2)
        self.head = nn.Linear(6, 7, bias=False)
        self.head.weight = self.table.weight
        self.frozen = nn.Linear(6, 6).requires_grad_(False)

    def forward(self, tokens):
        x = self.inner(self.frozen(self.inner(self.table(tokens)).tanh()))
        return self.head(x), x.argmax(-1)


def test_shared_frozen_and_unread_weights(fresh):
    module, tokens = Tied(), torch.randint(0, 7, (3, 4))
    own, compiled = compiled_copy(module)
    results = []
    for called in (module, compiled):
        logits, places = called(tokens)
        logits.square().sum().backward()
        results.append((logits, places))
    torch.testing.assert_close(results[1][0], results[0][0])
    assert torch.equal(results[1][1], results[0][1])
    assert results[1][1].dtype == torch.int64
    assert own.head.weight is own.table.weight
    assert_gradients(own, module)


def test_only_some_results_are_differentiated(fresh):
    def model(x, y):
        return x.sin() * y, y.cos(), x.detach() + 1, (x > 0)

    compiled = torch.compile(model, backend=aotc, options=STRICT)
    x, y = (torch.randn(4, requires_grad=True) for _ in range(2))
    _, second, third, fourth = compiled(x, y)
    second.sum().backward()
    torch.testing.assert_close(y.grad, -y.detach().sin())
    assert x.grad is None or not x.grad.any()
    assert not third.requires_grad
    assert fourth.dtype == torch.bool


@pytest.mark.parametrize("shape", [(0, 12), (1, 12)])
def test_batches_of_none_and_of_one(shape, fresh):
    module, x = Perceptron(), torch.randn(shape)
    own = copy.deepcopy(module)
    compiled = torch.compile(own, backend=aotc, options={"fallback": "eager"})
    for each in (module, compiled):
        result = each(x)
        result.square().sum().backward()
        assert result.shape == (shape[0], 8)
    assert_gradients(own, module)


def test_gradients_come_in_any_layout(fresh):
    module, x = nn.Conv2d(3, 4, 3), torch.randn(2, 3, 6, 7)
    own, compiled = compiled_copy(module)
    seeds = (
        torch.randn(2, 5, 4, 4).transpose(1, 3),
        torch.randn(2, 4, 4, 10)[..., ::2],
        torch.ones(()).expand(2, 4, 4, 5),
    )
    for seed in seeds:
        for each, called in ((module, module), (own, compiled)):
            each.zero_grad()
            called(x).backward(seed)
        assert_gradients(own, module)


def test_modes_alternate(fresh):
    module = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.5))
    own, compiled = compiled_copy(module)
    x = torch.randn(5, 6)
    for is_training in (True, False, True):
        for each, called in ((module, module), (own, compiled)):
            each.train(is_training)
            each.zero_grad()
            torch.manual_seed(1)
            called(x).square().sum().backward()
        assert_gradients(own, module, atol=1e-4)  # a norm takes the gradient of what it shifts
    torch.testing.assert_close(own[1].running_var, module[1].running_var)


def test_inference_mode_and_a_later_step(fresh):
    module, x = Perceptron(), torch.randn(5, 12)
    own, compiled = compiled_copy(module)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), module(x))
    with torch.no_grad():
        for each in (*own.parameters(), *module.parameters()):
            each.data.mul_(0.5)  # a write that no version counter sees
        torch.testing.assert_close(compiled(x), module(x))
    for each in (module, compiled):
        functional.mse_loss(each(x), torch.ones(5, 8)).backward()
    assert_gradients(own, module)


def test_a_scaler_and_clipping(fresh):
    module, x = Perceptron(), torch.randn(5, 12)
    own, compiled = compiled_copy(module)
    for each, called in ((module, module), (own, compiled)):
        (called(x).square().sum() * 1024).backward()
        for weight in each.parameters():
            weight.grad.div_(1024)
        nn.utils.clip_grad_norm_(each.parameters(), 0.1)
    assert_gradients(own, module)


def test_jacobians_of_compiled_functions_go_row_by_row(fresh):
    module, x = nn.Linear(4, 3), torch.randn(4)
    _, compiled = compiled_copy(module)
    found = torch.autograd.functional.jacobian(compiled, x)
    torch.testing.assert_close(found, module.weight.detach())
