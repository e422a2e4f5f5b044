"""A U-Net in plain torch: convolutions down and up again, with the planes of each level joined."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn


def _twice(inputs: int, outputs: int) -> nn.Module:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Pixels `[N, 3, H, W]` → classes `[N, classes, H, W]`; H and W divide by `2 ** depth`."""

    def __init__(self, width: int = 32, depth: int = 4, classes: int = 2) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        pairs = list(pairwise(widths))
        self.first = _twice(3, width)
        self.down = nn.ModuleList(_twice(narrow, wide) for narrow, wide in pairs)
        self.widen = nn.ModuleList(
            nn.ConvTranspose2d(wide, narrow, 2, stride=2) for narrow, wide in reversed(pairs)
        )
        self.up = nn.ModuleList(_twice(2 * narrow, narrow) for narrow, _ in reversed(pairs))
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """See the class."""
        planes = [self.first(pixels)]
        for level in self.down:
            planes.append(level(nn.functional.max_pool2d(planes[-1], 2)))
        x = planes.pop()
        for widen, level in zip(self.widen, self.up, strict=True):
            x = level(torch.cat((planes.pop(), widen(x)), dim=1))
        result: torch.Tensor = self.last(x)
        return result
