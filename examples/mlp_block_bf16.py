"""The first example in bfloat16: the same block, weights and inputs of half the size."""

import torch
from torch import nn


def build_model(width=1024, hidden=4096):
    block = nn.Sequential(
        nn.LayerNorm(width),
        nn.Linear(width, hidden),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(hidden, width),
    )
    return block.to(torch.bfloat16)


def example_inputs(rows=64, width=1024):
    generator = torch.Generator().manual_seed(1)
    return (torch.randn(rows, width, generator=generator).to(torch.bfloat16),)
