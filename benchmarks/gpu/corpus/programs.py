"""Programs that are no networks, and parts of networks that few benchmarks hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Program(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Of the function."""
        return self.function(*tensors)


class StyleNet(nn.Module):
    """Instance norms and reflected borders, as in style transfer (arXiv:1603.08155)."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        sizes = ((3, width, 9, 1), (width, 2 * width, 3, 2), (2 * width, 4 * width, 3, 2))
        self.down = nn.ModuleList(
            nn.Conv2d(a, b, k, s, k // 2, padding_mode="reflect") for a, b, k, s in sizes
        )
        self.blocks = nn.ModuleList(
            nn.Conv2d(4 * width, 4 * width, 3, 1, 1, padding_mode="reflect") for _ in range(blocks)
        )
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(a, b, 3, 2, 1, 1)
            for a, b in ((4 * width, 2 * width), (2 * width, width))
        )
        self.last = nn.Conv2d(width, 3, 9, padding=4, padding_mode="reflect")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[N, 3, H, W]` → the same."""
        for layer in self.down:
            x = functional.relu(functional.instance_norm(layer(x)))
        for layer in self.blocks:
            x = x + functional.relu(functional.instance_norm(layer(x)))
        for layer in self.up:
            x = functional.relu(functional.instance_norm(layer(x)))
        found: torch.Tensor = torch.tanh(self.last(x))
        return found


class Segmenter(nn.Module):
    """Atrous convolutions and a pooled branch over one map, resized to the picture
    (DeepLabV3, arXiv:1706.05587)."""

    def __init__(self, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Conv2d(inputs, width, 3 if rate > 1 else 1, padding=rate if rate > 1 else 0,
                      dilation=rate, bias=False)
            for rate in (1, 12, 24, 36)
        )  # fmt: skip
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(4))
        self.pooled = nn.Conv2d(inputs, width, 1)
        self.join = nn.Conv2d(5 * width, width, 1)
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[N, inputs, H, W]` → `[N, classes, 8 H, 8 W]`."""
        found = [
            functional.relu(norm(branch(x)))
            for norm, branch in zip(self.norms, self.branches, strict=True)
        ]
        pooled = functional.relu(self.pooled(x.mean((2, 3), keepdim=True)))
        found.append(pooled.expand(-1, -1, *x.shape[2:]))
        y = self.last(functional.relu(self.join(torch.cat(found, 1))))
        size = (8 * x.shape[2], 8 * x.shape[3])
        return functional.interpolate(y, size=size, mode="bilinear")


class PointNet(nn.Module):
    """A perceptron at each point, the largest over all points, a classifier (arXiv:1612.00593)."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv1d(a, b, 1) for a, b in zip((3, *widths), widths, strict=False)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in widths)
        self.last = nn.Linear(widths[-1], 40)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[N, 3, points]` → `[N, 40]`."""
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = functional.relu(norm(layer(x)))
        found: torch.Tensor = self.last(x.amax(2))
        return found


class SplineLayer(nn.Module):
    """Sums of cubic B-splines of each input (KAN, arXiv:2404.19756)."""

    def __init__(self, inputs: int, outputs: int, cells: int = 8) -> None:
        super().__init__()
        self.register_buffer("knots", torch.linspace(-1.75, 1.75, cells + 7))
        self.weight = nn.Parameter(torch.randn(inputs * (cells + 3), outputs) * 0.05)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[N, inputs]` → `[N, outputs]`."""
        t = self.knots
        x = x[..., None]
        basis = ((x >= t[:-1]) & (x < t[1:])).to(x.dtype)
        for k in range(1, 4):
            left = (x - t[: -k - 1]) / (t[k:-1] - t[: -k - 1]) * basis[..., :-1]
            right = (t[k + 1 :] - x) / (t[k + 1 :] - t[1:-k]) * basis[..., 1:]
            basis = left + right
        found: torch.Tensor = basis.flatten(1) @ self.weight
        return found


