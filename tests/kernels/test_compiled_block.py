"""A block of a model made of products and attention of the library, behind compilers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from aotc import kernels  # noqa: E402


def parameter(*shape):
    return torch.nn.Parameter(torch.randn(shape) * 0.3)


class Block(torch.nn.Module):
    """16 wide, 4 heads in 2 groups, 50 classes."""

    def __init__(self):
        super().__init__()
        self.gamma, self.beta, self.sinks = parameter(16), parameter(16), parameter(4)
        self.packed, self.out, self.classes = (
            parameter(48, 16),
            parameter(16, 16),
            parameter(50, 16),
        )
        self.up, self.down, self.bias = parameter(32, 16), parameter(16, 32), parameter(50)

    def forward(self, x, target):
        packed = kernels.layer_norm_linear(x, self.gamma, self.beta, self.packed)
        q, k, v = packed.reshape(2, 6, 3, 4, 4).permute(2, 0, 3, 1, 4)
        found = kernels.attention(q, k[:, :2], v[:, :2], True, 3, None, self.sinks)
        x = x + kernels.linear(found.transpose(1, 2).reshape(2, 6, 16), self.out)
        x = x + kernels.swiglu_mlp(x, self.up, self.up, self.down)
        x = x + kernels.layer_norm_linear_gelu_dropout(
            x, self.gamma, None, self.out, p=0.25, seed=3
        )
        x = kernels.matmul(x, self.out)
        return kernels.linear_cross_entropy(x, self.classes, target, self.bias), x


@pytest.mark.parametrize("backend", ["aot_eager", "aotc"])
def test_compiled_losses_and_gradients_are_those_of_the_kernels(tmp_path, monkeypatch, backend):
    monkeypatch.setenv("AOTC_CACHE_DIR", str(tmp_path))
    # What is checked on a GPU is left to torch.
    own = {"fallback": "error", "unchecked_indices": torch.get_default_device().type != "cpu"}
    options = {"options": own} if backend == "aotc" else {}
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, x, target = Block(), torch.randn(2, 6, 16), torch.randint(0, 50, (2, 6))
    target[0, 0] = -100

    def results(function):
        loss, found = function(x, target)
        whole = loss + found.square().sum()
        return [loss, found, *torch.autograd.grad(whole, list(module.parameters()))]

    expected = results(module)
    compiled = torch.compile(module, backend=backend, fullgraph=True, **options)
    for one, other in zip(results(compiled), expected, strict=True):
        scale = float(other.detach().abs().max())
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * scale)
    torch._dynamo.reset()
