"""A decoder with a cache of keys and values whose batch and length vary, as a spec."""

import torch
from torch import nn
from torch.export import Dim

WIDTH, HEADS = 16, 2


class Cached(nn.Module):
    """Attention over all rows that were written so far; `marks` starts with a number."""

    def __init__(self, batch=2, length=32):
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        shape = (batch, HEADS, length, WIDTH // HEADS)
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))
        self.register_buffer("marks", torch.full((batch, length), -1))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x, positions):
        rows = x.shape[1]
        parts = self.project(x).view(x.shape[0], rows, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        self.keys.index_copy_(2, positions, key)
        self.values[:, :, positions] = value
        self.marks[:, positions] = positions
        self.calls.add_(1)
        is_seen = (self.marks[:, None, None] >= 0) & (
            self.marks[:, None, None] <= positions[:, None]
        )
        mixed = nn.functional.scaled_dot_product_attention(
            query, self.keys, self.values, attn_mask=is_seen
        )
        return mixed.transpose(1, 2).flatten(2)


def build_model(batch=2, length=32):
    torch.manual_seed(0)
    return Cached(batch, length)


def example_inputs():
    return torch.randn(2, 5, WIDTH), torch.arange(5)


batch, length, rows = Dim("batch", max=8), Dim("length", max=64), Dim("rows", max=64)
dynamic_shapes = ({0: batch, 1: rows}, {0: rows})
state_shapes = {
    "keys": {0: batch, 2: length},
    "values": {0: batch, 2: length},
    "marks": {0: batch, 1: length},
}
