"""The block that every transformer repeats: LayerNorm, Linear, GELU, Dropout, Linear."""

import torch
from torch import nn


def build_model(width=1024, hidden=4096):
    return nn.Sequential(
        nn.LayerNorm(width),
        nn.Linear(width, hidden),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(hidden, width),
    )


def example_inputs(rows=64, width=1024):
    generator = torch.Generator().manual_seed(1)
    return (torch.randn(rows, width, generator=generator),)
