"""The graphs that are measured: how each is built and called, and what is differentiated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Model:
    """A module and its example."""

    name: str
    build: Callable[[], nn.Module]
    example: Callable[[], Tensor]

    def __str__(self) -> str:
        return self.name


class Encoder(nn.Module):
    """A transformer encoder, post-norm, without dropout."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(width, heads) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.mixed(x).chunk(3, -1)
        heads = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        seen = nn.functional.scaled_dot_product_attention(*heads)
        x = self.first(x + self.out(seen.transpose(1, 2).reshape(batch, length, width)))
        return self.second(x + self.down(nn.functional.gelu(self.up(x))))


class Convolutional(nn.Module):
    """Convolutions with BatchNorm and pooling, then a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        stages = []
        for before, after in ((3, 16), (16, 32), (32, 64)):
            convolution = nn.Conv2d(before, after, 3, padding=1)
            stages += [convolution, nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
        self.stages, self.head = nn.Sequential(*stages), nn.Linear(64 * 16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(x).flatten(1))


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.LayerNorm(2048), nn.Linear(2048, 512))


MODELS = {
    model.name: model
    for model in (
        Model("perceptron", _perceptron, lambda: torch.randn(64, 512)),
        Model("encoder", lambda: Encoder(2, 256, 4), lambda: torch.randn(4, 64, 256)),
        Model("encoder-12", lambda: Encoder(12, 256, 4), lambda: torch.randn(1, 64, 256)),
        Model("convolutional", Convolutional, lambda: torch.randn(8, 3, 32, 32)),
    )
}
