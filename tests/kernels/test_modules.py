"""The library's functions as modules: torch's results and parameters."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from torch import nn  # noqa: E402

from aotc import kernels  # noqa: E402
from aotc.aot.errors import KernelValueInvalid  # noqa: E402

ROWS, LABELS = (5, 12), (3, 0, 7, -100, 1)
# Ours, torch's of the same parameters, shape of the input, what follows it.
PAIRS = [
    (lambda: kernels.LayerNorm(12), lambda: nn.LayerNorm(12), ROWS, ()),
    (lambda: kernels.LayerNorm(12, bias=False), lambda: nn.LayerNorm(12, bias=False), ROWS, ()),
    (lambda: kernels.RMSNorm(12, eps=1e-5), lambda: nn.RMSNorm(12, eps=1e-5), ROWS, ()),
    (lambda: kernels.GroupNorm(3, 6), lambda: nn.GroupNorm(3, 6), (2, 6, 5), ()),
    (lambda: kernels.Softmax(0), lambda: nn.Softmax(0), ROWS, ()),
    (lambda: kernels.LogSoftmax(-1), lambda: nn.LogSoftmax(-1), ROWS, ()),
    (kernels.SiLU, nn.SiLU, ROWS, ()),
    (kernels.GELU, nn.GELU, ROWS, ()),
    (lambda: kernels.GELU("tanh"), lambda: nn.GELU("tanh"), ROWS, ()),
    (lambda: kernels.Dropout(0.0), lambda: nn.Dropout(0.0), ROWS, ()),
    (lambda: kernels.Linear(12, 7), lambda: nn.Linear(12, 7), ROWS, ()),
    (lambda: kernels.Linear(12, 7, False), lambda: nn.Linear(12, 7, False), (2, 3, 12), ()),
    (
        lambda: kernels.CrossEntropyLoss(label_smoothing=0.1),
        lambda: nn.CrossEntropyLoss(label_smoothing=0.1),
        ROWS,
        (LABELS,),
    ),
    (
        lambda: kernels.EmbeddingBag(12, 4, "sum"),
        lambda: nn.EmbeddingBag(12, 4, mode="sum"),
        None,
        (((0, 11), (5, 5)),),
    ),
]


@pytest.mark.parametrize(("ours", "torchs", "shape", "rest"), PAIRS)
def test_results_gradients_and_parameters_are_torchs(ours, torchs, shape, rest):
    torch.manual_seed(0)
    expected_module = torchs()
    for each in expected_module.parameters():
        nn.init.normal_(each)
    module = ours()
    module.load_state_dict(expected_module.state_dict())
    assert isinstance(module, type(expected_module))
    assert repr(module) == repr(expected_module)
    assert [n for n, _ in module.named_parameters()] == [
        n for n, _ in expected_module.named_parameters()
    ]
    x = [] if shape is None else [torch.randn(shape, requires_grad=True)]
    rest = [torch.tensor(each) for each in rest]
    found, expected = module(*x, *rest), expected_module(*x, *rest)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    gradient = torch.randn_like(expected)
    pairs = zip(
        torch.autograd.grad(found, [*x, *module.parameters()], gradient),
        torch.autograd.grad(expected, [*x, *expected_module.parameters()], gradient),
        strict=True,
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-5)


def by_torch(module, x):
    """The same from a module's parameters, in torch's functions."""
    functional = nn.functional
    if isinstance(module, kernels.ReLUSquared):
        return functional.relu(x).square()
    if isinstance(module, kernels.LayerNormLinear):
        rows = functional.layer_norm(x, x.shape[-1:], module.norm_weight, module.norm_bias)
        return functional.silu(functional.linear(rows, module.weight, module.bias))
    if isinstance(module, kernels.Linear):
        return functional.gelu(functional.linear(x, module.weight, module.bias))
    if isinstance(module, kernels.SwiGLUMLP):
        return module.down_proj(functional.silu(module.gate_proj(x)) * module.up_proj(x))
    if isinstance(module, kernels.GEGLUMLP):
        gate = functional.gelu(module.gate_proj(x), approximate="tanh")
        return module.down_proj(gate * module.up_proj(x))
    if isinstance(module, kernels.LinearCrossEntropyLoss):
        logits = functional.linear(x, module.weight, module.bias)
        return functional.cross_entropy(logits.flatten(0, 1), torch.arange(10) % 7)
    q, k, v = (
        layer(x).view(*x.shape[:-1], -1, 4).transpose(1, 2)
        for layer in (module.q_proj, module.k_proj, module.v_proj)
    )
    found = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return module.o_proj(found.transpose(1, 2).flatten(-2))


OWN = [
    lambda: kernels.ReLUSquared(),
    lambda: kernels.LayerNormLinear(12, 7, activation="silu"),
    lambda: kernels.Linear(12, 7, activation="gelu"),
    lambda: kernels.SwiGLUMLP(12, 9),
    lambda: kernels.GEGLUMLP(12, 9, 5),
    lambda: kernels.LinearCrossEntropyLoss(12, 7, bias=True),
    lambda: kernels.Attention(12, 3, 1),
]


@pytest.mark.parametrize("make", OWN)
def test_modules_without_a_counterpart(make):
    torch.manual_seed(0)
    module, x = make(), torch.randn(2, 5, 12, requires_grad=True)
    is_loss = isinstance(module, kernels.LinearCrossEntropyLoss)
    found = module(x, (torch.arange(10) % 7).reshape(2, 5)) if is_loss else module(x)
    expected = by_torch(module, x)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    inputs = [x, *module.parameters()]
    for one, other in zip(
        torch.autograd.grad(found.sum(), inputs),
        torch.autograd.grad(expected.sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_sinks_and_windows_of_attention():
    module = kernels.Attention(12, 3, window=2, has_sinks=True)
    assert next(iter(dict(module.named_parameters()))) == "sinks"
    module(torch.randn(2, 5, 12)).sum().backward()
    assert module.sinks.grad.shape == (3,)
    assert kernels.Attention(12, 3).sinks is None


def test_dropout_drops_in_training_only():
    module, x = kernels.Dropout(0.5), torch.ones(400)
    assert bool((module(x) == 0).any())
    assert torch.equal(module.eval()(x), x)


def test_what_a_function_lacks_is_named():
    for make, name in (
        (lambda: kernels.SiLU(inplace=True), "`SiLU`: `inplace` is True, expected False"),
        (lambda: kernels.Dropout(0.1, inplace=True), "`Dropout`: `inplace` is True"),
        (lambda: kernels.EmbeddingBag(3, 4, max_norm=1.0), "`max_norm` is 1.0, expected None"),
        (lambda: kernels.Attention(12, 5), "`heads` is 5, expected a divisor of the width 12"),
        (lambda: kernels.CrossEntropyLoss(torch.ones(3)), "`CrossEntropyLoss`: `weight` is"),
    ):
        with pytest.raises(KernelValueInvalid, match=name):
            make()


def test_modules_are_compiled(tmp_path, monkeypatch):
    monkeypatch.setenv("AOTC_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    torch.manual_seed(0)
    module = nn.Sequential(
        kernels.LayerNorm(12), kernels.Attention(12, 3), kernels.SwiGLUMLP(12, 9), kernels.GELU()
    )
    x = torch.randn(2, 5, 12)
    own = {"fallback": "error"}
    compiled = torch.compile(module, backend="aotc", fullgraph=True, options=own)
    torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
    program = torch.export.export(module, (x,))
    assert sum(str(node.target).startswith("aotc.") for node in program.graph.nodes) >= 4
    torch._dynamo.reset()
