"""A causal attention layer of open lengths, forward and backward on the CPU: by the kernels, and by
products and softmax, in processes that take turns.

    python -m benchmarks.dynamo.open_attention [--rounds 2]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

import torch
from torch._functorch import config as functorch_config
from torch.nn import functional

from aotc.aot.dynamo import aotc, attention

HEADS, ELEMENTS, SEQUENCES = 8, 32, 4
LENGTHS = (128, 512, 1024)
STEPS = 12  # of each length in a process
WAYS = ("kernels", "products")


class Layer(torch.nn.Module):
    """One linear for queries, keys and values, attention, one linear."""

    def __init__(self) -> None:
        super().__init__()
        width = HEADS * ELEMENTS
        self.parts, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, rows, width = x.shape
        parts = self.parts(x).view(batch, rows, 3, HEADS, ELEMENTS).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(*parts, is_causal=True)
        return self.out(found.transpose(1, 2).reshape(batch, rows, width))


def measured(way: str) -> dict[int, float]:
    """The fastest step of each length, in ms."""
    if way == "products":
        attention._has_kernels = lambda *_: False
    functorch_config.enable_autograd_cache = False  # graphs are made as this process says
    layer = Layer()
    step = torch.compile(layer, backend=aotc, options={"fallback": "error"})
    found = {}
    for rows in (100, *LENGTHS):
        times = []
        for _ in range(STEPS):
            x = torch.randn(SEQUENCES, rows, HEADS * ELEMENTS)
            torch._dynamo.mark_dynamic(x, 1)
            begun = time.perf_counter()
            step(x).sum().backward()
            times.append(time.perf_counter() - begun)
        found[rows] = min(times) * 1e3
    return found


def main() -> None:
    """Print the fastest step of each way and length."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--way", choices=WAYS)
    given = parser.parse_args()
    if given.way:
        print(json.dumps(measured(given.way)))
        return
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(given.rounds):
        for way in WAYS:
            command = [sys.executable, "-m", "benchmarks.dynamo.open_attention", "--way", way]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found[way].append(json.loads(output.splitlines()[-1]))
    for rows in map(str, LENGTHS):
        times = {way: min(each[rows] for each in rounds) for way, rounds in found.items()}
        print(rows, "tokens:", ", ".join(f"{way} {ms:.0f} ms" for way, ms in times.items()))


if __name__ == "__main__":
    main()
