"""Models whose sizes vary, each with examples and the dims in torch.export's words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export import Dim

BATCH, SEQUENCE = Dim("batch", max=64), Dim("seq", max=128)


@dataclass(frozen=True)
class Case:
    """A model, its inputs at given sizes, its dims, and the sizes that are tried."""

    build: Callable[[], nn.Module]
    inputs: Callable[..., tuple[torch.Tensor, ...]]
    dynamic_shapes: Any
    example: tuple[int, ...]
    sizes: tuple[tuple[int, ...], ...]
    names: tuple[str, ...] = ("batch", "seq")  # of the dims, in the order of the sizes


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(32, 64), nn.Linear(64, 48), nn.LayerNorm(48)

    def forward(self, x):
        return self.norm(self.second(nn.functional.gelu(self.first(x)))).softmax(-1)


class Movement(nn.Module):
    """Views, sizes as numbers, reductions over dims that vary, a dim derived from another."""

    def forward(self, x, y):
        joined = torch.cat([x, y], 1)
        return (
            x.reshape(x.shape[0] * x.shape[1], 8),
            x.mean(1) * x.shape[1],
            torch.arange(x.shape[1]) + x.shape[0],
            x[:, 1:] / x.shape[1] ** 0.5,
            x.view(x.shape[0], -1, 2, 4).transpose(1, 2).flatten(1),
            joined.softmax(1),
            joined.std(1),
            x.flip(1),
            x.sum((0, 1)),
            x[:, -1],
            x.transpose(0, 1) @ y[:, : x.shape[1]].permute(1, 2, 0),
            nn.functional.pad(x, (0, 0, 1, 2)),
            joined.argmax(1),
        )


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 24, 3, padding=1)
        self.apart = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.pool, self.head = nn.MaxPool2d(2), nn.Linear(24, 5)

    def forward(self, x):
        image = self.pool(self.apart(self.first(x).relu()))
        image = self.second(image).relu()
        return self.head(image.mean((2, 3))), image


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2)


class Bert(nn.Module):
    def __init__(self):
        from transformers import BertConfig, BertModel

        super().__init__()
        config = BertConfig(
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            vocab_size=100,
            max_position_embeddings=128,
        )
        self.model = BertModel(config)

    def forward(self, ids, mask):
        found = self.model(input_ids=ids, attention_mask=mask)
        return found.last_hidden_state, found.pooler_output


def _rows(*sizes: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(*sizes, 32),)


def _pair(batch: int, sequence: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(batch, sequence, 8), torch.randn(batch, 2 * sequence, 8)


def _image(batch: int, height: int, width: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, 3, height, width),)


def _words(batch: int, sequence: int) -> tuple[torch.Tensor, ...]:
    ids = torch.randint(0, 100, (batch, sequence))
    mask = torch.ones_like(ids)
    mask[0, sequence // 2 + 1 :] = 0
    return ids, mask


_SHORT = Dim("seq", min=3, max=64)
_HEIGHT, _WIDTH = Dim("height", min=7, max=64), Dim("width", min=7, max=64)
_SIZES = ((4, 16), (1, 1), (3, 7), (2, 128), (64, 33))

CASES: dict[str, Case] = {
    "perceptron": Case(Perceptron, _rows, ({0: BATCH, 1: SEQUENCE},), (4, 16), _SIZES),
    "encoder": Case(encoder, _rows, ({0: BATCH, 1: SEQUENCE},), (4, 16), _SIZES),
    "movement": Case(
        Movement,
        _pair,
        ({0: BATCH, 1: _SHORT}, {0: BATCH, 1: 2 * _SHORT}),
        (3, 8),
        ((3, 8), (1, 3), (5, 4), (64, 64)),
    ),
    "convolutions": Case(
        Convolutions,
        _image,
        ({0: BATCH, 2: _HEIGHT, 3: _WIDTH},),
        (2, 16, 12),
        ((2, 16, 12), (1, 7, 7), (3, 33, 17), (5, 64, 63)),
        ("batch", "height", "width"),
    ),
    "bert": Case(
        Bert,
        _words,
        ({0: BATCH, 1: SEQUENCE}, {0: BATCH, 1: SEQUENCE}),
        (4, 16),
        ((4, 16), (1, 1), (3, 7), (2, 128), (8, 100)),
    ),
}


def made(name: str) -> nn.Module:
    """The model of a case; the same numbers each time."""
    torch.manual_seed(0)
    return CASES[name].build().eval()
