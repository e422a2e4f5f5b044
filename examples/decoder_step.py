"""One step of a decoder with a cache of keys and values, which the bundle keeps between calls.

Each call writes one row of the cache at `position` and attends to all rows up to it. A session of
the bundle is one sequence; `reset()` begins another.
"""

import torch
from torch import nn


class CachedAttention(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        shape = (1, heads, length, width // heads)
        self.register_buffer("keys", torch.zeros(shape), persistent=False)
        self.register_buffer("values", torch.zeros(shape), persistent=False)

    def forward(self, x, position):
        query, key, value = self.project(x).view(1, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        is_seen = (torch.arange(self.keys.shape[2]) <= position)[None]
        mixed = nn.functional.scaled_dot_product_attention(
            query, self.keys, self.values, attn_mask=is_seen
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


class DecoderStep(nn.Module):
    def __init__(self, width=64, heads=4, length=32, layers=2):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.layers = nn.ModuleList(CachedAttention(width, heads, length) for _ in range(layers))

    def forward(self, x, position):
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(norm(x), position)
        return x


def build_model():
    torch.manual_seed(0)
    return DecoderStep()


def example_inputs():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(1, 1, 64, generator=generator), torch.tensor([0])
