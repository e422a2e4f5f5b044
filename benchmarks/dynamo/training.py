"""A small GPT trained through `backend="aotc"`, beside eager and an eager of another order.

    python -m benchmarks.dynamo.training [STEPS]

All three start from the same weights and see the same batches: text of this repository, byte by
byte. The second eager sums in another order (one thread, the other oneDNN kernels off). Prints the
largest distance of the curves and writes docs/training.svg; 200 steps by default.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

ROOT = Path(__file__).parents[2]
PLOT = ROOT / "docs" / "training.svg"
STEPS, BATCH, LENGTH, WIDTH, HEADS, LAYERS, RATE = 200, 8, 64, 64, 4, 2, 3e-3
WIDTH_PX, HEIGHT_PX, MARGIN_PX = 640, 360, 48
COLOURS = {"eager": "#888888", "eager, other order": "#d08000", "aotc": "#0060c0"}


class Block(nn.Module):
    """A pre-norm transformer block with causal attention."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:2], HEADS, WIDTH // HEADS)
        parts = self.mixed(self.before(x)).chunk(3, -1)
        heads = (part.view(shape).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.after(x))))


class Transformer(nn.Module):
    """A small GPT over bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(128, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 128, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def batches(steps: int) -> list[Tensor]:
    """Windows of the repository's own pages, in a fixed random order."""
    text = b"".join(path.read_bytes() for path in sorted((ROOT / "docs").glob("*.md")))
    tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8).long() % 128
    starts = torch.randint(0, len(tokens) - LENGTH - 1, (steps, BATCH))
    return [torch.stack([tokens[at : at + LENGTH + 1] for at in row.tolist()]) for row in starts]


def train(module: nn.Module, call: Callable[[Tensor], Tensor], data: Sequence[Tensor]) -> Tensor:
    """The loss of each step."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=RATE)
    losses = []
    for batch in data:
        loss = functional.cross_entropy(call(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def curves(steps: int) -> dict[str, Tensor]:
    """The three loss curves by name."""
    torch.manual_seed(0)
    start, data, threads = Transformer(), batches(steps), torch.get_num_threads()
    found: dict[str, Tensor] = {}
    first = copy.deepcopy(start)
    found["eager"] = train(first, first, data)
    second = copy.deepcopy(start)
    torch.set_num_threads(1)
    with torch.backends.mkldnn.flags(enabled=False):
        found["eager, other order"] = train(second, second, data)
    torch.set_num_threads(threads)
    third = copy.deepcopy(start)
    compiled: Any = torch.compile(third, backend="aotc", options={"fallback": "error"})
    found["aotc"] = train(third, compiled, data)
    return found


def plot(found: dict[str, Tensor]) -> str:
    """The curves as an SVG picture."""
    top = max(float(each.max()) for each in found.values())
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH_PX} {HEIGHT_PX}" '
        'font-family="sans-serif" font-size="12">',
        f'<text x="{MARGIN_PX}" y="20">loss by step; the axis ends at {top:.2f}</text>',
    ]
    for row, (name, losses) in enumerate(found.items()):
        points = " ".join(_point(step, loss, len(losses), top) for step, loss in enumerate(losses))
        style = f'fill="none" stroke="{COLOURS[name]}" stroke-width="{3 - row}"'
        lines.append(f'<polyline {style} points="{points}"/>')
        place = f'x="{WIDTH_PX - 180}" y="{40 + 16 * row}" fill="{COLOURS[name]}"'
        lines.append(f"<text {place}>{name}</text>")
    return "\n".join([*lines, "</svg>"]) + "\n"


def _point(step: int, loss: Tensor, count: int, top: float) -> str:
    x = MARGIN_PX + step * (WIDTH_PX - 2 * MARGIN_PX) / max(count - 1, 1)
    y = HEIGHT_PX - MARGIN_PX - float(loss) / top * (HEIGHT_PX - 2 * MARGIN_PX)
    return f"{x:.1f},{y:.1f}"


def main() -> None:
    """Train three times, print how far apart the curves are, write the plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="?", type=int, default=STEPS)
    found = curves(parser.parse_args().steps)
    eager = found["eager"]
    for name, losses in found.items():
        distance = float((losses - eager).abs().max())
        print(f"{name}: last loss {float(losses[-1]):.4f}, at most {distance:.1e} from eager")
    PLOT.write_text(plot(found))


if __name__ == "__main__":
    main()
