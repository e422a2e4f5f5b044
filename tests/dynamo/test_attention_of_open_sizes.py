"""Attention and its gradients where Dynamo leaves batches, rows or keys open: one pair of graphs
with the kernels, right at every size; and where its results lie, as torch's kernel puts them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from torch._functorch import config as functorch_config  # noqa: E402
from torch.nn import functional  # noqa: E402

from aotc.aot.capture.imports.table import ROWS  # noqa: E402
from aotc.aot.dynamo import aotc  # noqa: E402
from aotc.aot.dynamo.programs import counters  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.triton]
NIGHTLY = pytest.mark.nightly
FORWARD = "_scaled_dot_product_flash_attention_for_cpu"
BOTH = {FORWARD, f"{FORWARD}_backward"}
STRICT = {"fallback": "error"}
SIZES = ((2, 33, 33), (3, 70, 70), (2, 5, 5), (5, 130, 130))
UNEVEN = ((2, 33, 20), (3, 18, 70), (4, 100, 17))


@pytest.fixture
def calls(monkeypatch, fresh):
    """The kernels of attention that graphs were given, by the name of their import row."""
    found = []
    for name in BOTH:

        def row(*arguments, name=name, own=ROWS[name], **named):
            found.append(name)
            return own(*arguments, **named)

        monkeypatch.setitem(ROWS, name, row)
    with functorch_config.patch(enable_autograd_cache=False):
        yield found


def causal(q, k, v):
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def shared(q, k, v):
    few = (each[:, :2] for each in (k, v))
    return functional.scaled_dot_product_attention(q, *few, enable_gqa=True)


def masked(q, k, v):
    at, key = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=(key * 7 + at) % 5 != 3)


def hidden(q, k, v):
    """Some rows see nothing."""
    at, key = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=(key < at - 3))


def windowed(q, k, v):
    at, key = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    mask = (key <= at) & (key > at - 20)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def scaled(q, k, v):
    return functional.scaled_dot_product_attention(q, k, v, scale=0.3)


def heads(size, rows, dtype=torch.float32):
    data = torch.randn(size, rows, 4, 24, dtype=dtype).transpose(1, 2)
    return data.requires_grad_()


def open_sizes(operands):
    for each in operands:
        torch._dynamo.mark_dynamic(each, 0)
        torch._dynamo.mark_dynamic(each, 2)
    return operands


def all_of(call, operands):
    made = call(*operands)
    weights = torch.arange(made.numel(), dtype=torch.float64).cos().reshape(made.shape)
    return made, *torch.autograd.grad(made, operands, weights.to(made.dtype))


@pytest.mark.parametrize(
    ("attend", "sizes", "dtype", "allowed"),
    [
        (causal, SIZES, torch.float32, 5e-6),
        pytest.param(scaled, UNEVEN, torch.float32, 5e-6, marks=NIGHTLY),
        (shared, SIZES, torch.float32, 5e-6),
        pytest.param(masked, UNEVEN, torch.float32, 5e-6, marks=NIGHTLY),
        (hidden, UNEVEN, torch.float32, 5e-6),
        pytest.param(windowed, SIZES, torch.float32, 5e-6, marks=NIGHTLY),
        pytest.param(causal, SIZES, torch.bfloat16, 3e-2, marks=NIGHTLY),
    ],
)
def test_one_pair_of_graphs_is_right_at_every_size(calls, attend, sizes, dtype, allowed):
    compiled, before = torch.compile(attend, backend=aotc, options=STRICT), counters()["graphs"]
    for size, rows, keys in sizes:
        operands = [heads(size, rows, dtype), heads(size, keys, dtype), heads(size, keys, dtype)]
        found = all_of(compiled, open_sizes(operands))
        wide = [each.detach().double().requires_grad_() for each in operands]
        for one, other in zip(found, all_of(attend, wide), strict=True):
            scale = max(1.0, float(other.detach().abs().max()))
            torch.testing.assert_close(one.double(), other, rtol=0, atol=allowed * scale)
    assert set(calls) == BOTH
    assert counters()["graphs"] - before == 2


def test_a_layer_learns_from_sequences_of_every_length(calls):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

        def forward(self, x):
            batch, rows, _ = x.shape
            parts = self.parts(x).view(batch, rows, 3, 2, 16).permute(2, 0, 3, 1, 4)
            return self.out(causal(*parts).transpose(1, 2).reshape(batch, rows, 32))

    torch.manual_seed(0)
    layer = Layer()
    compiled = torch.compile(layer, backend=aotc, options=STRICT)
    before = counters()["graphs"]
    for size, rows in ((2, 40), (2, 17), (3, 65), (1, 90)):
        x = torch.randn(size, rows, 32)
        found, expected = (
            torch.autograd.grad(call(x).square().sum(), list(layer.parameters()))
            for call in (compiled, layer)
        )
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert set(calls) == BOTH
    assert counters()["graphs"] - before <= 8  # fixed, open rows, open batches, a batch of 1


LIES = {
    "dense": lambda rows: torch.randn(2, 3, rows, 8),
    "of linears": lambda rows: torch.randn(2, rows, 3, 8).transpose(1, 2),
    "of one linear": lambda rows: torch.randn(2, rows, 3, 24)[..., :8].transpose(1, 2),
    "transposed": lambda rows: torch.randn(8, 3, rows, 2).permute(3, 1, 2, 0),
    "repeated": lambda rows: torch.randn(2, 1, rows, 8).expand(2, 3, rows, 8),
    "f64": lambda rows: torch.randn(2, 3, rows, 8, dtype=torch.float64),
}


OFTEN = ("dense", "of one linear", "transposed")


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[] if each in OFTEN else NIGHTLY) for each in LIES]
)
def test_the_result_lies_as_eagers(calls, name, is_dynamic):
    """In both ways that it is computed: by the kernel, and of few rows by arithmetic."""
    compiled = torch.compile(causal, backend=aotc, options=STRICT, dynamic=is_dynamic)
    for rows in (33, 5):
        operands = [LIES[name](rows).requires_grad_() for _ in range(3)]
        found, expected = compiled(*operands), causal(*operands)
        assert found.stride() == expected.stride()
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
