"""Parts of diffusion models in plain torch: a U-Net, a transformer, a decoder of latents."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    """GroupNorm, SiLU and a convolution, twice, and the way around (arXiv:2112.10752)."""

    def __init__(self, inputs: int, outputs: int, times: int = 0) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, width) for width in (inputs, outputs))
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(times, outputs) if times else None
        self.around = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor | None = None) -> torch.Tensor:
        """`[N, inputs, H, W]`, `[N, times]` → `[N, outputs, H, W]`."""
        y = self.first(functional.silu(self.norms[0](x)))
        if self.time is not None and time is not None:
            y = y + self.time(functional.silu(time))[:, :, None, None]
        found: torch.Tensor = self.around(x) + self.second(functional.silu(self.norms[1](y)))
        return found


class Attend(nn.Module):
    """Attention among the places of a plane, then to a text, then two layers."""

    def __init__(self, width: int, heads: int, text: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(32, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own = nn.Linear(width, 3 * width, bias=False)
        self.query = nn.Linear(width, width, bias=False)
        self.text = nn.Linear(text, 2 * width, bias=False)
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.wide, self.narrow = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def _attention(self, *parts: torch.Tensor) -> torch.Tensor:
        query, key, value = (x.unflatten(2, (self.heads, -1)).transpose(1, 2) for x in parts)
        found = functional.scaled_dot_product_attention(query, key, value)
        return found.transpose(1, 2).flatten(2)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """`[N, width, H, W]`, `[N, length, text]` → `[N, width, H, W]`."""
        y = self.norm(x).flatten(2).transpose(1, 2)
        y = y + self.out[0](self._attention(*self.own(self.norms[0](y)).chunk(3, -1)))
        keys = self.text(text).chunk(2, -1)
        y = y + self.out[1](self._attention(self.query(self.norms[1](y)), *keys))
        value, gate = self.wide(self.norms[2](y)).chunk(2, -1)
        y = y + self.narrow(value * functional.gelu(gate))
        return x + y.transpose(1, 2).unflatten(2, x.shape[2:])


class DiffusionUNet(nn.Module):
    """The U-Net of a latent diffusion model with one block a level."""

    def __init__(self, widths: tuple[int, ...], heads: int, text: int) -> None:
        super().__init__()
        times = 4 * widths[0]
        self.time = nn.Sequential(nn.Linear(widths[0], times), nn.SiLU(), nn.Linear(times, times))
        self.first = nn.Conv2d(4, widths[0], 3, padding=1)
        steps = list(zip(widths[:1] + widths, widths, strict=False))
        self.down = nn.ModuleList(Residual(a, b, times) for a, b in steps)
        self.smaller = nn.ModuleList(nn.Conv2d(b, b, 3, 2, 1) for b in widths[:-1])
        self.attend = nn.ModuleList(Attend(b, heads, text) for b in widths[:-1])
        self.middle = Residual(widths[-1], widths[-1], times)
        self.up = nn.ModuleList(Residual(2 * b, a, times) for a, b in reversed(steps))
        self.norm, self.last = nn.GroupNorm(32, widths[0]), nn.Conv2d(widths[0], 4, 3, padding=1)

    def forward(self, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """`[N, 4, H, W]`, `[N, widths[0]]`, `[N, length, text]` → `[N, 4, H, W]`."""
        moment, x, kept = self.time(time), self.first(x), []
        for place, block in enumerate(self.down):
            x = block(x, moment)
            if place < len(self.attend):
                x = self.attend[place](x, text)
            kept.append(x)
            if place < len(self.smaller):
                x = self.smaller[place](x)
        x = self.middle(x, moment)
        for place, block in enumerate(self.up):
            if place:
                x = functional.interpolate(x, scale_factor=2.0)
            x = block(torch.cat((x, kept.pop()), 1), moment)
        found: torch.Tensor = self.last(functional.silu(self.norm(x)))
        return found


class DiT(nn.Module):
    """Blocks of a diffusion transformer with adaptive norms (arXiv:2212.09748)."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.heads = heads
        self.blocks = nn.ModuleList(
            nn.ModuleDict({
                "modulate": nn.Linear(width, 6 * width),
                "own": nn.Linear(width, 3 * width),
                "out": nn.Linear(width, width),
                "wide": nn.Linear(width, 4 * width),
                "narrow": nn.Linear(4 * width, width),
            })
            for _ in range(layers)
        )  # fmt: skip

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """`[N, places, width]`, `[N, width]` → `[N, places, width]`."""
        for block in self.blocks:
            parts = block["modulate"](functional.silu(condition))[:, None].chunk(6, -1)
            y = functional.layer_norm(x, x.shape[-1:]) * (1 + parts[0]) + parts[1]
            each = block["own"](y).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            y = functional.scaled_dot_product_attention(each[0], each[1], each[2])
            x = x + parts[2] * block["out"](y.transpose(1, 2).flatten(2))
            y = functional.layer_norm(x, x.shape[-1:]) * (1 + parts[3]) + parts[4]
            x = x + parts[5] * block["narrow"](
                functional.gelu(block["wide"](y), approximate="tanh")
            )
        return x


class Decoder(nn.Module):
    """The decoder of an image autoencoder: latents to pixels, eight times as high and wide."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, widths[0], 3, padding=1)
        steps = zip(widths[:1] + widths, widths, strict=False)
        self.levels = nn.ModuleList(Residual(a, b) for a, b in steps)
        self.larger = nn.ModuleList(nn.Conv2d(b, b, 3, padding=1) for b in widths[:-1])
        self.norm, self.last = nn.GroupNorm(32, widths[-1]), nn.Conv2d(widths[-1], 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[N, 4, H, W]` → `[N, 3, 8 H, 8 W]` for four widths."""
        x = self.first(x)
        for place, level in enumerate(self.levels):
            x = level(x)
            if place < len(self.larger):
                x = self.larger[place](functional.interpolate(x, scale_factor=2.0))
        found: torch.Tensor = self.last(functional.silu(self.norm(x)))
        return found
