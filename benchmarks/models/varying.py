"""Models of dynamic size, for `benchmarks.dynamic`: small and full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim


class Perceptron(nn.Module):
    """Two products, an activation, a norm: a row of the input is independent of all others."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.second(nn.functional.gelu(self.first(x))))


class Convolutions(nn.Module):
    """A stem and two residual blocks of `width` channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        image = self.stem(x).relu()
        for first, second in zip(self.layers[::2], self.layers[1::2], strict=True):
            image = (second(first(image).relu()) + image).relu()
        return self.head(image.mean((2, 3)))


def encoder(width: int) -> nn.Module:
    """Layers of self-attention with heads of 64 elements."""
    layer = nn.TransformerEncoderLayer(
        width, max(1, width // 64), 4 * width, batch_first=True, activation="gelu"
    )
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


@dataclass(frozen=True)
class Varying:
    """A model, its width small and full, the rest of its input's shape, its dims, its example."""

    build: Callable[[int], nn.Module]
    widths: tuple[int, int]
    has_width: bool  # whether the input's last dim is the width
    tail: tuple[int, ...]
    dims: dict[int, Any]
    example: tuple[int, ...]
    calls: tuple[tuple[int, ...], ...]  # sizes that are measured

    def model(self, is_full: bool, dtype: torch.dtype) -> nn.Module:
        """The model; the same numbers each time."""
        torch.manual_seed(0)
        return self.build(self.widths[is_full]).eval().to(dtype)

    def example_inputs(
        self, sizes: tuple[int, ...], is_full: bool, dtype: torch.dtype
    ) -> tuple[Tensor, ...]:
        """An input at given sizes of the dims."""
        tail = (*self.tail, self.widths[is_full]) if self.has_width else self.tail
        return (torch.randn(*sizes, *tail).to(dtype),)


_BATCH, _SEQ = Dim("batch", max=64), Dim("seq", max=512)

VARYING: dict[str, Varying] = {
    "perceptron": Varying(
        Perceptron, (32, 768), True, (), {0: Dim("rows", max=4096)}, (256,),
        ((256,), (1,), (3,), (17,), (40,), (100,), (200,), (512,), (1000,), (3000,)),
    ),
    "encoder": Varying(
        encoder, (64, 512), True, (), {0: _BATCH, 1: _SEQ}, (8, 128),
        ((8, 128), (1, 10), (1, 128), (1, 512), (3, 100), (8, 300), (20, 20), (64, 3), (64, 256)),
    ),
    "convolutions": Varying(
        Convolutions, (16, 64), False, (3, 56, 56), {0: Dim("batch", max=64)}, (16,),
        ((16,), (1,), (3,), (30,), (64,)),
    ),
}  # fmt: skip
