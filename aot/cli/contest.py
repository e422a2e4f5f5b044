"""Runs contenders side by side: one process each, sampled in turns; medians and percentiles."""

from __future__ import annotations

import functools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aotc.aot.call_sizes import CallSizes
from aotc.aot.folders import owned

MODULE = "aotc.aot.cli.contender"
PERCENTILES = (50, 90, 99)
OURS = ("aotc", "bound")
# Threads of some contenders wait actively for 0.2 s after a turn, on the core of the next one.
AFTER_A_TURN_S = 0.25


@dataclass(frozen=True, slots=True)
class Result:
    """What one contender did; times in microseconds. `skipped` says why there are none.

    On a device `times_us` are device times, and `host_us` how long the caller waits.
    """

    kind: str
    times_us: tuple[float, ...] = ()
    host_us: tuple[float, ...] = ()
    first_s: float = 0.0  # loading and the first call, without the interpreter's start
    build_s: float | None = None  # AOTInductor's compilation
    skipped: str = ""
    error: Mapping[str, Any] | None = None  # the typed error behind `skipped`, as plain data

    def percentile_us(self, percent: float) -> float:
        """A percentile of the calls, by linear interpolation."""
        return _at(sorted(self.times_us), percent)

    @property
    def median_us(self) -> float:
        """The median call."""
        return statistics.median(self.times_us)

    def quantiles_us(self) -> list[float]:
        """The distribution of the calls: the shortest, each half of a percent, the longest."""
        ordered = sorted(self.times_us)
        return [round(_at(ordered, half / 2), 3) for half in range(201)]

    def record(self) -> dict[str, Any]:
        """The result as plain data."""
        if self.skipped:
            return {"kind": self.kind, "skipped": self.skipped}
        percentiles = {f"p{percent}_us": self.percentile_us(percent) for percent in PERCENTILES}
        host = {"host_us": statistics.median(self.host_us)} if self.host_us else {}
        return {
            "kind": self.kind,
            "calls": len(self.times_us),
            **percentiles,
            "quantiles_us": self.quantiles_us(),
            **host,
            "first_seconds": self.first_s,
            "build_seconds": self.build_s,
        }


def _at(ordered: Sequence[float], percent: float) -> float:
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


class Contender:
    """A running contender process."""

    def __init__(
        self,
        kind: str,
        spec: str,
        place: Path,
        device: str = "cpu",
        digest: str = "",
        entry: str = "",
        sizes: str = "",
        imports: Sequence[str] = (),
    ) -> None:
        self.kind = kind
        arguments = ("serve", kind, spec, str(place), device, digest, entry, sizes, *imports)
        self._process = _start(*arguments, stdin=subprocess.PIPE)
        self.times_us: list[float] = []
        self.host_us: list[float] = []

    @functools.cached_property
    def head(self) -> dict[str, Any]:
        """Its first answer: times of its start, or why it is skipped; waits for it."""
        answer: dict[str, Any] = self._read()
        return answer

    def sample(self, seconds: float) -> None:
        """Let it run for this long and take its times."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        answer = self._read()
        self.times_us += answer.get("times_us", [])
        self.host_us += answer.get("host_us", [])

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line[:1] in "{[":
                return json.loads(line)
        return {"skipped": f"its process ended with status {self._process.wait()}"}


def contest(
    bundle: Path | None,
    spec: str | None,
    kinds: Sequence[str],
    rounds: int,
    seconds: float,
    device: str = "cpu",
    prepared: Path | None = None,
    digest: str = "",
    entry: str = "",
    sizes: CallSizes | None = None,
    imports: Sequence[str] = (),
) -> list[Result]:
    """Sample every contender `seconds` long in each of `rounds` turns.

    `prepared`: a folder that holds AOTInductor's package already, if it takes part. `digest`: the
    bundle digest that `bundle` must have. `entry`: the name of the entry point; empty for the one
    that a call of the program runs. `sizes`: those of the calls; None for the example's. `imports`:
    what processes that load the bundle import first.
    """
    sizes_text = json.dumps(sizes._asdict()) if sizes is not None else ""
    with ExitStack() as stack:
        folder = prepared or Path(stack.enter_context(owned("bench")))
        skipped, builds, errors = {}, {}, {}
        running = []
        for kind in kinds:
            if kind == "aoti" and prepared is None:
                answer = once("build-aoti", str(spec), str(folder), device, entry, sizes_text)
                builds[kind] = answer.get("build_s")
                if "skipped" in answer:
                    skipped[kind] = answer["skipped"]
                    continue
            is_ours = kind in OURS and bundle is not None
            place = (bundle if is_ours else None) or folder
            given = (digest if is_ours else "", entry, sizes_text, imports if is_ours else ())
            contender = Contender(kind, spec or "", place, device, *given)
            stack.callback(contender.close)
            if "skipped" in contender.head:
                skipped[kind] = contender.head["skipped"]
                errors[kind] = contender.head.get("error")
            else:
                running.append(contender)
        take_turns(running, rounds, seconds)
        found = {row.kind: row for row in running}
        rows = [_result(kind, found.get(kind), skipped, builds) for kind in kinds]
        return [replace(row, error=errors.get(row.kind)) for row in rows]


def take_turns(running: Sequence[Contender], rounds: int, seconds: float) -> None:
    """Sample all contenders in turns; every other round in the opposite order."""
    for turn in range(rounds):
        for contender in running[:: -1 if turn % 2 else 1]:
            time.sleep(AFTER_A_TURN_S)
            contender.sample(seconds)


def _result(
    kind: str, contender: Contender | None, skipped: dict[str, str], builds: dict[str, Any]
) -> Result:
    if contender is None:
        return Result(kind, skipped=skipped[kind])
    head = contender.head
    first_s = head["ready_s"] + head["first_call_s"]
    times = (tuple(contender.times_us), tuple(contender.host_us))
    return Result(kind, *times, first_s, builds.get(kind))


def once(*arguments: str) -> dict[str, Any]:
    """Run a contender mode that ends by itself; its last object, or why there is none."""
    with finished(_start(*arguments)) as (out, code):
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if lines:
            record: dict[str, Any] = json.loads(lines[-1])
            return record
        return {"skipped": f"its process ended with status {code}"}


@contextmanager
def finished(process: subprocess.Popen[str]) -> Iterator[tuple[str, int]]:
    """The output and exit status of a process that is waited for."""
    try:
        out, _ = process.communicate()
        yield out, process.returncode
    finally:
        process.kill()
        process.wait()


def _start(*arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", MODULE, *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
