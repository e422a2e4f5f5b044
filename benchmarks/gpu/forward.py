"""Forward of a bundle against torch's ways to run the same model, on one CUDA device.

`python -m benchmarks.gpu.forward SPEC BUNDLE [JSON]`: eager, eager in a CUDA graph, torch.compile
and its `max-autotune` with CUDA graphs, all in this process, in turns. Written are milliseconds a
call by events around pipelined calls, percentiles by events between the calls, and the host's time
of a bound call of ours. SPEC is a spec's file or the folder of a saved model.

With `--wait` the process writes `JSON.ready` when everything is compiled and measures once it gets
a line on its standard input: several models are so prepared side by side and measured one by one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from aotc import runtime
from benchmarks.gpu import saved
from benchmarks.gpu.peers import MODES, prefer_speed, take_turns

ROUNDS, CALLS, HOST_CALLS = 11, 30, 200
PERCENTS = (50, 90, 99)
Ways = dict[str, Callable[[], Any]]  # contender → a call without arguments


def ways_of_torch(
    model: torch.nn.Module, args: tuple[Any, ...], named: dict[str, Any], modes: list[str]
) -> tuple[Ways, dict[str, str]]:
    """The ways of torch, with these modes of torch.compile, and why others are left out."""
    ways: Ways = {"eager": lambda: model(*args, **named)}
    failed: dict[str, str] = {}
    try:
        ways["eager + graph"] = captured(ways["eager"])
    except Exception as error:
        failed["eager + graph"] = repr(error)[:300]
    for name in modes:
        started_s = time.time()
        try:
            torch._dynamo.reset()
            compiled = torch.compile(model, mode=MODES[name])
            for _ in range(4):
                compiled(*args, **named)
            torch.cuda.synchronize()
        except Exception as error:
            failed[name] = repr(error)[:300]
            continue
        ways[name] = lambda compiled=compiled: compiled(*args, **named)
        print(f"{name} ready in {time.time() - started_s:.1f} s", flush=True)
    return ways, failed


def captured(call: Callable[[], Any]) -> Callable[[], Any]:
    """The call as one CUDA graph."""
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def measure(ways: Ways) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Milliseconds of each way: a call in each round, and every single call; they take turns."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(CALLS + 1)]
    rounds: dict[str, list[float]] = {name: [] for name in ways}
    calls: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            rounds[name].append(round_ms(way, marks[0], marks[-1]))
            calls[name] += _calls_ms(way, marks)
    return rounds, calls


def round_ms(way: Callable[[], Any], start: Any, end: Any) -> float:
    """Milliseconds of a call of a row of calls, with nothing between them."""
    for _ in range(3):
        way()
    torch.cuda.synchronize()
    start.record()
    for _ in range(CALLS):
        way()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / CALLS


def _calls_ms(way: Callable[[], Any], marks: list[Any]) -> list[float]:
    """Milliseconds of each call of a row of calls, with an event between them."""
    for mark in marks[:-1]:
        mark.record()
        way()
    marks[-1].record()
    torch.cuda.synchronize()
    return [float(begin.elapsed_time(end)) for begin, end in itertools.pairwise(marks)]


def host_us(bound: Callable[[], Any]) -> float:
    """Median microseconds that the host spends in a bound call on an idle device."""
    found = []
    for _ in range(HOST_CALLS):
        started_ns = time.perf_counter_ns()
        bound()
        found.append((time.perf_counter_ns() - started_ns) / 1e3)
        torch.cuda.synchronize()
    return statistics.median(found)


def difference(found: Any, expected: Any) -> float:
    """Largest difference of the first output, relative to its largest value; computed in f64."""
    first, second = first_tensor(found).double(), first_tensor(expected).double()
    if first.shape != second.shape:
        return math.inf
    return float((first - second).abs().max() / second.abs().max())


def first_tensor(result: Any) -> torch.Tensor:
    """The first tensor of a result, which may nest in dicts and sequences."""
    while not isinstance(result, torch.Tensor):
        result = next(iter(result.values() if isinstance(result, dict) else result))
    return result


def percentiles(times: list[float]) -> dict[str, float]:
    """`p50` … of single calls."""
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {f"p{percent}": round(cuts[percent - 1], 4) for percent in PERCENTS}


def wait_for_turn(out: Path) -> None:
    """Tell the parent that everything is ready and wait for its line."""
    out.with_suffix(".ready").touch()
    sys.stdin.readline()


def arguments() -> argparse.Namespace:
    """Those of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("spec")
    parser.add_argument("bundle")
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--wait", action="store_true")
    parser.add_argument("--modes", default=",".join(MODES), help="of torch.compile")
    return parser.parse_args()


def main() -> None:
    """Print the row of one model, and write it as JSON where a path is given."""
    given = arguments()
    prefer_speed()
    take_turns()
    model, args, named = saved.load(given.spec)
    own = [value.contiguous() for value in (args or named.values())]
    bound = runtime.load(given.bundle, device="cuda").bind(*own)
    modes = [name for name in given.modes.split(",") if name]
    theirs, failed = ways_of_torch(model, args, named, modes)
    error = difference(bound(), theirs["eager"]())
    if given.wait:
        wait_for_turn(given.out)
    rounds, calls = measure({"aotc": bound, **theirs})
    found = {name: statistics.median(row) for name, row in rounds.items()}
    best = min(value for name, value in found.items() if name != "aotc")
    row = {
        "spec": Path(given.spec).name,
        "ms": {name: round(value, 4) for name, value in found.items()},
        "rounds_ms": {name: [round(value, 4) for value in row] for name, row in rounds.items()},
        "calls_ms": {name: percentiles(row) for name, row in calls.items()},
        "times_faster_than_best": round(best / found["aotc"], 3),
        "host_us": round(host_us(bound), 2),
        "difference": error,
        "failed": failed,
    }
    print(json.dumps({name: row[name] for name in ("ms", "host_us", "difference", "failed")}))
    if given.out is not None:
        given.out.write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    main()
