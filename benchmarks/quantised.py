"""Decode with quantised weights on this machine's CPU: times beside our own f32, interleaved.

python -m benchmarks.quantised [--width 2048] [--layers 3] [--calls 200]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy

from aotc import runtime

KINDS = ("f32", "int8", "int4", "fp8")
SPEC = """
import torch
from torch import nn
torch.manual_seed(0)
width, layers = {width}, {layers}
steps = []
for _ in range(layers):
    steps += [nn.Linear(width, 2 * width, bias=False), nn.SiLU()]
    steps += [nn.Linear(2 * width, width, bias=False)]
model = nn.Sequential(*steps).eval()
example_inputs = (torch.randn(1, width),)
"""


def main() -> None:
    """Build each kind, then time calls of one row, one kind after the other in each round."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--calls", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder, "decode.py")
        spec.write_text(SPEC.format(width=given.width, layers=given.layers))
        programs = {}
        for kind in KINDS:
            own = [] if kind == "f32" else ["--quantize", kind]
            out = Path(folder, kind)
            command = [sys.executable, "-m", "aotc.aot.cli", "build", spec, "-o", out]
            subprocess.run([*command, "--target", "cpu", "--quiet", *own], check=True)
            programs[kind] = runtime.load(out)
        x = numpy.random.default_rng(0).standard_normal((1, given.width)).astype("float32")
        times: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(given.calls):
            for kind, program in programs.items():
                started_s = time.perf_counter()
                program(x)
                times[kind].append(time.perf_counter() - started_s)
        whole = statistics.median(times["f32"])
        print(f"load average {os.getloadavg()[0]:.1f}")
        for kind in KINDS:
            median = statistics.median(times[kind])
            stored = Path(folder, kind, "weights.safetensors").stat().st_size
            print(
                f"{kind}: median {median * 1e6:.0f} us, least {min(times[kind]) * 1e6:.0f} us, "
                f"{whole / median:.2f}x f32, {stored / 1e6:.1f} MB"
            )


if __name__ == "__main__":
    main()
