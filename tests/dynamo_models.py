"""Models that are compared with eager, output by output and gradient by gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


class Perceptron(nn.Module):
    """Linear, GELU, LayerNorm, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(12, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 8)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Block(nn.Module):
    """A pre-norm transformer block with causal attention."""

    def __init__(self, width: int = 16, heads: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.mixed(self.before(x)).chunk(3, -1)
        heads = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.dropout(self.out(seen.transpose(1, 2).reshape(batch, length, width)))
        return x + self.down(functional.gelu(self.up(self.after(x))))


class Transformer(nn.Module):
    """Token and position embeddings, blocks, logits: a small GPT."""

    def __init__(self, blocks: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 16), nn.Parameter(torch.randn(8, 16) * 0.1)
        self.blocks = nn.ModuleList(Block(dropout=dropout) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 20, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Convolutions(nn.Module):
    """Convolution, BatchNorm, pooling and a strided grouped convolution; buffers change."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, stride=2, groups=2, bias=False)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(torch.relu(self.norm(self.first(x))), 3, 2, 1)
        return self.head(self.second(x).mean((2, 3))).log_softmax(-1)


class OneBreak(nn.Module):
    """Two graphs with Python between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        torch._dynamo.graph_break()
        return self.second(x) * x.sigmoid()


class SeveralBreaks(nn.Module):
    """Control flow that data decides."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(6, 6) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if x.sum() > 0:
            x = x.relu()
        x = self.second(x)
        if x.sum() > 0:
            x = x.sigmoid()
        return self.third(x)


class Aliases(nn.Module):
    """Results that are arguments, views of arguments, views of each other, numbers and nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6))

    def forward(self, x: Tensor) -> tuple:
        made = x @ self.weight.t()
        return x, x.t(), made, made.t(), made[:, :2], self.weight.view(-1), 3, None


class Mutation(nn.Module):
    """An argument and a buffer change in place."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        kept = x.detach()
        kept.mul_(2)
        return x * self.weight + self.count


class Gathering(nn.Module):
    """Indexing, scatter, cumulative sums, sorting: gradients that add up where indices meet."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(7, 5))

    def forward(self, rows: Tensor, x: Tensor) -> Tensor:
        found = self.table[rows]
        added = torch.zeros(7, 5).index_add(0, rows, x)
        largest = x.topk(2, -1).values.sum(-1, keepdim=True)
        return found.cumsum(0) + added.gather(0, rows[:, None].expand(-1, 5)) + largest


class Solving(nn.Module):
    """An op without an import between two linears; one that checks data has an effect."""

    def __init__(self, is_checked: bool = False) -> None:
        super().__init__()
        self.is_checked = is_checked
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        matrix = self.first(x) + 9 * torch.eye(5)
        if self.is_checked:
            return self.second(torch.linalg.solve(matrix, x))
        return self.second(torch.linalg.solve_ex(matrix, x).result)


class Repeated(nn.Module):
    """Two calls of one layer whose graph is compiled by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(5, 5, bias=False) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        @torch.compiler.nested_compile_region
        def layer(x: Tensor, weight: Tensor) -> Tensor:
            return torch.tanh(x @ weight)

        return layer(layer(x, self.first.weight), self.second.weight)


@dataclass(frozen=True)
class Golden:
    """A model, its example and how many graphs Dynamo makes of it."""

    name: str
    build: Callable[[], nn.Module]
    example: Callable[[], tuple[Tensor, ...]]
    graphs: int = 1

    def __str__(self) -> str:
        return self.name


def _floats(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(shape, requires_grad=True),)


GOLDEN = (
    Golden("perceptron", Perceptron, _floats(5, 12)),
    Golden("transformer", Transformer, lambda: (torch.randint(0, 20, (2, 8)),)),
    Golden("convolutions", Convolutions, _floats(2, 3, 11, 11)),
    Golden("one-break", OneBreak, _floats(4, 6), graphs=2),
    Golden("several-breaks", SeveralBreaks, _floats(4, 6), graphs=4),
    Golden("aliases", Aliases, _floats(3, 6)),
    Golden("mutation", Mutation, _floats(3, 6)),
    Golden(
        "gathering",
        Gathering,
        lambda: (torch.randint(0, 7, (6,)), torch.randn(6, 5, requires_grad=True)),
    ),
)
