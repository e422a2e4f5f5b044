"""What sizes of a call cost: a bundle for all of them against bundles of one shape each.

    python -m benchmarks.dynamic [--target cpu|cuda] [--tune off|quick|full] [--small] [MODEL…]

Each model is built once with `dynamic_shapes` and once for each shape of its calls
(`benchmarks/models/varying.py`). These lie anywhere in the ranges of sizes, of each of which a
build reckons with one (`aot/schedule/buckets.py`). Both programs run in this process in turns on
the same inputs.
With `--page` the table of the target in docs/dynamic.md is written anew; that is for a machine that
does nothing else.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from aotc.runtime import load
from aotc.runtime.programs.program import Program
from benchmarks.machine import facts
from benchmarks.models.varying import VARYING

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "dynamic.md"
DTYPES = {"cpu": "float32", "cuda": "bfloat16"}
LIMIT = 1.10  # of the time of a bundle of one shape
_SPEC = """\
import sys

sys.path.insert(0, {root!r})
import torch
from benchmarks.models.varying import VARYING

row, dtype = VARYING[{name!r}], torch.{dtype}
model = row.model({is_full}, dtype)
example_inputs = row.example_inputs({sizes}, {is_full}, dtype)
dynamic_shapes = {dims}
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line asks for."""

    target: str
    tune: str
    is_full: bool
    rounds: int
    seconds: float  # of one turn of one program
    shapes: int  # of each model, at most


@dataclass(frozen=True, slots=True)
class Figures:
    """Microseconds of a call at one shape: medians over the rounds."""

    model: str
    shape: str
    fixed_us: float
    dynamic_us: float

    @property
    def ratio(self) -> float:
        """Of the dynamic bundle's time to the other's."""
        return self.dynamic_us / self.fixed_us

    def line(self) -> str:
        """A row of the table."""
        return (
            f"| {self.model} | {self.shape} | {self.fixed_us:.1f} | {self.dynamic_us:.1f} "
            f"| {self.ratio:.2f} |"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a line a shape and the worst ratio; 1 where one is beyond the limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dynamic")
    parser.add_argument("models", nargs="*", choices=[[], *VARYING], default=[])
    parser.add_argument("--target", choices=tuple(DTYPES), default="cpu")
    parser.add_argument("--tune", choices=("off", "quick", "full"), default="off")
    parser.add_argument("--small", action="store_true", help="narrow models, to see that it runs")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.1, help="of one turn of one program")
    parser.add_argument("--shapes", type=int, default=99, help="of each model, at most")
    parser.add_argument("--page", action="store_true", help="write docs/dynamic.md's table")
    given = parser.parse_args(arguments)
    settings = Settings(
        given.target, given.tune, not given.small, given.rounds, given.seconds, given.shapes
    )
    rows: list[Figures] = []
    with tempfile.TemporaryDirectory(prefix="aotc-dynamic-") as folder:
        for name in given.models or VARYING:
            rows += compared(name, settings, Path(folder))
    worst = max(rows, key=lambda row: row.ratio)
    print(f"worst: {worst.ratio:.2f} of {worst.model} at {worst.shape}")
    if given.page:
        PAGE.write_text(with_table(PAGE.read_text(), settings, rows))
    return int(worst.ratio > LIMIT)


def compared(name: str, settings: Settings, folder: Path) -> list[Figures]:
    """The figures of one model at the shapes of its calls."""
    rows, row = [], VARYING[name]
    shapes = row.calls[: settings.shapes]
    with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)) // 2)) as pool:
        of_all = pool.submit(built, name, row.example, True, settings, folder)
        paths = pool.map(lambda sizes: built(name, sizes, False, settings, folder), shapes)
        known = dict(zip(shapes, paths, strict=True))
    with load(of_all.result(), device=settings.target) as program:
        for sizes in shapes:
            with load(known[sizes], device=settings.target) as fixed:
                found = timed((fixed, program), name, sizes, settings)
            shape = ", ".join(map(str, sizes))
            rows.append(Figures(name, shape, *(each * 1e6 for each in found)))
            print(rows[-1].line(), flush=True)
    return rows


def built(
    name: str, sizes: tuple[int, ...], is_dynamic: bool, settings: Settings, folder: Path
) -> Path:
    """The bundle of a model at given sizes, or for all of them."""
    stem = f"{name}-{'dynamic' if is_dynamic else 'x'.join(map(str, sizes))}"
    spec, out = folder / f"{stem}.py", folder / f"{stem}.aotc"
    dims = "(row.dims,)" if is_dynamic else "None"
    values = {"name": name, "dtype": DTYPES[settings.target], "is_full": settings.is_full}
    spec.write_text(_SPEC.format(root=str(ROOT), sizes=sizes, dims=dims, **values))
    command = [sys.executable, "-m", "aotc.aot.cli", "build", spec, "-o", out, "--quiet"]
    command += ["--target", settings.target, "--tune", settings.tune]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{stem}: {done.stderr or done.stdout}")
    return out


def timed(
    programs: Sequence[Program], name: str, sizes: tuple[int, ...], settings: Settings
) -> list[float]:
    """Seconds of a call of each program, in turns so that drift strikes both alike: medians."""
    row, dtype = VARYING[name], getattr(torch, DTYPES[settings.target])
    inputs = [each.to(settings.target) for each in
              row.example_inputs(sizes, settings.is_full, dtype)]  # fmt: skip
    wait = torch.cuda.synchronize if settings.target == "cuda" else _nothing
    calls = []
    for program in programs:
        outputs = program(*inputs)
        calls.append(lambda program=program, outputs=outputs: program(*inputs, out=outputs))
    samples: list[list[float]] = [[] for _ in calls]
    for turn in range(settings.rounds + 1):
        for call, own in zip(calls, samples, strict=True):
            found = seconds_of(call, wait, settings.seconds)
            if turn:  # the first one has met cold caches
                own.append(found)
    return [statistics.median(own) for own in samples]


def seconds_of(call: Callable[[], Any], wait: Callable[[], Any], at_least: float) -> float:
    """Mean seconds of a call over a turn, the work on the device included."""
    wait()
    count, started = 0, time.perf_counter()
    while True:
        for _ in range(8):
            call()
        count += 8
        if time.perf_counter() - started >= at_least:
            break
    wait()
    return (time.perf_counter() - started) / count


def _nothing() -> None:
    """The host has done its work when a call returns."""


def with_table(text: str, settings: Settings, rows: Sequence[Figures]) -> str:
    """The page with the table of a target between its marks."""
    machine = facts()
    where = f"{machine['date']}, {machine['processor']}, {machine['cores']} cores"
    if settings.target == "cuda":
        where += f", {torch.cuda.get_device_name()}"
    where += f", load average {os.getloadavg()[0]:.1f}; {machine['versions']}"
    head = "| model | sizes | one shape, µs | all shapes, µs | ratio |"
    head += "\n| --- | --- | ---: | ---: | ---: |"
    lines = "\n".join(row.line() for row in rows)
    command = f"`python -m benchmarks.dynamic --target {settings.target} --tune {settings.tune}`"
    table = f"{where}, `{DTYPES[settings.target]}`, by {command}:\n\n{head}\n{lines}\n"
    begin, end = (f"<!-- {word} {settings.target} -->" for word in ("begin", "end"))
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    return pattern.sub(lambda _: f"{begin}\n{table}{end}", text)


if __name__ == "__main__":
    sys.exit(main())
