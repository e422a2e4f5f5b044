"""Bundles of one model beside each other, as those of two versions or of several choices.

    python -m benchmarks.gpu.bundles SPEC BUNDLE BUNDLE…

Bound calls on the spec's example inputs, all in one process and in turns, by the device's events
around 30 calls that follow each other: the median of 11 rounds, the least, and the quartiles, and
how far the first output is from that of the first bundle, relative to its largest value.
"""

from __future__ import annotations

import argparse
import statistics
from contextlib import ExitStack
from pathlib import Path

import torch

from aotc import runtime
from benchmarks.gpu import saved
from benchmarks.gpu.forward import ROUNDS, difference, round_ms


def main() -> None:
    """Print a line for each bundle."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("spec")
    parser.add_argument("bundles", nargs="+", type=Path)
    given = parser.parse_args()
    _, args, named = saved.load(given.spec)
    own = [value.contiguous() for value in (args or named.values())]
    with ExitStack() as stack:
        calls = {}
        for path in given.bundles:
            program = stack.enter_context(runtime.load(path, device="cuda"))
            states = stack.enter_context(program.session()) if program.states else program
            calls[path] = states.bind(*own)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        rounds: dict[Path, list[float]] = {path: [] for path in calls}
        for _ in range(ROUNDS):
            for path, call in calls.items():
                rounds[path].append(round_ms(call, *marks))
        first = next(iter(calls.values()))
        for path, row in rounds.items():
            low, middle, high = statistics.quantiles(row, n=4)
            away = difference(calls[path](), first())
            print(f"{path.name}: {middle:.4f} ms [{min(row):.4f} {low:.4f} {high:.4f}], "
                  f"differs by {away:.1e}")  # fmt: skip


if __name__ == "__main__":
    main()
