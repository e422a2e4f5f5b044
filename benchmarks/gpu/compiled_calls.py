"""What `backend="aotc"` costs the host on a GPU, beside Inductor and eager.

    python -m benchmarks.gpu.compiled_calls [--rounds 5] [--out FILE]

Two tables. A second process: seconds from the first use of torch.compile to the first result of an
encoder, caches warm, processes in turns, and what each has above its own turn's `backend="eager"`.
A call: microseconds of the host for a call of a compiled function whose kernels take less, without
gradients, with them, and with the backward pass: a pointwise function of one tensor, one of 32, and
a perceptron. Each contender has a process of its own. Calls are made in blocks, in turns, behind a
synchronisation; the best block of each counts, since the host has other work.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aotc.aot.dynamo import aotc
from benchmarks.gpu.machine import facts
from benchmarks.report import table

START = (sys.executable, "-m", "benchmarks.dynamo.process", "start")
START_MODEL, START_KINDS = "encoder-12", ("eager", "aotc", "inductor")
KINDS = ("eager", "inductor", "aotc")
CALLS, BLOCKS = 200, 15
PASSES = ("forward, no_grad", "forward", "forward and backward")


def pointwise(x: Tensor, *others: Tensor) -> Tensor:
    """One kernel."""
    for other in others:
        x = x + other
    return torch.sin(x) * 2


def _tensors(count: int) -> tuple[Tensor, ...]:
    return tuple(torch.randn(64, 64, device="cuda", requires_grad=True) for _ in range(count))


def _perceptron() -> nn.Module:
    layers = (nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 64))
    return nn.Sequential(*layers).cuda()


CASES: dict[str, Callable[[], tuple[Callable[..., Tensor], tuple[Tensor, ...]]]] = {
    "pointwise, 1 tensor": lambda: (pointwise, _tensors(1)),
    "pointwise, 32 tensors": lambda: (pointwise, _tensors(32)),
    "perceptron": lambda: (_perceptron(), _tensors(1)),
}


class Process:
    """What a contender's process does: one function at a time, with its calls by pass."""

    calls: dict[str, Callable[[], Any]]

    @classmethod
    def begin(cls, kind: str, name: str) -> None:
        """Compile a function and warm its calls up."""
        function, tensors = CASES[name]()
        call: Callable[..., Tensor] = function
        if kind != "eager":
            call = torch.compile(function, **({"backend": aotc} if kind == "aotc" else {}))
        gradient = torch.ones(64, 64, device="cuda")

        def without() -> None:
            with torch.no_grad():
                call(*tensors)

        passes = (without, lambda: call(*tensors), lambda: call(*tensors).backward(gradient))
        cls.calls = dict(zip(PASSES, passes, strict=True))
        for each in passes:
            for _ in range(20):
                each()

    @classmethod
    def block_us(cls, which: str) -> float:
        """The host's microseconds a call, of a block that the device has time for."""
        call = cls.calls[which]
        torch.cuda.synchronize()
        started_s = time.perf_counter()
        for _ in range(CALLS):
            call()
        return (time.perf_counter() - started_s) * 1e6 / CALLS


def calls_of(name: str, pools: dict[str, ProcessPoolExecutor]) -> dict[str, dict[str, float]]:
    """Microseconds by pass and contender."""
    for kind, pool in pools.items():
        pool.submit(Process.begin, kind, name).result()
    found: dict[str, dict[str, float]] = {}
    for which in PASSES:
        taken: dict[str, list[float]] = {kind: [] for kind in pools}
        for _ in range(BLOCKS):
            for kind, pool in pools.items():
                taken[kind].append(pool.submit(Process.block_us, which).result())
        found[which] = {kind: min(times) for kind, times in taken.items()}
    return found


def starts(rounds: int) -> dict[str, dict[str, float]]:
    """Median seconds to the first result by back end, and above eager's of the same turn."""
    for kind in START_KINDS:
        _start_s(kind)  # fills the caches
    found: dict[str, list[float]] = {kind: [] for kind in START_KINDS}
    for _ in range(rounds):
        for kind in START_KINDS:
            found[kind].append(_start_s(kind))
    return {
        kind: {
            "seconds": statistics.median(times),
            "above eager": statistics.median(
                one - other for one, other in zip(times, found["eager"], strict=True)
            ),
        }
        for kind, times in found.items()
    }


def _start_s(kind: str) -> float:
    command = [*START, kind, START_MODEL, "cuda"]
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def page(found: dict[str, Any]) -> str:
    """The tables."""
    rows = [
        [kind, f"{each['seconds']:.2f}", f"{each['above eager']:.2f}"]
        for kind, each in found["starts"].items()
    ]
    parts = [", ".join(f"{key} {value}" for key, value in found["facts"].items())]
    parts.append(table(["back end", "first result, s", "above `eager`, s"], rows))
    rows = [
        [name, which, *(f"{times[kind]:.1f}" for kind in KINDS)]
        for name, passes in found["calls"].items()
        for which, times in passes.items()
    ]
    heads = ["function", "pass", *(f"{kind}, µs" for kind in KINDS)]
    return "\n\n".join([*parts, table(heads, rows)]) + "\n"


def main() -> None:
    """Measure and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="of processes, for the starts")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    context = get_context("spawn")
    pools = {kind: ProcessPoolExecutor(1, context) for kind in KINDS}
    found: dict[str, Any] = {"facts": facts()}
    found["calls"] = {name: calls_of(name, pools) for name in CASES}
    for pool in pools.values():
        pool.shutdown()
    found["starts"] = starts(chosen.rounds)
    print(page(found), flush=True)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
