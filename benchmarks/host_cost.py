"""What a call costs beside its kernels: a model of eight numbers, called in three ways."""

from __future__ import annotations

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


def import_ms() -> float:
    """Milliseconds that `import runtime` takes in a fresh process: the best of ten."""
    program = (
        "import time; start = time.perf_counter(); import aotc.runtime; "
        "print((time.perf_counter() - start) * 1e3)"
    )
    command = [sys.executable, "-c", program]
    found = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(10)]
    return min(float(done.stdout) for done in found)
