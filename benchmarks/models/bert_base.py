"""BERT-base in plain torch: 8 sequences of 128 tokens in bf16, random weights, no padding.

The sizes and the arithmetic are those of the published model. Without padding there is no mask. A
well-known library makes one all the same while a model is compiled or captured, and torch's fused
attention refuses it: the comparison would be with a torch that is slower than it has to be.
"""

from __future__ import annotations

import torch
from encoder import Block, Shape, initialized
from torch import Tensor, nn
from torch.nn.functional import gelu

BATCH, LENGTH, TOKENS, PLACES = 8, 128, 30522, 512
EPSILON = 1e-12


class Layer(Block):
    """Attention and MLP, each added to its input and normed afterwards."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.first_norm(x + self.attended(x))
        return self.second_norm(x + self.outer(gelu(self.inner(x))))


class Bert(nn.Module):
    """Tokens i64[B, T] → states `[B, T, width]` and the pooled first one `[B, width]`."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.words = nn.Embedding(TOKENS, shape.width)
        self.places = nn.Embedding(PLACES, shape.width)
        self.kinds = nn.Embedding(2, shape.width)
        self.norm = nn.LayerNorm(shape.width, eps=EPSILON)
        self.layers = nn.Sequential(*(Layer(shape, EPSILON) for _ in range(shape.layers)))
        self.pooler = nn.Linear(shape.width, shape.width)

    def forward(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.words(input_ids) + self.kinds(torch.zeros_like(input_ids)) + self.places(places)
        x = self.layers(self.norm(x))
        return x, torch.tanh(self.pooler(x[:, 0]))


def build_model(layers: int = 12) -> nn.Module:
    """The encoder of the base size."""
    return initialized(Bert(Shape(layers=layers)))


def example_inputs(batch: int = BATCH, length: int = LENGTH) -> dict[str, Tensor]:
    """Token ids, i64[batch, length]."""
    generator = torch.Generator().manual_seed(2)
    return {"input_ids": torch.randint(0, TOKENS, (batch, length), generator=generator)}
