"""Triton kernels on the CPU target against Triton's interpreter: a product and a softmax.

    python -m benchmarks.triton_interpreter [--threads N]

The interpreter binds when a kernel is decorated, so it runs in a process of its own. The times are
medians; both results are compared with torch's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

SIZE = 512
ROWS, COLUMNS = 1024, 1024
SECONDS = 2.0
INTERPRETED = "TRITON_INTERPRET"


def _kernels() -> dict[str, Callable[[], tuple[Any, Any]]]:
    """What is timed: name → function that runs it once and gives (found, expected)."""
    import torch

    from benchmarks.triton_kernels import matmul_kernel, softmax_kernel

    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(SIZE, SIZE, generator=generator) for _ in range(2))
    c = torch.empty(SIZE, SIZE)
    x = torch.randn(ROWS, COLUMNS, generator=generator)
    y = torch.empty_like(x)
    product, rows = a @ b, x.softmax(1)

    def matmul() -> tuple[Any, Any]:
        block = 64
        matmul_kernel[(SIZE // block, SIZE // block)](a, b, c, SIZE, BLOCK=block, DEPTH=64)
        return c, product

    def softmax() -> tuple[Any, Any]:
        softmax_kernel[(ROWS,)](x, y, COLUMNS, BLOCK=COLUMNS)
        return y, rows

    return {f"matmul {SIZE}³": matmul, f"softmax {ROWS}×{COLUMNS}": softmax}


def measure() -> dict[str, float]:
    """Seconds of each kernel in this process."""
    import torch

    if not os.environ.get(INTERPRETED):
        from aotc import kernels

        kernels.use_cpu()
    found: dict[str, float] = {}
    for name, run in _kernels().items():
        times: list[float] = []
        end = time.perf_counter() + SECONDS
        while len(times) < 2 or time.perf_counter() < end:
            start = time.perf_counter()
            pair = run()
            times.append(time.perf_counter() - start)
            torch.testing.assert_close(*pair, rtol=1e-3, atol=1e-3)
        found[name] = median(times[1:] or times)  # the first compiles
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        sys.stdout.write(json.dumps(measure()))
        return 0
    command = [sys.executable, "-m", "benchmarks.triton_interpreter", "--one"]
    environment = {**os.environ, "AOTC_THREADS": str(given.threads)}
    environment.pop(INTERPRETED, None)
    ours, theirs = (
        json.loads(subprocess.run(command, env=each, check=True, capture_output=True).stdout)
        for each in (environment, {**environment, INTERPRETED: "1"})
    )
    sys.stdout.write(f"{'kernel':22}{'aotc ms':>10}{'interpreter ms':>16}{'ratio':>9}\n")
    for name, seconds in ours.items():
        other = theirs[name]
        line = f"{name:22}{seconds * 1e3:10.3f}{other * 1e3:16.1f}{other / seconds:9.0f}\n"
        sys.stdout.write(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