class GraphConvolution(nn.Module):
    """Two layers of means over neighbours, by sums at the places of edges (arXiv:1706.02216)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.other = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """`[nodes, width]`, i64`[2, edges]` → `[nodes, width]`."""
        ones = torch.ones_like(edges[1], dtype=x.dtype)
        count = torch.zeros_like(x[:, 0]).index_add(0, edges[1], ones).clamp(min=1)
        for own, other in zip(self.own, self.other, strict=True):
            sums = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
            x = functional.relu(own(x) + other(sums / count[:, None]))
        return x


class Heads(nn.Module):
    """A feature pyramid and the scores and boxes of its thousand best places."""

    def __init__(self, widths: tuple[int, ...], width: int, classes: int, best: int) -> None:
        super().__init__()
        self.best, self.classes = best, classes
        self.lateral = nn.ModuleList(nn.Conv2d(each, width, 1) for each in widths)
        self.tower = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.scores, self.boxes = nn.Conv2d(width, classes, 1), nn.Conv2d(width, 4, 1)

    def forward(self, *maps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps of falling size → scores `[N, best]`, boxes `[N, best, 4]`."""
        levels = [layer(x) for layer, x in zip(self.lateral, maps, strict=True)]
        for place in reversed(range(len(levels) - 1)):
            size = levels[place].shape[2:]
            levels[place] = levels[place] + functional.interpolate(levels[place + 1], size=size)
        towers = [self.tower(level) for level in levels]
        scores = torch.cat([self.scores(x).flatten(2) for x in towers], 2).transpose(1, 2)
        boxes = torch.cat([self.boxes(x).flatten(2) for x in towers], 2).transpose(1, 2)
        best, place = scores.sigmoid().amax(2).topk(self.best, 1)
        return best, boxes.gather(1, place[..., None].expand(-1, -1, 4))


def stencil(x: torch.Tensor) -> torch.Tensor:
    """Twelve steps of heat in the plane, with fixed borders."""
    for _ in range(12):
        inner = x[1:-1, 1:-1]
        around = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
        x = functional.pad(inner + 0.2 * (around - 4 * inner), (1, 1, 1, 1))
    return x


def particles(place: torch.Tensor, speed: torch.Tensor) -> torch.Tensor:
    """One step of bodies that attract each other; f32`[n, 3]` each."""
    way = place[None] - place[:, None]
    force = (way * (way.square().sum(-1, keepdim=True) + 0.01).rsqrt().pow(3)).sum(1)
    return place + 0.01 * (speed + 0.01 * force)


def sample(logits: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws from the likeliest 90 % of each row: `[rows, words]` and `[rows, 1]` → the chances and
    the words that are drawn, `[rows, 1]` each."""
    chances, words = logits.float().softmax(-1).sort(-1, descending=True)
    total = chances.cumsum(-1)
    kept = torch.where(total - chances < 0.9, chances, 0.0).cumsum(-1)
    place = (kept < noise * kept[:, -1:]).sum(-1, keepdim=True)
    return chances.gather(1, place), words.gather(1, place)


def histogram(x: torch.Tensor) -> torch.Tensor:
    """Counts of 256 cells between -4 and 4 of each row."""
    cell = ((x + 4) * 32).clamp(0, 255).long()
    return x.new_zeros(x.shape[0], 256).scatter_add(1, cell, torch.ones_like(x))


def columns(x: torch.Tensor) -> torch.Tensor:
    """Norms of the columns of a long matrix."""
    return (x - x.mean(0)) / (x.var(0) + 1e-5).sqrt()


def spectrum(x: torch.Tensor) -> torch.Tensor:
    """Powers of short-time spectra of waves `[N, samples]`."""
    frames = x.unfold(1, 512, 128) * torch.hann_window(512, device=x.device)
    return torch.fft.rfft(frames).abs().square().clamp(min=1e-10).log()


def black_scholes(price: torch.Tensor, strike: torch.Tensor, years: torch.Tensor) -> torch.Tensor:
    """Prices of call options."""
    root = 0.2 * years.sqrt()
    first = ((price / strike).log() + (0.05 + 0.02) * years) / root
    second = first - root
    normal = torch.special.ndtr
    return price * normal(first) - strike * (-0.05 * years).exp() * normal(second)
