"""What a start costs, and a call beside its kernels: a model of eight numbers called in three ways.

python -m benchmarks.host_cost
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

CALLS = 5000

_SPEC = """
import torch

def model(x):
    return x + 1

example_inputs = (torch.arange(8, dtype=torch.float32),)
"""


def measure(rounds: int) -> dict[str, float]:
    """Median microseconds a call, the ways taken in turns."""
    import torch

    from aotc import runtime

    with tempfile.TemporaryDirectory(prefix="aotc-bench-") as name:
        spec = Path(name, "tiny.py")
        spec.write_text(_SPEC)
        bundle = Path(name, "bundle")
        command = [sys.executable, "-m", "aotc.aot.cli", "build", str(spec), "-o", str(bundle)]
        subprocess.run(command, check=True, capture_output=True)
        program = runtime.load(bundle)
    x, out = torch.arange(8, dtype=torch.float32), torch.empty(8)
    ways: dict[str, Callable[[], object]] = {
        "bound call": program.bind(x, out=out),
        "torch tensors, `out=`": lambda: program(x, out=out),
        "torch tensors, new outputs": lambda: program(x),
        "eager torch, the same model": lambda: x + 1,
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, call in ways.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            times[way].append((time.perf_counter() - start) / CALLS * 1e6)
    return {way: statistics.median(found) for way, found in times.items()}


def starts_ms(rounds: int = 21) -> dict[str, float]:
    """Median milliseconds of a fresh process that runs a line of Python, the lines in turns.

    Without `site`: what an environment adds to every start is no part of either. Each line runs
    once before it is timed, so that its bytecode is there.
    """
    root = str(Path(__file__).resolve().parents[1])
    lines = {
        "the interpreter alone": "pass",
        "`import aotc.runtime`": "import aotc.runtime",
        "and what `load` needs": "from aotc.runtime import load",
    }
    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    path = f"import sys; sys.path.insert(0, {root!r})"
    times: dict[str, list[float]] = {name: [] for name in lines}
    for _ in range(1 + rounds):
        for name, line in lines.items():
            start = time.perf_counter()
            command = [sys.executable, "-S", "-c", f"{path}; {line}"]
            subprocess.run(command, check=True, env=environment)
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(found[1:]) for name, found in times.items()}


if __name__ == "__main__":
    for name, found_ms in starts_ms().items():
        print(f"{found_ms:7.1f} ms  {name}")
    for name, found_us in measure(9).items():
        print(f"{found_us:7.2f} µs  {name}")
