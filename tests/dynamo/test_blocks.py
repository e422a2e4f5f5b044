"""What is kept for a backward graph lies in one block, with the intermediates of both programs.

Blocks are for GPUs; here programs of processors have them, with buffers of every size.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional

import aotc.aot.plan.blocks as plan_blocks
from aotc.aot.dynamo import call_blocks, region_blocks
from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, make

pytestmark = pytest.mark.torch


@pytest.fixture
def bases(fresh, monkeypatch, tmp_path):
    """Where the blocks of backward calls began, 0 where they had memory of their own."""
    monkeypatch.setenv("AOTC_CACHE_DIR", str(tmp_path / "aotc"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    monkeypatch.setattr(region_blocks, "ON_PROCESSORS", True)
    monkeypatch.setattr(region_blocks, "LEAST_BYTES", 0)
    monkeypatch.setattr(plan_blocks, "LEAST_BYTES", 64)
    found, base = [], call_blocks.CallBlocks._base

    def seen(self, *arguments):
        found.append(base(self, *arguments))
        return found[-1]

    monkeypatch.setattr(call_blocks.CallBlocks, "_base", seen)
    return found


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(16)
        self.second = torch.nn.Conv2d(16, 16, 3, padding=1)
        self.last = torch.nn.Linear(16, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = functional.gelu(x + torch.relu(self.second(x)))
        return self.last(x.mean((2, 3)))


def gradients(module, loss):
    module.zero_grad()
    loss.backward()
    return [each.grad.double() for each in module.parameters()]


def near(module, wide, x, result):
    """The gradients of a module beside those of its copy in f64, as eager's are."""
    ours = gradients(module, result.square().sum())
    eager = gradients(module, module(x).square().sum())
    exact = gradients(wide, wide(x.double()).square().sum())
    for own, other, right in zip(ours, eager, exact, strict=True):
        limit = 4 * (other - right).abs().max() + 1e-5 * right.abs().max()
        assert (own - right).abs().max() <= limit


def pair():
    module = Net()
    return module, copy.deepcopy(module).double(), torch.compile(module, backend="aotc")


def test_backward_writes_into_the_block_of_what_was_kept(bases):
    module, wide, compiled = pair()
    for size in (32, 32, 17):
        x = torch.randn(2, 3, size, size)
        near(module, wide, x, compiled(x))
    assert bases
    assert all(bases)


def test_a_graph_that_is_retained_keeps_what_it_has(bases):
    module, wide, compiled = pair()
    x = torch.randn(2, 3, 24, 24)
    loss = compiled(x).square().sum()
    first = torch.autograd.grad(loss, list(module.parameters()), retain_graph=True)
    second = torch.autograd.grad(loss, list(module.parameters()))
    assert all(map(torch.equal, first, second))
    assert not bases[0]
    assert bases[1]
    near(module, wide, x, compiled(x))


def test_memory_in_place_of_a_block_has_what_is_scratch_alone(bases):
    row = call_blocks.CallBlock(1 << 20, False, ((0, 0), (1, 4096)), 1024)
    scratch = ((0, 512, 0), (0, 1024, 512), (0, 65536, 768))
    blocks = call_blocks.CallBlocks(call_blocks.Blocks((row,), scratch), 2, [], made)
    addresses, held = blocks.scratch([0, 4096], [torch.empty(1), torch.empty(1)])
    (memory,) = held
    assert [each - memory.data_ptr() for each in addresses] == [0, 512, 768]
    assert memory.numel() == 1024
    assert bases == [0]


def made(shape, strides, dtype):
    return torch.empty_strided(shape, strides, dtype=dtype)


def test_places_in_storages_are_read_where_they_lie(bases):
    def strided(x, w):
        inner = torch.tanh(x @ w)
        part = torch.exp(inner.as_strided((8, 8), (16, 2), 3))
        return (part * part.sin()).sum() + (inner * inner.cos()).sum()

    x, w = (torch.randn(16, 16, requires_grad=True) for _ in range(2))
    expected = torch.autograd.grad(strided(x, w), (x, w))
    found = torch.autograd.grad(torch.compile(strided, backend="aotc")(x, w), (x, w))
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)
    assert not bases


def test_calls_that_wait_for_their_backward_have_blocks_of_their_own(bases):
    module, wide, compiled = pair()
    inputs = [torch.randn(2, 3, 16, 16) for _ in range(3)]
    results = [compiled(x) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        near(module, wide, x, result)
    assert len(set(bases)) == len(inputs)
    assert all(bases)


def test_tensors_that_hooks_give_back_elsewhere_are_read_where_they_lie(bases):
    module, wide, compiled = pair()
    x = torch.randn(2, 3, 16, 16)
    near(module, wide, x, compiled(x))
    bases.clear()
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone):
        result = compiled(x)
    near(module, wide, x, result)
    assert not any(bases)


def test_what_a_hook_holds_is_not_written_to(bases):
    _, _, compiled = pair()
    held = []

    def pack(tensor):
        held.append((tensor, tensor.clone()))
        return tensor

    x = torch.randn(2, 3, 16, 16)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = compiled(x)
    result.square().sum().backward()
    assert held
    assert all(torch.equal(*each) for each in held)
    assert not any(bases)


def test_a_result_that_is_kept_too_is_the_users(bases):
    weight = torch.nn.Parameter(torch.randn(64, 64))

    @torch.compile(backend="aotc")
    def compiled(x):
        inner = torch.tanh(x @ weight)
        return inner, torch.tanh(inner @ weight).exp()

    x = torch.randn(128, 64)
    inner, outer = compiled(x)
    before = inner.detach().clone()
    outer.sum().backward()
    assert torch.equal(inner, before)


# Four chains have all activations in every place; the others are of other sizes.
@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, 12), marks=pytest.mark.nightly)], ids=["few", "many"]
)
def test_random_chains_have_the_gradients_of_f64(bases, seeds):
    for seed in seeds:
        torch.manual_seed(seed)
        torch._dynamo.reset()
        widths = torch.randint(3, 80, (4,)).tolist()
        acts = [torch.nn.GELU(), torch.nn.Tanh(), torch.nn.SiLU(), torch.nn.Softmax(-1)]
        layers = []
        for number, (a, b) in enumerate(zip(widths, [*widths[1:], 7], strict=True)):
            layers += [torch.nn.Linear(a, b), acts[(seed + number) % 4], torch.nn.LayerNorm(b)]
        module = torch.nn.Sequential(*layers)
        wide = copy.deepcopy(module).double()
        x = torch.randn(33, widths[0])
        near(module, wide, x, torch.compile(module, backend="aotc")(x))
    assert any(bases)


def test_what_is_kept_lies_in_the_order_in_which_it_is_made_small_results_first():
    x = make("input", (), {"name": "x", "dtype": "f32", "shape": (512, 512)})
    first = make("exp", (x,))
    second = make("exp", (first,))
    sums = build.drop(build.reduce("sum", second, (1,)), (1,))
    graph = Graph((x,), (second, sums, first), ("x",), ("second", "sums", "first"), {})
    rows = [(output, 10 + output) for output in range(3)]
    assert region_blocks._in_order(rows, graph) == [rows[1], rows[2], rows[0]]
