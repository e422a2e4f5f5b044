"""What a forward graph keeps for its backward lies as convolutions compute it, and never shows."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from aotc.aot.dynamo import aotc, calling

pytestmark = [pytest.mark.torch, pytest.mark.triton]
STRICT = {"fallback": "error"}


class Residual(nn.Module):
    """Convolution, norm and activation beside a shortcut, pooled; a feature map is a result too."""

    def __init__(self, gives_features=False):
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8 * 9, 5)
        self.gives_features = gives_features

    def forward(self, x):
        x = self.first(x)
        features = functional.silu(self.norm(x))
        pooled = functional.max_pool2d(self.second(features) + features, 3, 2, 1)
        result = self.head(functional.max_pool2d(pooled, 2).relu().flatten(1))
        return (result, features, x.flatten(2)) if self.gives_features else result


class Attending(nn.Module):
    """A patch embedding whose positions become tokens."""

    def __init__(self):
        super().__init__()
        self.patches, self.mixed = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 24)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        query, key, value = self.mixed(tokens.sin()).chunk(3, -1)
        return ((query @ key.transpose(1, 2)).softmax(-1) @ value).square()


def chain(*layers):
    return lambda: nn.Sequential(*layers)


CASES = {
    "residual": (Residual, (2, 4, 12, 12)),
    "features": (lambda: Residual(True), (2, 4, 12, 12)),
    "tokens": (Attending, (2, 3, 8, 16)),
    "one dim": (chain(nn.Conv1d(4, 6, 3), nn.GELU(), nn.Conv1d(6, 2, 3)), (2, 4, 11)),
    "three dims": (chain(nn.Conv3d(2, 4, 2), nn.Tanh(), nn.Conv3d(4, 3, 2)), (2, 2, 5, 4, 6)),
    "depthwise": (
        chain(nn.Conv2d(6, 6, 3, groups=6), nn.ReLU6(), nn.Conv2d(6, 4, 1), nn.GroupNorm(2, 4)),
        (2, 6, 7, 5),
    ),
    "pooled in rows": (
        chain(nn.Conv2d(2, 4, 3), nn.MaxPool2d((2, 3), ceil_mode=True), nn.Sigmoid()),
        (1, 2, 9, 10),
    ),
    "without a batch": (chain(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2)), (2, 9, 10)),
}


def results_and_gradients(module, called, x):
    module.zero_grad()
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    results = called(x)
    results = results if isinstance(results, tuple) else (results,)
    torch.autograd.backward([each.sin().sum() for each in results])
    return [*results, x.grad, *(weight.grad for weight in module.parameters())]


@pytest.mark.parametrize("is_last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("case", CASES)
def test_it_shows_in_no_result_and_no_gradient(case, is_last, fresh):
    build, shape = CASES[case]
    if is_last and len(shape) != 4:
        pytest.skip("there is no such format")
    x = torch.randn(shape)
    x = x.to(memory_format=torch.channels_last) if is_last else x
    module = build()
    own = copy.deepcopy(module)
    compiled = torch.compile(own, backend=aotc, options=STRICT)
    expected = results_and_gradients(module, module, x)
    found = results_and_gradients(own, compiled, x)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    count = 3 if case == "features" else 1
    assert [each.stride() for each in found[:count]] == [each.stride() for each in expected[:count]]


def test_results_of_convolutions_are_kept_channels_last(fresh):
    result = torch.compile(Residual(), backend=aotc, options=STRICT)(torch.randn(2, 4, 12, 12))
    kept = [each for each in result.grad_fn.saved_tensors if each.shape == (2, 8, 12, 12)]
    assert kept
    assert all(each.is_contiguous(memory_format=torch.channels_last) for each in kept)


VIEWS = {
    "chunk": lambda x: x.chunk(4, -1)[-1],
    "split": lambda x: x.split([1, 2], 1)[1],
    "unbind": lambda x: x.unbind(2)[1],
    "tensor_split": lambda x: x.tensor_split(2, 0)[1],
    "part of a part": lambda x: x.chunk(2, 1)[0].unbind(0)[1],
    "view of a part": lambda x: x.chunk(2, 1)[1].transpose(1, 2),
    "part of a view": lambda x: x.flatten(2).split(7, 2)[1],
    "slice": lambda x: x[:, 1:, ::2],
    "select": lambda x: x.select(1, 2),
    "diagonal": lambda x: x.diagonal(0, 2, 3),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_result_may_be_any_view_of_what_is_kept(name, fresh):
    """`convolutions 202611283032`: parts of splits were not seen as views."""

    def call(x, first, second):
        kept = functional.conv2d(x, first, padding=1)
        return functional.conv2d(kept, second), VIEWS[name](kept)

    generator = torch.Generator().manual_seed(3)
    shapes = ((2, 4, 6, 5), (3, 4, 3, 3), (2, 3, 2, 2))
    inputs = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    expected = call(*inputs)
    found = torch.compile(call, backend=aotc, options=STRICT)(*inputs)
    for own, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(own, wanted)
    slopes = [torch.randn(each.shape, generator=generator) for each in expected]
    pairs = [torch.autograd.grad(each, inputs, slopes) for each in (found, expected)]
    for own, wanted in zip(*pairs, strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-4, atol=1e-4)


def test_hooks_may_give_what_was_kept_in_another_layout(fresh):
    module, x = Residual(), torch.randn(2, 4, 12, 12)
    own = copy.deepcopy(module)
    compiled = torch.compile(own, backend=aotc, options=STRICT)
    compiled(x)
    expected = results_and_gradients(module, module, x)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda kept: kept.contiguous(), lambda kept: kept
    ):
        found = results_and_gradients(own, compiled, x)
    for one, other in zip(found[1:], expected[1:], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_a_copy_that_lies_otherwise(fresh):
    def model(x):
        return torch.ops.prims.copy_strided(x * 2, [1, 3])

    x = torch.randn(3, 4)
    found = torch.compile(model, backend=aotc, options={"fallback": "error"})(x)
    assert torch.equal(found, x * 2)
    assert found.stride() == (1, 3)


@pytest.mark.parametrize("dynamic", [False, True])
def test_results_with_gaps_in_their_memory(dynamic, fresh):
    def model(x):
        alike = torch.empty_strided(x.size(), x.stride())
        alike[:] = x + x
        transposed = torch.empty_strided((x.size(1), x.size(0)), (1, 2 * x.size(1) + 1))
        transposed.copy_(x.t())
        return alike, alike + 1, transposed, transposed * 2

    compiled = torch.compile(model, backend=aotc, options=STRICT, dynamic=dynamic)
    for columns in (8, 5):
        x = torch.randn(6, 16)[:, :columns]
        for found, expected in zip(compiled(x), model(x), strict=True):
            assert torch.equal(found, expected)
            assert found.stride() == expected.stride()


@pytest.mark.parametrize("dynamic", [False, True])
def test_arguments_that_lie_as_expected_are_not_looked_at_one_by_one(dynamic, monkeypatch):
    laid = []
    monkeypatch.setattr(calling, "_laid", lambda value, row: laid.append(value) or value)
    compiled = torch.compile(lambda x, y: x @ y.T + 1, backend="aotc", dynamic=dynamic)
    for rows in (5, 6):
        x, y = torch.randn(rows, 4), torch.randn(3, 4)
        assert torch.allclose(compiled(x, y), x @ y.T + 1, atol=1e-6)
    assert laid == []
