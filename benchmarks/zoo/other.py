"""Rows of recurrent models and of a recommender."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import nn

from benchmarks.zoo.inputs import clicks, sequence
from benchmarks.zoo.row import Row, Size


class Recommender(nn.Module):
    """DLRM: dense features and bags of ids meet in products of all pairs (arXiv:1906.00091).

    f32[B, dense], i64[tables, B, bag] → f32[B, 1], a probability.
    """

    def __init__(self, dense: int, tables: int, rows: int, width: int, hidden: int) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(
            nn.Linear(dense, hidden), nn.ReLU(), nn.Linear(hidden, width), nn.ReLU()
        )
        self.pairs = list(combinations(range(tables + 1), 2))
        inputs = width + len(self.pairs)
        self.top = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, features: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """See the class."""
        dense = self.bottom(features)
        bags = [bag(ids[place]) for place, bag in enumerate(self.bags)]
        vectors = torch.stack([dense, *bags], dim=1)
        products = vectors @ vectors.transpose(1, 2)
        first, second = (torch.tensor(places) for places in zip(*self.pairs, strict=True))
        joined = torch.cat((dense, products[:, first, second]), dim=1)
        return torch.sigmoid(self.top(joined))


class Recurrent(nn.Module):
    """A stack of LSTM or GRU layers, in both directions, and a classifier of the last step."""

    def __init__(self, kind: str, width: int, hidden: int, layers: int) -> None:
        super().__init__()
        cells: type[nn.RNNBase] = getattr(nn, kind)
        self.cells = cells(width, hidden, layers, batch_first=True, bidirectional=True)
        self.classifier = nn.Linear(2 * hidden, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[B, length, width]` → `[B, 10]`."""
        logits: torch.Tensor = self.classifier(self.cells(x)[0][:, -1])
        return logits


_SEQUENCE = {"batch": 4, "length": 12, "width": 32}
_LONG = {"batch": 8, "length": 64, "width": 256}
_CLICKS = {"batch": 16, "dense": 13, "tables": 4, "rows": 100, "bag": 3}
_MANY_CLICKS = {"batch": 256, "dense": 13, "tables": 26, "rows": 10000, "bag": 4}

ROWS = (
    *(
        Row(
            kind.lower(),
            Recurrent,
            sequence,
            Size({"kind": kind, "width": 32, "hidden": 48, "layers": 2}, _SEQUENCE),
            Size({"kind": kind, "width": 256, "hidden": 512, "layers": 2}, _LONG),
        )
        for kind in ("LSTM", "GRU")
    ),
    Row(
        "dlrm",
        Recommender,
        clicks,
        Size({"dense": 13, "tables": 4, "rows": 100, "width": 16, "hidden": 64}, _CLICKS),
        Size({"dense": 13, "tables": 26, "rows": 10000, "width": 64, "hidden": 512}, _MANY_CLICKS),
    ),
)
