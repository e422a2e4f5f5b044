"""The import table against torch: one small model a family of ops, compared output by output."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir.reference import interpret
from aotc.aot.ir.storage import widen

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.rewrites.rewrite import rewrite  # noqa: E402

pytestmark = pytest.mark.torch
GENERATOR = torch.Generator().manual_seed(3)
X = torch.randn(2, 5, 16, generator=GENERATOR)
IMAGE = torch.randn(2, 3, 8, 9, generator=GENERATOR)
IDS = torch.randint(0, 10, (2, 5), generator=GENERATOR)
MASK = torch.tensor([[False, False, True, False, True]] * 2)


def arithmetic(x, ids):
    return (
        1 - x,
        x**2 + 2**x + x.float().pow(3),
        x.abs().pow(0.5),
        (x * 3) // 2,
        (ids * 3) // -2,
        x % 2,
        ids % -3,
        torch.fmod(ids - 5, 3),
        torch.div(ids - 5, 3, rounding_mode="trunc"),
        x.clamp(-1, 1) + x.clamp(min=0) + x.clamp(max=0.5),
        torch.addcmul(x, x, x, value=0.5),
        torch.lerp(x, -x, 0.3),
        x + ids[:, :, None],
        ids.sum(),
        x * torch.tensor(2.0),
        torch.where(x > 0, x, 0.0),
        torch.atan2(x, x + 1),
    )


def made_of_nothing(x):
    """Ops that read no tensor: torch computes them once."""
    window = torch.hann_window(16) * torch.kaiser_window(16, periodic=False)
    return (
        x * window + torch.blackman_window(16),
        torch.tril_indices(4, 4),
        torch.bartlett_window(5),
    )


def activations(x):
    return (
        F.gelu(x) + F.gelu(x, approximate="tanh"),
        F.silu(x) + F.mish(x) + F.hardswish(x) + F.hardsigmoid(x),
        F.elu(x) + F.leaky_relu(x) + F.softplus(x) + F.relu6(x) + F.selu(x),
        F.glu(x) + F.logsigmoid(x)[..., :8],
        F.softmax(x, 1) + F.log_softmax(x, -1),
        torch.special.ndtr(x) + torch.erfc(x),
        x.masked_fill(x > 0, float("-inf")),
    )


def reductions(x, mask):
    peak, place = x.max(-1)
    return (
        x.mean(),
        x.mean(1, keepdim=True),
        x.var(-1),
        x.std((0, 2), correction=0),
        x.amax(-1) + x.amin(-1),
        peak,
        place,
        x.argmin(1),
        x.argmax(),
        x.prod(2),
        mask.any(-1),
        mask.all(),
        x.logsumexp(-1),
        x.cumsum(1),
        F.normalize(x, dim=-1),
        torch.linalg.vector_norm(x, 1, dim=1),
    )


def movement(x, ids):
    return (
        torch.cat(x.split(4, -1), 1),
        x.chunk(3, -1)[1],
        x.unbind(1)[2],
        torch.stack([x, -x], 1),
        x.roll((1, -3), (1, 2)),
        x.repeat(1, 2, 1),
        x.repeat_interleave(2, 1),
        F.pad(x, (1, 2, -1, 0)),
        x[:, -1] + x[:, 1:4:2].sum(1),
        x[:, ids[0] % 5 - 5],
        x[ids % 2, ids % 5],
        x.gather(1, ids[:, :, None].expand(2, 5, 16) % 5),
        x.flip(1, 2),
        x.transpose(0, 2).reshape(4, 40),
        x.unfold(2, 4, 3),
        F.one_hot(ids, 10),
        torch.arange(5) + ids,
        torch.full((2, 3), 1.5) + torch.ones(3),
        torch.tril(x) + torch.triu(x, 1),
    )


def assigned(x):
    y = x.clone()
    y[:, 1] = 7.0
    y[:, 2:4, ::1] += 1
    return y


def attention(x, mask):
    q = x.view(2, 5, 4, 4).transpose(1, 2)
    k = x[..., :8].reshape(2, 5, 2, 4).transpose(1, 2)
    allowed = ~mask[:, None, None, :]
    return (
        F.scaled_dot_product_attention(q, q, q, is_causal=True),
        F.scaled_dot_product_attention(q, q, q, attn_mask=allowed.expand(2, 4, 5, 5)),
        F.scaled_dot_product_attention(q, k, k, enable_gqa=True, scale=0.3),
        F.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(5, 5)),
    )


def contractions(x):
    square = torch.ones(16, 16)
    return (
        x @ square,
        x @ x.transpose(1, 2),
        torch.einsum("bij,bkj->bik", x, x),
        torch.addmm(x[0, 0], x[0], square, beta=0.5, alpha=2.0),
        torch.baddbmm(x, x @ x.transpose(1, 2), x),
        x[0] @ x[0, 0],
        torch.dot(x[0, 0], x[0, 1]),
    )


def pooling(image):
    return (
        F.max_pool2d(image, 3, 2, 1),
        F.max_pool2d(image, 2, ceil_mode=True),
        F.avg_pool2d(image, 2),
        F.avg_pool2d(image, 3, 2, 1),
        F.adaptive_avg_pool2d(image, 1),
        F.adaptive_avg_pool2d(image, (4, 3)),
        F.adaptive_avg_pool2d(image, (3, 5)),
        F.max_pool1d(image[0], 2),
        F.interpolate(image, scale_factor=2),
    )


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.plain = nn.Conv2d(3, 4, 3, padding=1)
        self.strided = nn.Conv2d(3, 6, (3, 2), stride=(2, 1), dilation=(1, 2))
        self.point = nn.Conv2d(4, 5, 1)
        self.depthwise = nn.Conv2d(4, 4, 3, groups=4)
        self.grouped = nn.Conv2d(4, 6, 3, groups=2)
        self.line = nn.Conv1d(3, 4, 3)
        self.up = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1)
        self.same = nn.Conv2d(3, 4, 3, padding="same")

    def forward(self, image):
        hidden = self.plain(image)
        return (
            self.strided(image),
            self.point(hidden),
            self.depthwise(hidden),
            self.grouped(hidden),
            self.line(image.flatten(2)),
            self.up(image),
            self.same(image),
        )


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LayerNorm((5, 16))
        self.plain = nn.LayerNorm(16, elementwise_affine=False)
        self.rms = nn.RMSNorm(16)
        self.group = nn.GroupNorm(3, 3)
        self.batch = nn.BatchNorm2d(3)
        self.instance = nn.InstanceNorm2d(3)
        self.table = nn.Embedding(10, 16, padding_idx=0)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, 0.5, 1.5, generator=GENERATOR)
        self.batch.running_mean.uniform_(-1, 1, generator=GENERATOR)
        self.batch.running_var.uniform_(0.5, 2, generator=GENERATOR)

    def forward(self, x, image, ids):
        by_hand = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        written_out = (x - x.mean(-1, keepdim=True)) / torch.sqrt(
            x.var(-1, keepdim=True, unbiased=False) + 1e-5
        )
        return (
            self.layer(x),
            self.plain(x),
            self.rms(x),
            self.group(image),
            self.batch(image),
            self.instance(image),
            self.table(ids),
            by_hand,
            written_out,
        )


CASES = {
    "arithmetic": (arithmetic, (X, IDS)),
    "made of nothing": (made_of_nothing, (X,)),
    "activations": (activations, (X,)),
    "reductions": (reductions, (X, MASK)),
    "movement": (movement, (X, IDS)),
    "assigned": (assigned, (X,)),
    "attention": (attention, (X, MASK)),
    "contractions": (contractions, (X,)),
    "pooling": (pooling, (IMAGE,)),
    "convolutions": (Convolutions(), (IMAGE,)),
    "norms": (Norms(), (X, IMAGE, IDS)),
    "half": (lambda x: (F.layer_norm(x, (16,)), x.softmax(-1), x @ x.mT), (X.bfloat16(),)),
}


@pytest.mark.parametrize("name", CASES)
def test_family_of_ops(name):
    model, inputs = CASES[name]
    captured = capture(spec_of(model, inputs, name))
    tolerance = 1e-2 if name == "half" else 1e-5
    # Calls of kernels, which numpy cannot run, are for tests/build/test_attention.py.
    rewritten, _ = rewrite(captured.graph, skip=frozenset({"attention"}))
    for graph in (captured.graph, rewritten):
        found = interpret(graph, captured.golden_inputs)
        assert len(found) == len(captured.golden_outputs)
        rows = zip(graph.returned, found, captured.golden_outputs, strict=True)
        for number, (node, left, right) in enumerate(rows):
            numpy.testing.assert_allclose(
                widen(left, node.dtype),
                widen(right, node.dtype),
                rtol=tolerance,
                atol=tolerance,
                err_msg=f"output {number} of {name}",
            )
            assert left.dtype == right.dtype
