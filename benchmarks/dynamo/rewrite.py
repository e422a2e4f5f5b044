"""`backend="aotc_rewrite"` beside plain Inductor, where its rewrites fire and where they do not.

    python -m benchmarks.dynamo.rewrite [GRAPH …]

One process; calls are sampled in short turns, who begins changes each round, and ratios are
medians of the rounds' ratios, so that a machine that is slow for a while is so for all. A second
Inductor of the same graph, compiled anew on weights of its own, is the control: its ratio to the
first is the noise. Writes docs/rewrite-speed.md when all graphs are measured; those that are named
are printed only. In f32 on the CPU, in bf16 on a GPU if there is one. Run it on a machine with
nothing to do; with Inductor's caches filled by a first run it takes six minutes.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import operator
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from aotc.aot.dynamo.rewrite_backend import rewrite_module, summary
from benchmarks.dynamo.rewritten import GRAPHS, Example
from benchmarks.machine import facts
from benchmarks.report import geometric_mean, table

PAGE = Path(__file__).parents[2] / "docs" / "rewrite-speed.md"
CONTENDERS = {"inductor": "inductor", "aotc_rewrite": "aotc_rewrite", "control": "inductor"}
ROUNDS, SECONDS_A_TURN = 24, 0.1
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float32
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's mallopt
Call = Callable[[], Any]
Step = Callable[[Example, Any], Call]  # an example and a back end to a call


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of the page."""

    name: str
    rewritten: str
    inductor_ms: float
    rewrite_ms: float
    ratio: float  # Inductor's time over that with our rewrites
    control: float  # Inductor's time over that of a second Inductor

    def cells(self) -> list[str]:
        """The row as text."""
        times = [f"{self.inductor_ms:.2f}", f"{self.rewrite_ms:.2f}"]
        return [self.name, self.rewritten, *times, f"{self.ratio:.2f}×", f"{self.control:.2f}×"]


def main() -> None:
    """Measure the graphs that are asked for, or all and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", metavar="GRAPH")
    asked = parser.parse_args().graphs
    _keep_memory()
    rows = []
    for name in asked or GRAPHS:
        torch.manual_seed(0)
        example = GRAPHS[name]().on(DEVICE, DTYPE)
        for what, step in STEPS.items():
            rows.append(_measured(f"{name}, {what}", example, step))
            print(" | ".join(rows[-1].cells()), flush=True)
    print(_verdict(rows))
    if not asked:
        PAGE.write_text(_page(rows), encoding="utf-8")


def _measured(name: str, example: Example, step: Step) -> Measured:
    torch._dynamo.reset()
    done = rewrites_of(example, step)
    torch._dynamo.reset()
    calls = {
        each: step(Example(copy.deepcopy(example.module), example.arguments), backend)
        for each, backend in CONTENDERS.items()
    }
    times = compare(calls)
    middle = {each: statistics.median(found) for each, found in times.items()}
    ratios = {
        each: statistics.median(map(operator.truediv, times["inductor"], found))
        for each, found in times.items()
    }
    own = middle["inductor"], middle["aotc_rewrite"]
    return Measured(name, done, *own, ratios["aotc_rewrite"], ratios["control"])


def _verdict(rows: Sequence[Measured]) -> str:
    """What the ratios say, against the noise that the controls show."""
    controls = [row.control for row in rows]
    least = min(*controls, 1 / max(controls))
    slower = [f"{row.name} ({row.ratio:.2f}×)" for row in rows if row.ratio < least]
    faster = [f"{row.name} ({row.ratio:.2f}×)" for row in rows if row.ratio > 1 / least]
    mean = geometric_mean([row.ratio for row in rows])
    return (
        f"Geometric mean {mean:.2f}×. The controls lie between {min(controls):.2f}× and "
        f"{max(controls):.2f}×; a ratio from {least:.2f}× to {1 / least:.2f}× is noise. "
        f"Slower beyond it: {', '.join(slower) or 'none'}. "
        f"Faster beyond it: {', '.join(faster) or 'none'}."
    )


def _page(rows: Sequence[Measured]) -> str:
    known = facts()
    place = f"{known['processor']}, {known['cores']} cores, {known['system']}"
    if DEVICE == "cuda":
        place += f", {torch.cuda.get_device_name()}"
    heads = ["graph", "rewritten", "`inductor`, ms", "`aotc_rewrite`, ms", "ratio", "control"]
    return (
        "# Inductor behind our rewrites, measured\n\n"
        f"By `python -m benchmarks.dynamo.rewrite`, {known['date']}: {place}; "
        f"{known['versions']}.\n\n"
        f"Median call of {ROUNDS} turns each, {str(DTYPE).removeprefix('torch.')}; the ratio is "
        "Inductor's time over that with our rewrites, the control Inductor's time over that of a "
        "second Inductor of the same graph, both medians of the rounds' ratios.\n\n"
        f"{table(heads, [row.cells() for row in rows])}\n\n"
        f"{_verdict(rows)}\n"
    )


def _keep_memory() -> None:
    """Have the C library keep what is freed: page faults cost one of two equal calls its double."""
    library = ctypes.CDLL(None)
    for parameter, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**30)):
        library.mallopt(parameter, value)


def forward(example: Example, backend: Any) -> Call:
    """A call without gradients."""
    compiled = torch.compile(example.module, backend=backend)

    def call() -> Any:
        with torch.no_grad():
            return compiled(*example.arguments)

    call()
    return call


def both(example: Example, backend: Any) -> Call:
    """A call and the gradients of every weight."""
    compiled = torch.compile(example.module, backend=backend)

    def call() -> Any:
        example.module.zero_grad()
        return compiled(*example.arguments).square().mean().backward()

    call()
    return call


STEPS: Mapping[str, Step] = {"forward": forward, "forward and backward": both}


def compare(calls: Mapping[str, Call]) -> dict[str, list[float]]:
    """Median milliseconds of each call in each round, sampled in turns."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for number in range(ROUNDS):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            call, times = calls[name], []
            call()  # caches of the processor as this contender leaves them
            started_s = time.perf_counter()
            while time.perf_counter() - started_s < SECONDS_A_TURN:
                begun_s = time.perf_counter()
                call()
                if DEVICE == "cuda":
                    torch.cuda.synchronize()
                times.append((time.perf_counter() - begun_s) * 1e3)
            found[name].append(statistics.median(times))
    return found


def rewrites_of(example: Example, step: Step) -> str:
    """What the back end prints of a graph, as it is called in a step."""
    done: list[str] = []

    def rewriting(module: torch.fx.GraphModule, inputs: object) -> Callable[..., Any]:
        done.append(summary(rewrite_module(module)))
        return module.forward

    step(example, rewriting)
    return "; ".join(done)


if __name__ == "__main__":
    main()
