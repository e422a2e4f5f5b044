"""torch.nn.TransformerEncoder, two layers, with a padding mask over a batch of sentences."""

import torch
from torch import nn


class Encoder(nn.Module):
    """The encoder, called with the positions that are padding."""

    def __init__(self, width, heads, hidden, layers):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, heads, hidden, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)

    def forward(self, tokens, is_padding):
        return self.encoder(tokens, src_key_padding_mask=is_padding)


def build_model(width=256, heads=8, hidden=1024, layers=2):
    return Encoder(width, heads, hidden, layers)


def example_inputs(batch=4, length=64, width=256):
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randn(batch, length, width, generator=generator)
    lengths = torch.linspace(length // 2, length, batch).long()
    is_padding = torch.arange(length)[None, :] >= lengths[:, None]
    return {"tokens": tokens, "is_padding": is_padding}
