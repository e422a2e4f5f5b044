"""One process of one back end: `python -m benchmarks.dynamo.process start|steady KIND MODEL`.

Prints one JSON line. `start` (which takes a device too) is the time from the first use of
torch.compile to the first result of a model, without imports of torch itself. `steady` waits on
standard input: for each line, it samples calls for that many seconds and prints their times.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo  # an import that every back end pays

from benchmarks.dynamo.models import MODELS

SEED = 0


def compiled(module: torch.nn.Module, kind: str) -> Callable[..., Any]:
    """The module by a back end; `none` is the module itself."""
    return module if kind == "none" else torch.compile(module, backend=kind)


def start(kind: str, name: str, device: str = "cpu") -> None:
    """The first result of a process, in seconds."""
    torch.manual_seed(SEED)
    module, x = MODELS[name].build().eval().to(device), MODELS[name].example().to(device)
    with torch.no_grad():
        module(x).sum().item()  # torch's libraries load their own parts
        began_s = time.perf_counter()
        compiled(module, kind)(x).sum().item()
        seconds = time.perf_counter() - began_s
    print(json.dumps({"kind": kind, "seconds": seconds, **_counts(kind)}), flush=True)


def _counts(kind: str) -> dict[str, int]:
    if kind != "aotc":
        return {}
    from aotc.aot.dynamo.programs import counters

    return counters()


def steady(kind: str, name: str) -> None:
    """Calls until standard input ends: forward without gradients, then forward and backward."""
    torch.manual_seed(SEED)
    module, x = MODELS[name].build(), MODELS[name].example()
    call = compiled(module, kind)

    def forward() -> None:
        with torch.no_grad():
            call(x)

    def both() -> None:
        call(x).sum().backward()
        module.zero_grad()

    for each in (forward, both, forward, both):
        each()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        found = {each.__name__: _sampled(each, float(line)) for each in (forward, both)}
        print(json.dumps(found), flush=True)


def _sampled(call: Callable[[], None], seconds: float) -> list[float]:
    """Microseconds of each call."""
    times, end_s = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end_s:
        began_s = time.perf_counter()
        call()
        times.append((time.perf_counter() - began_s) * 1e6)
    return times


if __name__ == "__main__":
    {"start": start, "steady": steady}[sys.argv[1]](*sys.argv[2:])
