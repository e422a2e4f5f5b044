"""Attention alone behind `backend="aotc"`, eager and Inductor: forward, and forward with gradients.

    python -m benchmarks.dynamo.attention [--threads N]

Heads are read from what one linear would give, as models have them. All are called in turns in one
process. Prints the fastest calls as a table.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.report import table

ROUNDS, SECONDS = 7, 0.2
ELEMENT = 64
KINDS = ("eager", "aotc", "inductor")


@dataclass(frozen=True, slots=True)
class Shape:
    """Batch, heads and rows of an attention over itself."""

    batch: int
    heads: int
    rows: int
    is_causal: bool = False

    def attend(self, mixed: Tensor) -> Tensor:
        """[batch, rows, heads · element] from queries, keys and values beside each other."""
        parts = mixed.chunk(3, -1)
        split = (part.unflatten(-1, (self.heads, ELEMENT)).transpose(1, 2) for part in parts)
        found = functional.scaled_dot_product_attention(*split, is_causal=self.is_causal)
        return found.transpose(1, 2).flatten(2)

    def __str__(self) -> str:
        causal = ", causal" if self.is_causal else ""
        return f"{self.batch}×{self.heads}×{self.rows}×{ELEMENT}{causal}"


SHAPES = (
    Shape(4, 4, 64),
    Shape(1, 4, 64),
    Shape(4, 4, 256),
    Shape(1, 8, 512),
    Shape(1, 8, 512, is_causal=True),
    Shape(1, 8, 1024, is_causal=True),
)


def main() -> None:
    """Measure all shapes and print two tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dynamo.attention", description=__doc__
    )
    parser.add_argument("--threads", type=int, default=1)
    torch.set_num_threads(parser.parse_args().threads)
    rows: dict[str, list[list[str]]] = {"forward": [], "forward and gradients": []}
    for shape in SHAPES:
        for title, calls in _calls(shape, torch.get_num_threads()).items():
            found = _fastest_us(calls)
            share = f"{found['inductor'] / found['aotc']:.2f}×"
            rows[title].append([str(shape), *(f"{found[kind]:.0f}" for kind in KINDS), share])
    heads = ["attention", *(f"{kind}, µs" for kind in KINDS), "`inductor` / `aotc`"]
    for title, lines in rows.items():
        print(f"## {title}\n\n{table(heads, lines)}\n")


def _calls(shape: Shape, threads: int) -> dict[str, dict[str, Callable[[], object]]]:
    torch._dynamo.reset()
    mixed = torch.randn(shape.batch, shape.rows, 3 * shape.heads * ELEMENT, requires_grad=True)
    gradient = torch.randn(shape.batch, shape.rows, shape.heads * ELEMENT)
    options = {"threads": threads, "fallback": "error"}
    functions = {
        "eager": shape.attend,
        "aotc": torch.compile(shape.attend, backend="aotc", options=options),
        "inductor": torch.compile(shape.attend, backend="inductor"),
    }

    def forward(call: Callable[[Tensor], Tensor]) -> Tensor:
        with torch.no_grad():
            return call(mixed)

    def both(call: Callable[[Tensor], Tensor]) -> object:
        return torch.autograd.grad(call(mixed), mixed, gradient)

    return {
        title: {kind: lambda call=call, run=run: run(call) for kind, call in functions.items()}
        for title, run in (("forward", forward), ("forward and gradients", both))
    }


def _fastest_us(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Microseconds of the fastest call of each, called in turns."""
    fastest = dict.fromkeys(calls, float("inf"))
    for turn in range(ROUNDS + 1):  # the first one compiles
        for kind, call in calls.items():
            end_s = time.perf_counter() + (SECONDS if turn else 0)
            while True:
                began_s = time.perf_counter()
                call()
                now_s = time.perf_counter()
                if turn:
                    fastest[kind] = min(fastest[kind], (now_s - began_s) * 1e6)
                if now_s >= end_s:
                    break
    return fastest


if __name__ == "__main__":
    main()
