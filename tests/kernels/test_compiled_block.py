"""A block of a model made of products and attention of the library, behind compilers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from aotc import kernels  # noqa: E402
from aotc.aot.capture import custom_ops  # noqa: E402
from aotc.kernels.library import attention, linear_cross_entropy  # noqa: E402

OWN = ["attention", "attention_backward", "cross_entropy", "cross_entropy_backward"]


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


def counted_runs(monkeypatch):
    """The names of kernels' launches by ops that may be called as they are; grows with them."""
    runs = []
    launches = {
        attention: {"_launch": OWN[0], "_launch_backward": OWN[1]},
        linear_cross_entropy: {"_sums": OWN[2], "_gradient_of": OWN[3]},
    }
    for module, names in launches.items():
        for function, name in names.items():
            own = getattr(module, function)

            def counted(*arguments, own=own, name=name):
                runs.append(name)
                return own(*arguments)

            monkeypatch.setattr(module, function, counted)
    return runs


@pytest.mark.parametrize(
    ("backend", "is_called"), [("aot_eager", True), ("aotc", False), ("aotc", True)]
)
def test_compiled_losses_and_gradients_are_those_of_the_kernels(
    tmp_path, monkeypatch, backend, is_called
):
    """is_called: ops that have no scores or logits in memory are called as they are, as on CUDA."""
    if is_called:
        for op, devices in custom_ops.CALLED_ON.items():
            monkeypatch.setitem(custom_ops.CALLED_ON, op, ("cpu",) if devices else ())
    runs = counted_runs(monkeypatch)
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
    runs.clear()
    compiled = torch.compile(module, backend=backend, fullgraph=True, **options)
    for one, other in zip(results(compiled), expected, strict=True):
        scale = float(other.detach().abs().max())
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * scale)
    assert sorted(runs) == (OWN if is_called else [])
    torch._dynamo.reset()
