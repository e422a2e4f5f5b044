"""MobileNet-V3 large in plain torch: inverted residuals, squeeze and excitation, hard swish."""

from __future__ import annotations

import torch
from torch import nn

# kernel, inner channels, outer channels, squeeze and excitation, hard swish, stride: table 1 of
# "Searching for MobileNetV3", arXiv:1905.02244.
_BLOCKS = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)


def _convolution(inputs: int, outputs: int, kernel: int, stride: int, groups: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3),
    )


class Excitation(nn.Module):
    """Channels scaled by a gate of their averages."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = max(8, channels // 4)
        self.reduce = nn.Conv2d(channels, inner, 1)
        self.expand = nn.Conv2d(inner, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[N, C, H, W]` → the same."""
        average = nn.functional.adaptive_avg_pool2d(x, 1)
        return x * nn.functional.hardsigmoid(self.expand(self.reduce(average).relu()))


class Block(nn.Module):
    """Widen, filter each channel, narrow."""

    def __init__(
        self, inputs: int, kernel: int, inner: int, outputs: int, squeezes: bool, swishes: bool,
        stride: int,
    ) -> None:  # fmt: skip
        super().__init__()
        activation: type[nn.Module] = nn.Hardswish if swishes else nn.ReLU
        self.layers = nn.Sequential(
            _convolution(inputs, inner, 1, 1, 1),
            activation(),
            _convolution(inner, inner, kernel, stride, inner),
            activation(),
            Excitation(inner) if squeezes else nn.Identity(),
            _convolution(inner, outputs, 1, 1, 1),
        )
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[N, C, H, W]` → `[N, outputs, H / stride, W / stride]`."""
        result: torch.Tensor = self.layers(x)
        return x + result if self.is_residual else result


class MobileNet(nn.Module):
    """Pixels `[N, 3, H, W]` → logits `[N, classes]`; `width` scales all channels."""

    def __init__(self, width: float = 1.0, classes: int = 1000) -> None:
        super().__init__()

        def scaled(channels: int) -> int:
            return max(8, int(channels * width + 4) // 8 * 8)

        channels = scaled(16)
        layers: list[nn.Module] = [_convolution(3, channels, 3, 2, 1), nn.Hardswish()]
        for kernel, inner, outputs, squeezes, swishes, stride in _BLOCKS:
            sizes = (kernel, scaled(inner), scaled(outputs), squeezes, swishes, stride)
            layers.append(Block(channels, *sizes))
            channels = scaled(outputs)
        layers += [_convolution(channels, scaled(960), 1, 1, 1), nn.Hardswish()]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(scaled(960), scaled(1280)), nn.Hardswish(), nn.Linear(scaled(1280), classes)
        )

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """See the class."""
        averages = self.features(pixels).mean((2, 3))
        logits: torch.Tensor = self.classifier(averages)
        return logits
