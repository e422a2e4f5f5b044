"""`backend="aotc_rewrite"` beside plain Inductor, where its rewrites fire and where they do not.

    python -m benchmarks.dynamo.rewrite [GRAPH …]

One process; calls of both back ends are sampled in turns. Writes docs/rewrite-speed.md: median
milliseconds of a call forward without gradients and of a step forward and backward, their ratio,
and what was rewritten. In f32 on the CPU, in bf16 on a GPU if there is one. Run it on a machine
with nothing to do; with Inductor's caches filled by a first run it takes some minutes.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from aotc.aot.dynamo.rewriting import rewrite_module, summary
from benchmarks.dynamo.rewritten import GRAPHS, Example
from benchmarks.machine import facts
from benchmarks.report import geometric_mean, table

PAGE = Path(__file__).parents[2] / "docs" / "rewrite-speed.md"
BACKENDS = ("inductor", "aotc_rewrite")
ROUNDS, SECONDS_A_TURN = 9, 0.4
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float32
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's mallopt
Call = Callable[[], Any]


def main() -> None:
    """Measure the graphs that are asked for, or all, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", metavar="GRAPH", default=list(GRAPHS))
    asked = parser.parse_args().graphs
    _keep_memory()
    rows, ratios = [], []
    for name in asked:
        torch.manual_seed(0)
        example = GRAPHS[name]().on(DEVICE, DTYPE)
        done = rewrites_of(example)
        for what, step in STEPS.items():
            torch._dynamo.reset()
            times = compare({each: step(example, each) for each in BACKENDS})
            ratios.append(times["inductor"] / times["aotc_rewrite"])
            cells = [f"{times[each]:.2f}" for each in BACKENDS]
            rows.append([f"{name}, {what}", done, *cells, f"{ratios[-1]:.2f}×"])
            print(" | ".join(rows[-1]), flush=True)
    PAGE.write_text(_page(rows, ratios), encoding="utf-8")


def _page(rows: Sequence[Sequence[str]], ratios: Sequence[float]) -> str:
    known = facts()
    place = f"{known['processor']}, {known['cores']} cores, {known['system']}"
    if DEVICE == "cuda":
        place += f", {torch.cuda.get_device_name()}"
    heads = ["graph", "rewritten", *(f"`{each}`, ms" for each in BACKENDS), "ratio"]
    return (
        "# Inductor behind our rewrites, measured\n\n"
        f"By `python -m benchmarks.dynamo.rewrite`, {known['date']}: {place}; "
        f"{known['versions']}.\n\n"
        f"Median call of {ROUNDS} turns each, {str(DTYPE).removeprefix('torch.')}; the ratio is "
        "Inductor's time over that with our rewrites. Where nothing is rewritten, both compile the "
        "same graph, and the ratio shows the noise of the machine.\n\n"
        f"{table(heads, rows)}\n\n"
        f"Geometric mean: {geometric_mean(ratios):.2f}×; least: {min(ratios):.2f}×.\n"
    )


def _keep_memory() -> None:
    """Have the C library keep what is freed: page faults cost one of two equal calls its double."""
    library = ctypes.CDLL(None)
    for parameter, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**30)):
        library.mallopt(parameter, value)


def forward(example: Example, backend: str) -> Call:
    """A call without gradients."""
    compiled = torch.compile(example.module, backend=backend)

    def call() -> Any:
        with torch.no_grad():
            return compiled(*example.arguments)

    call()
    return call


def both(example: Example, backend: str) -> Call:
    """A call and the gradients of every weight."""
    compiled = torch.compile(example.module, backend=backend)

    def call() -> Any:
        example.module.zero_grad()
        return compiled(*example.arguments).square().mean().backward()

    call()
    return call


STEPS = {"forward": forward, "forward and backward": both}


def compare(calls: Mapping[str, Call]) -> dict[str, float]:
    """Median milliseconds of each call, sampled in turns; who begins changes each round."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS):
        turns = list(calls.items())
        for name, call in turns if number % 2 else turns[::-1]:
            call()  # caches of the processor as this back end leaves them
            started_s = time.perf_counter()
            while time.perf_counter() - started_s < SECONDS_A_TURN:
                begun_s = time.perf_counter()
                call()
                if DEVICE == "cuda":
                    torch.cuda.synchronize()
                found[name].append((time.perf_counter() - begun_s) * 1e3)
    return {name: statistics.median(times) for name, times in found.items()}


def rewrites_of(example: Example) -> str:
    """What the back end prints of a graph."""
    done: list[str] = []

    def rewriting(module: torch.fx.GraphModule, inputs: object) -> Callable[..., Any]:
        done.append(summary(rewrite_module(module)))
        return module.forward

    torch._dynamo.reset()
    torch.compile(example.module, backend=rewriting)(*example.arguments)
    return "; ".join(done)


if __name__ == "__main__":
    main()
