"""What a call of a native function costs over the raw ctypes call of the same function.

    python -m benchmarks.native_calls            a table; --json FILE keeps it with the machine

It builds `examples/native/custom_add` with the machine's C compiler and adds few elements,
so that the time is the call's. Each figure is the median of many short samples, taken in turns, and
the load of the machine stands beside them: figures of a busy machine say nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy

from aotc import runtime
from aotc.runtime import backends

SOURCE = Path(__file__).parents[1] / "examples" / "native" / "custom_add" / "custom_add.c"
ELEMENTS = 8
CALLS, SAMPLES = 2000, 101
QUIET_LOAD = 0.5  # of a CPU: above it the table warns
LIMIT_US = 3.0  # over the raw call, for arrays taken by their own pointers


class Capsule:
    """An array that has DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **named: Any) -> Any:
        return self.array.__dlpack__(**named)


def built(folder: Path) -> Path:
    """The library of the example, compiled into `folder`."""
    out = folder / "libcustom_add.so"
    headers = Path(backends.__file__).parent
    command = ["cc", "-std=c11", "-O3", "-fPIC", "-shared", f"-I{headers}", SOURCE, "-o", out]
    subprocess.run(list(map(str, command)), check=True)
    return out


def ways(library: backends.Backend) -> dict[str, Callable[[], Any]]:
    """Name → one call, of each way to make it; the raw one first."""
    import torch

    add = library.add
    a, b, out = (numpy.ones(ELEMENTS, numpy.float32) for _ in range(3))
    x, y, z = (torch.ones(ELEMENTS) for _ in range(3))
    capsules = Capsule(a), Capsule(b), Capsule(out)
    add(a, b, ELEMENTS, out=out)
    frame = library["add"]._recent[-1]
    raw, pointers = backends.abi.KERNEL(library.get_function_ptr("add")), frame.pointers
    return {
        "raw ctypes call": lambda: raw(*pointers),
        "numpy": lambda: add(a, b, ELEMENTS, out=out),
        "torch": lambda: add(x, y, ELEMENTS, out=z),
        "library.add, numpy": lambda: library.add(a, b, ELEMENTS, out=out),
        "execute_kernel, numpy": lambda: library.execute_kernel("add", out, a, b, ELEMENTS),
        "DLPack": lambda: add(capsules[0], capsules[1], ELEMENTS, out=capsules[2]),
    }


def measure(calls: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Microseconds of each call: the median of samples that take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(SAMPLES):
        for name, call in calls.items():
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            times[name].append((time.perf_counter() - begin) / CALLS * 1e6)
    return {name: statistics.median(rows) for name, rows in times.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="keep the figures in a file")
    options = parser.parse_args()
    load = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        times_us = measure(ways(runtime.get_backend(built(Path(folder)))))
    raw_us = times_us["raw ctypes call"]
    print(f"{'way':<24}{'µs':>8}{'over raw':>10}")
    for name, time_us in times_us.items():
        print(f"{name:<24}{time_us:>8.2f}{time_us - raw_us:>10.2f}")
    print(f"load before: {load:.2f} of each CPU; wanted: ≤ {LIMIT_US} µs over the raw call")
    if load > QUIET_LOAD:
        print("the machine is busy: these figures say nothing")
    if options.json is not None:
        record = {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": platform.processor() or platform.machine(),
            "python": platform.python_version(),
            "load": load,
            "times_us": times_us,
        }
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
