"""What BERT and ViT of the base size have in common: attention, MLP, random weights in bf16."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

DTYPE = torch.bfloat16


@dataclass(frozen=True)
class Shape:
    """Sizes of an encoder."""

    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072


class Block(nn.Module):
    """The parts of a layer; how they are put together is a model's own affair."""

    def __init__(self, shape: Shape, epsilon: float) -> None:
        super().__init__()
        self.heads = shape.heads
        self.query = nn.Linear(shape.width, shape.width)
        self.key = nn.Linear(shape.width, shape.width)
        self.value = nn.Linear(shape.width, shape.width)
        self.result = nn.Linear(shape.width, shape.width)
        self.inner = nn.Linear(shape.width, shape.inner)
        self.outer = nn.Linear(shape.inner, shape.width)
        self.first_norm = nn.LayerNorm(shape.width, eps=epsilon)
        self.second_norm = nn.LayerNorm(shape.width, eps=epsilon)

    def attended(self, x: Tensor) -> Tensor:
        """Attention of all places to all, `[B, T, width]` → the same."""
        batch, length, width = x.shape
        rows = (batch, length, self.heads, width // self.heads)
        parts = (self.query(x), self.key(x), self.value(x))
        query, key, value = (part.view(rows).transpose(1, 2) for part in parts)
        context = scaled_dot_product_attention(query, key, value)
        return self.result(context.transpose(1, 2).reshape(batch, length, width))


def initialized(model: nn.Module) -> nn.Module:
    """Random weights of the published spread, in bf16, for inference."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02, generator=generator)
        elif name.endswith("norm.weight"):
            nn.init.uniform_(parameter, 0.5, 1.5, generator=generator)
        else:
            nn.init.normal_(parameter, std=0.02, generator=generator)
    return model.to(DTYPE).eval()
