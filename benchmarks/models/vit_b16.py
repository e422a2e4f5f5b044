"""ViT-B/16 in plain torch: batch 8 of 224² images in bf16, random weights, 1000 classes.

The sizes and the arithmetic are those of the published model; `bert_base.py` says why it is made
here.
"""

from __future__ import annotations

import torch
from encoder import DTYPE, Block, Shape, initialized
from torch import Tensor, nn
from torch.nn.functional import gelu

BATCH, SIDE, PATCH, CLASSES = 8, 224, 16, 1000
EPSILON = 1e-12


class Layer(Block):
    """Attention and MLP, each behind a norm and added to its input."""

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attended(self.first_norm(x))
        return x + self.outer(gelu(self.inner(self.second_norm(x))))


class ViT(nn.Module):
    """Images `[B, 3, side, side]` → logits `[B, classes]`."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        count = (SIDE // PATCH) ** 2
        self.patches = nn.Conv2d(3, shape.width, PATCH, PATCH)
        self.token = nn.Parameter(torch.empty(1, 1, shape.width))
        self.places = nn.Parameter(torch.empty(1, count + 1, shape.width))
        self.layers = nn.Sequential(*(Layer(shape, EPSILON) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width, eps=EPSILON)
        self.head = nn.Linear(shape.width, CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        patches = self.patches(image).flatten(2).transpose(1, 2)
        token = self.token.expand(image.shape[0], -1, -1)
        x = torch.cat((token, patches), dim=1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


def build_model(layers: int = 12) -> nn.Module:
    """The base size with patches of 16²."""
    return initialized(ViT(Shape(layers=layers)))


def example_inputs(batch: int = BATCH) -> tuple[Tensor]:
    """Images, bf16[batch, 3, 224, 224]."""
    generator = torch.Generator().manual_seed(2)
    return (torch.randn(batch, 3, SIDE, SIDE, generator=generator).to(DTYPE),)
