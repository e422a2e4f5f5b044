"""Models whose weights are stored in every form that a bundle knows, and values for them."""

import random

import torch
from torch import nn
from torch.nn import functional


class Everything(nn.Module):
    """Tied, packed, joined, folded and plain parameters; indices and settings among the buffers."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.q, self.k, self.v = (nn.Linear(32, 32, bias=each) for each in (True, True, False))
        self.tokens = nn.Embedding(50, 32)
        self.head = nn.Linear(32, 50, bias=False)
        self.head.weight = self.tokens.weight
        self.conv = nn.Conv1d(32, 24, 3, padding=1)
        self.batch_norm = nn.BatchNorm1d(24)
        self.register_buffer("places", torch.arange(6))
        self.register_buffer("factor", torch.tensor(0.5))
        self.register_buffer("mask", torch.ones(6, 6).tril().log(), persistent=False)
        self.unread = nn.Linear(3, 3)
        self.out = nn.Linear(24, 50)

    def forward(self, ids):
        x = self.norm(self.tokens(ids) + self.tokens(self.places))
        heads = self.q(x), self.k(x), self.v(x)
        x = functional.scaled_dot_product_attention(*heads, self.mask) * self.factor
        z = self.batch_norm(self.conv(x.transpose(1, 2))).transpose(1, 2)
        return self.head(x) + self.out(torch.relu(z))


class Drawn(nn.Module):
    """A chain of layers drawn by a seed, on (4, 8, width)."""

    def __init__(self, seed):
        super().__init__()
        draw = random.Random(seed)
        self.layers, width = nn.ModuleList(), 24
        for _ in range(draw.randint(2, 5)):
            kind = draw.choice(("linear", "gated", "norm", "conv", "scaled", "grouped", "rms"))
            after = draw.choice((16, 24, 40)) if kind in ("linear", "conv") else width
            self.layers.append(layer(kind, width, after, draw))
            width = after

    def forward(self, x):
        for each in self.layers:
            x = each(x)
        return x


class Gated(nn.Module):
    def __init__(self, width, has_bias):
        super().__init__()
        self.gate, self.up = nn.Linear(width, 32, has_bias), nn.Linear(width, 32, has_bias)
        self.down = nn.Linear(32, width, has_bias)

    def forward(self, x):
        return x + self.down(functional.silu(self.gate(x)) * self.up(x))


class Scaled(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.weight = nn.Parameter(torch.randn(width, width))

    def forward(self, x):
        return x @ (self.weight * self.scale).T + self.shift


class Conv(nn.Module):
    def __init__(self, width, after, groups, has_norm):
        super().__init__()
        self.conv = nn.Conv1d(width, after, 3, padding=1, groups=groups)
        self.norm = nn.BatchNorm1d(after) if has_norm else nn.Identity()

    def forward(self, x):
        return self.norm(self.conv(x.transpose(1, 2))).transpose(1, 2)


def layer(kind, width, after, draw):
    if kind == "linear":
        return nn.Linear(width, after, bias=draw.random() < 0.5)
    if kind == "gated":
        return Gated(width, draw.random() < 0.5)
    if kind == "norm":
        return nn.LayerNorm(width)
    if kind == "rms":
        return nn.RMSNorm(width)
    if kind == "scaled":
        return Scaled(width)
    return Conv(width, after, 8 if kind == "grouped" else 1, draw.random() < 0.5)


def fill(model, kind, seed=0):
    """Give every floating parameter and buffer that may be replaced other values."""
    generator = torch.Generator().manual_seed(seed)
    parameters = dict(model.named_parameters())
    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point() or (name not in parameters and tensor.numel() == 1):
            continue
        with torch.no_grad():
            if kind == "random":
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.1)
            elif kind == "counted":
                count = torch.arange(tensor.numel(), dtype=torch.float32)
                tensor.copy_(count.reshape(tensor.shape))
            else:
                tensor.fill_({"zeros": 0.0, "ones": 1.0}[kind])
    return model
