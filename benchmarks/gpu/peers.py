"""Torch compiles one model in all modes, which fills its caches.

`python -m benchmarks.gpu.peers SPEC FOLDER JSON`. The model is saved to FOLDER first.

A later process then starts warm, as a server of torch.compile would after its first deployment.
What is done is written after each mode, so that a run that is cut off leaves something to use.
Models may be compiled side by side: each single measurement of Inductor's autotuner waits for its
turn on the device, so that its choices are those of a device that it has for itself.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from aotc.aot.measure.device_lock import device_turn
from benchmarks.gpu import saved

CALLS = 3
# Milliseconds that a choice is warmed up and measured: what Inductor takes for its own kernels.
BRIEF = {"warmup": 10, "rep": 40}
PRIORITY = -10  # of a thread that measures, since it feeds the device, where that is allowed
MODES = {"max-autotune": "max-autotune", "compile": "default"}  # the one that matters first


def prefer_speed() -> None:
    """Torch at its best: no gradients, and convolutions that cuDNN chooses by measuring."""
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = True


def take_turns() -> None:
    """Have every measurement of Inductor wait until it has the device for itself."""
    from torch._inductor.runtime.benchmarking import benchmarker

    measure: Callable[..., Any] = benchmarker.benchmark_gpu
    depth = [0]  # it may call itself

    @functools.wraps(measure)
    def alone(*arguments: Any, **options: Any) -> Any:
        if depth[0]:
            return measure(*arguments, **options)
        with device_turn(), preferred():
            depth[0] += 1
            try:
                return measure(*arguments, **{**BRIEF, **options})
            finally:
                depth[0] -= 1

    benchmarker.benchmark_gpu = alone  # type: ignore[method-assign]


@contextmanager
def preferred() -> Iterator[None]:
    """Let this thread run before the compilers that wait for the same processors."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    except PermissionError:  # only an administrator may
        yield
        return
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def main() -> None:
    """Compile and call in each mode; write the seconds that each took, or why it failed."""
    spec, folder, out = sys.argv[1:]
    prefer_speed()
    take_turns()
    if not (Path(folder) / saved.SPECS).is_file():
        saved.save(spec, Path(folder))
    model, args, named = saved.load(folder)
    row: dict[str, Any] = {"seconds": {}, "failed": {}}
    for name, mode in MODES.items():
        started_s = time.perf_counter()
        try:
            torch._dynamo.reset()
            compiled = torch.compile(model, mode=mode)
            for _ in range(CALLS):
                compiled(*args, **named)
            torch.cuda.synchronize()
        except Exception as error:
            row["failed"][name] = repr(error)[:300]
            continue
        row["seconds"][name] = time.perf_counter() - started_s
        print(f"{name}: {row['seconds'][name]:.1f} s", flush=True)
        Path(out).write_text(json.dumps(row, indent=1) + "\n")
    Path(out).write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    main()
