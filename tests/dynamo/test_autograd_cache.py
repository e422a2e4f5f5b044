"""A graph that torch's cache keeps is found before AOTAutograd begins."""

from __future__ import annotations

import pytest
import torch
from dynamo_models import Mutation, Perceptron

from aotc.aot.dynamo import autograd
from aotc.aot.dynamo.programs import counting

pytestmark = [pytest.mark.torch, pytest.mark.triton, pytest.mark.slow]


@pytest.fixture
def no_autograd(monkeypatch):
    """From when it is called, AOTAutograd may not begin."""

    def forbid():
        def refused(*arguments, **named):
            raise AssertionError("AOTAutograd began")

        torch._dynamo.reset()
        monkeypatch.setattr(autograd, "aot_module_simplified", refused)

    return forbid


def gradients(module, x):
    torch.compile(module, backend="aotc")(x.clone()).square().sum().backward()
    return [each.grad.clone() for each in module.parameters()]


@pytest.mark.parametrize("build", [Perceptron, Mutation], ids=["perceptron", "mutation"])
def test_forward_and_backward(fresh, no_autograd, build):
    torch.manual_seed(1)
    module, x = build(), torch.randn(5, 12 if build is Perceptron else 6)
    first = gradients(module, x)
    module.zero_grad()
    for buffer in module.buffers():
        buffer.zero_()
    no_autograd()
    skipped = counting().traces_skipped
    assert all(map(torch.equal, first, gradients(module, x)))
    assert counting().traces_skipped == skipped + 2


def test_without_gradients(fresh, no_autograd):
    module, x = Perceptron(), torch.randn(5, 12)
    with torch.no_grad():
        expected = torch.compile(module, backend="aotc")(x)
        no_autograd()
        assert torch.equal(torch.compile(module, backend="aotc")(x), expected)


def test_other_shapes_are_traced(fresh, no_autograd):
    module = Perceptron()
    with torch.no_grad():
        torch.compile(module, backend="aotc", dynamic=False)(torch.randn(5, 12))
        no_autograd()
        with pytest.raises(Exception, match="AOTAutograd began"):
            torch.compile(module, backend="aotc", dynamic=False)(torch.randn(6, 12))


def test_a_number_of_the_graph_that_was_a_float_of_the_call_is_not_kept(fresh):
    """torch's entry has no guard on it, so that it would be taken for other floats."""

    def model(x, scale):
        return x * scale, scale * 3 + 1

    for _ in range(2):
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="aotc")
        for scale in (1.5, 2.5, 3.5):
            made, number = compiled(torch.ones(3), scale)
            assert torch.equal(made, torch.full((3,), scale))
            assert number == scale * 3 + 1


def test_a_float_that_is_a_tensor_to_the_graph_is_kept(fresh):
    def results():
        torch._dynamo.reset()
        compiled = torch.compile(lambda x, scale: x * scale, backend="aotc")
        return [compiled(torch.ones(3), scale) for scale in (1.5, 2.5, 3.5)]

    first, skipped = results(), counting().traces_skipped
    assert all(map(torch.equal, first, results()))
    assert counting().traces_skipped == skipped + 2
