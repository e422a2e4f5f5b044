"""`backend="aotc"` beside eager: results, strides, gradients, buffers and arguments."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
from dynamo_models import GOLDEN, Perceptron
from torch import nn

from aotc.aot.dynamo import aotc
from aotc.aot.dynamo.programs import counters

pytestmark = [pytest.mark.torch, pytest.mark.triton]
STRICT = {"fallback": "error"}


def leaves(result):
    return result if isinstance(result, tuple) else (result,)


def run(module, arguments, grad=True):
    """Results, gradients of arguments and weights, and what the module and arguments are after."""
    arguments = [each.detach().clone().requires_grad_(each.requires_grad) for each in arguments]
    given = [each * 1 if each.requires_grad else each for each in arguments]
    results = leaves(module(*given))
    floats = [each for each in results if torch.is_tensor(each) and each.requires_grad]
    if grad:
        seeds = [torch.linspace(-1, 1, each.numel()).view(each.shape) for each in floats]
        torch.autograd.backward(floats, seeds)
    gradients = [each.grad for each in (*arguments, *module.parameters())]
    return results, gradients, [*given, *module.buffers()]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        if not torch.is_tensor(other):
            assert one == other
            continue
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        assert one.stride() == other.stride()


def test_torch_finds_the_back_end_by_its_name():
    code = "import torch; print('aotc' in torch._dynamo.list_backends())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "True"


@pytest.mark.parametrize("model", GOLDEN, ids=str)
def test_results_and_gradients_are_those_of_eager(model, fresh):
    module = model.build()
    compiled = torch.compile(copy.deepcopy(module), backend=aotc, options=STRICT)
    arguments = model.example()
    before = counters()["graphs"]
    for _ in range(2):  # the second call meets buffers that the first one changed
        expected, wanted, state = run(module, arguments)
        found, gradients, after = run(compiled, arguments)
        assert_same(found, expected)
        assert_same(after, state)
        for one, other in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert counters()["graphs"] - before >= model.graphs


# Their graphs without gradients hold nothing that those with gradients, above, do not.
LONG = ("one-break", "several-breaks", "gathering")
WITHOUT_GRADIENTS = [
    pytest.param(model, marks=pytest.mark.nightly if model.name in LONG else (), id=model.name)
    for model in GOLDEN
]


@pytest.mark.parametrize("model", WITHOUT_GRADIENTS)
def test_inference_is_that_of_eager(model, fresh):
    module = model.build().eval()
    compiled = torch.compile(copy.deepcopy(module), backend=aotc, options=STRICT)
    arguments = [each.detach() for each in model.example()]
    with torch.no_grad():
        expected, _, state = run(module, arguments, grad=False)
        found, _, after = run(compiled, arguments, grad=False)
    assert_same(found, expected)
    assert_same(after, state)


def test_results_that_alias_arguments_share_their_memory(fresh):
    def model(x, y):
        return x, x.t(), (x + y).sum()

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    same, turned, _ = torch.compile(model, backend=aotc, options=STRICT)(x, y)
    assert same is x
    assert turned.data_ptr() == x.data_ptr()


def test_arguments_may_lie_in_any_order_of_memory(fresh):
    def model(x, y):
        return x * 2 + y

    compiled = torch.compile(model, backend=aotc, options=STRICT)
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    y = torch.randn(2, 3, 4, 10)[..., ::2]
    found = compiled(x, y)
    torch.testing.assert_close(found, model(x, y))
    assert found.stride() == model(x, y).stride()


def test_a_whole_graph_may_be_asked_for(fresh):
    module, x = Perceptron(), torch.randn(5, 12)
    compiled = torch.compile(module, backend=aotc, options=STRICT, fullgraph=True)
    torch.testing.assert_close(compiled(x), module(x))


def test_autocast_computes_in_bfloat16(fresh):
    module, x = Perceptron(), torch.randn(5, 12)
    compiled = torch.compile(module, backend=aotc, options=STRICT)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = compiled(x), module(x)
    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
    found.float().sum().backward()
    gradients = [each.grad.clone() for each in module.parameters()]
    module.zero_grad()
    expected.float().sum().backward()
    for one, other in zip(gradients, module.parameters(), strict=True):
        torch.testing.assert_close(one, other.grad, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layers_that_torch_calls_whole(norm_first, fresh):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=norm_first).eval()
    compiled = torch.compile(layer, backend=aotc, options=STRICT)
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layer(x), rtol=1e-4, atol=1e-5)


def test_gradients_accumulate(fresh):
    module = Perceptron()
    compiled = torch.compile(copy.deepcopy(module), backend=aotc, options=STRICT)
    for x in (torch.randn(5, 12), torch.randn(5, 12)):
        for each in (module, compiled):
            each(x).square().sum().backward()
    for one, other in zip(compiled.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)


def test_checkpoints_are_recomputed_to_the_same_gradients(fresh):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.head = Perceptron(), nn.Linear(8, 3)

        def forward(self, x):
            seen = torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)
            return self.head(seen.relu())

    module, x = Checkpointed(), torch.randn(5, 12)
    compiled = torch.compile(copy.deepcopy(module), backend=aotc, options=STRICT)
    for each in (module, compiled):
        each(x).square().sum().backward()
    for one, other in zip(compiled.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)


def test_an_op_without_a_gradient_says_so(fresh):
    @torch.library.custom_op("aotc_tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    doubled.register_fake(torch.empty_like)
    x = torch.randn(3, requires_grad=True)
    compiled = torch.compile(
        lambda x: doubled(x * 3).sum(), backend=aotc, options={"fallback": "eager"}
    )
    with pytest.raises(Exception, match=r"(?s)doubled.*autograd|autograd.*doubled"):
        compiled(x).backward()
