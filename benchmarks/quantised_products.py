"""Linear layers with quantised weights on this machine's processor, beside bf16, f32 and torch.

    python -m benchmarks.quantised_products [--rows 1,8,32] [--shapes 16384x2048] [--calls 60]

A bundle for each kind of weights, built by `aotc build` without tuning; calls take turns, and the
least and the lower quartile of each are printed, in milliseconds.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from aotc import runtime

KINDS = ("f32", "bf16", "int8", "int4", "fp8")
SPEC = """
import torch

torch.manual_seed(0)
model = torch.nn.Linear({depth}, {columns}, bias=False, dtype=torch.{dtype}).eval()
example_inputs = (torch.randn({rows}, {depth}).to(torch.{dtype}),)
"""


def built(kind: str, rows: int, columns: int, depth: int, folder: Path) -> Path:
    """The bundle of a layer [rows, depth] → [rows, columns]."""
    dtype = "float32" if kind == "f32" else "bfloat16"
    spec, out = folder / f"{kind}.py", folder / kind
    spec.write_text(SPEC.format(rows=rows, columns=columns, depth=depth, dtype=dtype))
    own = [] if kind in ("f32", "bf16") else ["--quantize", kind]
    line = [sys.executable, "-m", "aotc.aot.cli", "build", str(spec), "-o", str(out), "--quiet"]
    subprocess.run([*line, "--target", "cpu", *own], check=True, stdout=subprocess.DEVNULL)
    return out


def measure(rows: int, columns: int, depth: int, count: int) -> None:
    """A line of each kind's times, and of torch's own bf16."""
    x = torch.randn(rows, depth)
    layer = torch.nn.Linear(depth, columns, bias=False, dtype=torch.bfloat16)
    narrow = x.bfloat16()
    calls: dict[str, Callable[[], Any]] = {"torch bf16": lambda: layer(narrow)}
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        for kind in KINDS:
            program = runtime.load(built(kind, rows, columns, depth, Path(folder)))
            calls[kind] = program.bind(x if kind == "f32" else narrow)
        times: dict[str, list[float]] = {name: [] for name in calls}
        for turn in range(count + 3):
            for name, call in calls.items():
                began_s = time.perf_counter()
                call()
                if turn >= 3:
                    times[name].append(1e3 * (time.perf_counter() - began_s))
    shown = ", ".join(
        f"{name} {min(each):.2f} ({statistics.quantiles(each)[0]:.2f})"
        for name, each in times.items()
    )
    print(f"{rows} × {depth} → {columns}: {shown}", flush=True)


def main() -> None:
    """Measure each shape at each number of rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", default="1,8,32")
    parser.add_argument("--shapes", default="16384x2048,2048x8192", help="columns x depth")
    parser.add_argument("--calls", type=int, default=60)
    given = parser.parse_args()
    for shape in given.shapes.split(","):
        columns, depth = map(int, shape.split("x"))
        for rows in map(int, given.rows.split(",")):
            measure(rows, columns, depth, given.calls)


if __name__ == "__main__":
    main()
