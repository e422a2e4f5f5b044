"""Models of dynamic size, as specs for a device, and the sizes that are tried."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import Dim


class Perceptron(nn.Module):
    """Products of few and of many rows, a norm and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(256, 1024), nn.Linear(1024, 256)
        self.norm = nn.LayerNorm(256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.second(nn.functional.gelu(self.first(x)))).softmax(-1)


class Rows(nn.Module):
    """Reductions along a dim that varies, of rows and of columns, and a product over it."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.softmax(1), x.sum(0), x.transpose(1, 2).softmax(-1), x @ x.transpose(1, 2)


class Convolutions(nn.Module):
    """A small residual net in channels that implicit products take."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, 2, 1)
        self.first, self.second = nn.Conv2d(32, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1)
        self.norm, self.head = nn.BatchNorm2d(64), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        image = self.first(self.stem(x).relu())
        image = nn.functional.max_pool2d((self.norm(self.second(image)) + image).relu(), 2)
        return self.head(image.mean((2, 3)))


def encoder() -> nn.Module:
    """Two layers of self-attention with heads of 64 elements."""
    layer = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2)


@dataclass(frozen=True)
class Case:
    """A model, the fixed end of its input's shape, its dims, and sizes of them that are tried."""

    build: Callable[[], nn.Module]
    tail: tuple[int, ...]
    dims: dict[int, Any]
    example: tuple[int, ...]
    sizes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype = torch.float16

    def inputs(self, sizes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
        """An input at given sizes, in host memory."""
        generator = torch.Generator().manual_seed(sum(sizes))
        return (torch.randn(*sizes, *self.tail, generator=generator).to(self.dtype),)

    def model(self) -> nn.Module:
        """The model in host memory; the same numbers each time."""
        torch.manual_seed(0)
        return self.build().eval().to(self.dtype)


_BATCH, _SEQ = Dim("batch", max=64), Dim("seq", max=512)
_WORDS = ((4, 128), (1, 1), (1, 17), (3, 100), (2, 512), (40, 64), (64, 333))

CASES: dict[str, Case] = {
    "perceptron": Case(
        Perceptron,
        (256,),
        {0: Dim("rows", max=4096)},
        (512,),
        ((512,), (1,), (7,), (100,), (1000,), (4096,)),
    ),
    "rows": Case(Rows, (48,), {0: _BATCH, 1: _SEQ}, (4, 128), _WORDS, torch.float32),
    "encoder": Case(encoder, (256,), {0: _BATCH, 1: _SEQ}, (4, 128), _WORDS),
    "convolutions": Case(
        Convolutions,
        (3, 32, 32),
        {0: _BATCH},
        (8,),
        ((8,), (1,), (3,), (16,), (64,)),
        torch.float32,
    ),
}


def spec_text(name: str) -> str:
    """The spec of a case, for a file of its own."""
    return textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import torch
        import varying

        torch.backends.cudnn.allow_tf32 = False
        case = varying.CASES[{name!r}]
        model = case.model()
        example_inputs = case.inputs(case.example)
        dynamic_shapes = (case.dims,)
    """)
