"""What many shapes of a call cost: 1,000 of them in turn against each of them again and again.

    python -m benchmarks.shapes [--shapes 1000] [--rounds 5]

A perceptron and an encoder are built once with `dynamic_shapes` for the CPU. Times are those of the
process on one thread, so that other work on the machine counts less.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPETITIONS = 10  # of a shape by itself
_SPECS = {
    "perceptron": """
import torch
from torch.export import Dim

model = torch.nn.Sequential(
    torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 32)
).eval()
example_inputs = (torch.randn(8, 64),)
dynamic_shapes = ({0: Dim("rows", max=4096)},)
""",
    "encoder": """
import torch
from torch.export import Dim

layer = torch.nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval()
example_inputs = (torch.randn(8, 2, 16),)
dynamic_shapes = ({0: Dim("rows", max=4096)},)
""",
}
_ROW = {"perceptron": (64,), "encoder": (2, 16)}


def main() -> None:
    """Print a row a model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print("| model | first call of a shape, µs | in turn, µs | by itself, µs | ratio |")
    print("|---|---:|---:|---:|---:|")
    for name, source in _SPECS.items():
        with tempfile.TemporaryDirectory(prefix="aotc-bench-") as folder:
            spec, bundle = Path(folder, f"{name}.py"), Path(folder, "bundle")
            spec.write_text(source)
            command = [sys.executable, "-m", "aotc.aot.cli", "build", str(spec), "-o", str(bundle)]
            subprocess.run(command, check=True, capture_output=True)
            first, turn, alone = measure(bundle, _ROW[name], options.shapes, options.rounds)
        print(f"| {name} | {first:.0f} | {turn:.1f} | {alone:.1f} | {turn / alone:.2f} |")


def measure(
    bundle: Path, row: Sequence[int], shapes: int, rounds: int
) -> tuple[float, float, float]:
    """Microseconds a call: the first of each shape, all shapes in turn, each by itself."""
    import torch

    from aotc import runtime

    inputs = [torch.zeros(count, *row) for count in range(1, shapes + 1)]
    with runtime.load(bundle, threads=1) as program, program.session() as session:

        def seconds(arrays: Sequence[Any]) -> float:
            start = time.process_time()
            for array in arrays:
                session(array)
            return (time.process_time() - start) / len(arrays)

        first = seconds(inputs)
        seconds(inputs)  # while the arena grew, shapes were forgotten
        turns, alone = [], []
        for _ in range(rounds):
            turns.append(seconds(inputs))
            few = inputs[:: max(1, shapes // 50)]
            alone.append(statistics.mean(seconds([each] * REPETITIONS) for each in few))
    return first * 1e6, statistics.median(turns) * 1e6, statistics.median(alone) * 1e6


if __name__ == "__main__":
    main()
