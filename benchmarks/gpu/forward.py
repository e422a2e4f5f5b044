"""Forward of a bundle against torch's ways to run the same model, on one CUDA device.

`python -m benchmarks.gpu.forward SPEC BUNDLE [JSON]`: eager, eager in a CUDA graph, torch.compile
and its `max-autotune` with CUDA graphs, all in this process, in turns; medians of milliseconds a
call by events over pipelined calls, and the host's time of a bound call of ours. Models of images
are given to torch in channels-last memory, its faster form.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from aotc import runtime

ROUNDS, CALLS, HOST_CALLS = 11, 30, 200


def load_spec(path: str) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The spec's model on the device, and its example inputs by position and by name."""
    sys.path.insert(0, str(Path(path).resolve().parent))  # of specs that share a module
    module = importlib.import_module(Path(path).stem)
    model = (module.build_model() if hasattr(module, "build_model") else module.model).cuda()
    inputs = module.example_inputs
    inputs = inputs() if callable(inputs) else inputs
    if isinstance(inputs, dict):
        return model, (), {name: value.cuda() for name, value in inputs.items()}
    return model, tuple(value.cuda() for value in inputs), {}


def channels_last(
    model: torch.nn.Module, args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A model of images in channels-last memory; any other as it is."""
    if any(isinstance(each, torch.nn.Conv2d) for each in model.modules()):
        model = model.to(memory_format=torch.channels_last)
        args = tuple(value.contiguous(memory_format=torch.channels_last) for value in args)
    return model, args, named


def ways_of_torch(
    model: torch.nn.Module, args: tuple[Any, ...], named: dict[str, Any]
) -> dict[str, Callable[[], Any]]:
    """Name → a call without arguments; a way that fails is named on stdout and left out."""
    ways: dict[str, Callable[[], Any]] = {"eager": lambda: model(*args, **named)}
    try:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                model(*args, **named)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(*args, **named)
        ways["eager + graph"] = graph.replay
    except Exception as error:
        print(f"eager + graph: {error!r}"[:300], flush=True)
    for label, mode in (("compile", None), ("max-autotune", "max-autotune")):
        started_s = time.time()
        try:
            torch._dynamo.reset()
            compiled = torch.compile(model, mode=mode)
            for _ in range(4):
                compiled(*args, **named)
            torch.cuda.synchronize()
        except Exception as error:
            print(f"{label}: {error!r}"[:300], flush=True)
            continue
        ways[label] = lambda compiled=compiled: compiled(*args, **named)
        print(f"{label} ready in {time.time() - started_s:.1f} s", flush=True)
    return ways


def measure(ways: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Milliseconds a call of each way in each round; the ways take turns."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            for _ in range(3):
                way()
            torch.cuda.synchronize()
            start.record()
            for _ in range(CALLS):
                way()
            end.record()
            torch.cuda.synchronize()
            times[name].append(start.elapsed_time(end) / CALLS)
    return times


def host_us(bound: Callable[[], Any]) -> float:
    """Median microseconds that the host spends in a bound call on an idle device."""
    found = []
    for _ in range(HOST_CALLS):
        started_ns = time.perf_counter_ns()
        bound()
        found.append((time.perf_counter_ns() - started_ns) / 1e3)
        torch.cuda.synchronize()
    return statistics.median(found)


def main() -> None:
    """Print the row of one model, and write it as JSON where a path is given."""
    torch.set_grad_enabled(False)
    model, args, named = load_spec(sys.argv[1])
    bound = runtime.load(sys.argv[2], device="cuda").bind(*(args or named.values()))
    model, args, named = channels_last(model, args, named)
    rounds = measure({"aotc": bound, **ways_of_torch(model, args, named)})
    found = {name: statistics.median(row) for name, row in rounds.items()}
    best = min(value for name, value in found.items() if name != "aotc")
    row = {
        "spec": sys.argv[1],
        "ms": {name: round(value, 4) for name, value in found.items()},
        "rounds_ms": {name: [round(value, 4) for value in row] for name, row in rounds.items()},
        "times_faster_than_best": round(best / found["aotc"], 3),
        "host_us": round(host_us(bound), 2),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }
    print(json.dumps(row), flush=True)
    if len(sys.argv) > 3:
        Path(sys.argv[3]).write_text(json.dumps(row, indent=2) + "\n")


if __name__ == "__main__":
    main()
