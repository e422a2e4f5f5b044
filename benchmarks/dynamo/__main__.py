"""What `backend="aotc"` costs and gives beside eager and Inductor.

    python -m benchmarks.dynamo [start] [steady]

Starts: processes one after the other, in turns, caches warm. Calls: one process a back end, which
are sampled in turns. Writes docs/torch-compile-speed.md; run it on a machine with nothing to do.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.dynamo.models import MODELS
from benchmarks.machine import facts
from benchmarks.report import table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "torch-compile-speed.md"
PROCESS = (sys.executable, "-m", "benchmarks.dynamo.process")
PARTS = ("start", "steady")
START_MODEL, START_KINDS, STARTS = "encoder-12", ("eager", "aotc", "inductor"), 7
STEADY_KINDS, ROUNDS, SECONDS_A_TURN = ("none", "aotc", "inductor"), 7, 0.5
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
NAMES = {"none": "eager", "eager": "`eager`", "aotc": "`aotc`", "inductor": "`inductor`"}


def main() -> None:
    """Measure what is asked for, or all of it, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dynamo", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="start|steady", default=PARTS)
    asked = parser.parse_args().parts
    if not set(asked) <= set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    parts = [f"# Back ends of torch.compile, measured\n\n{_where()}"]
    if "start" in asked:
        parts.append(_starts())
    if "steady" in asked:
        parts += [_calls("forward", "Forward"), _calls("both", "Forward and backward")]
    text = "\n\n".join(parts) + "\n"
    print(text)
    PAGE.write_text(text)


def _where() -> str:
    known = facts()
    place = f"{known['processor']}, {known['cores']} cores, {known['system']}"
    return f"By `python -m benchmarks.dynamo`, {known['date']}: {place}; {known['versions']}."


def _starts() -> str:
    for kind in START_KINDS:
        _start(kind)  # fills the caches
    found: dict[str, list[float]] = {kind: [] for kind in START_KINDS}
    for _ in range(STARTS):
        for kind in START_KINDS:
            record = _start(kind)
            found[kind].append(record["seconds"])
            if record.get("kernels_compiled") or record.get("programs_made"):
                raise SystemExit(f"a warm start compiled: {record}")
    floor = statistics.median(found["eager"])
    rows = [
        [NAMES[kind], f"{statistics.median(times):.2f}", f"{statistics.median(times) - floor:.2f}"]
        for kind, times in found.items()
    ]
    heads = ["back end", "first result, s", "above `eager`, s"]
    return f"## A second process\n\n`{START_MODEL}`, inference.\n\n{table(heads, rows)}"


def _start(kind: str) -> dict[str, Any]:
    command = [*PROCESS, "start", kind, START_MODEL]
    # Compiled modules are kept, as an installation keeps them.
    variables = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    done = subprocess.run(
        command, cwd=ROOT, env=variables, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


_MEASURED: dict[str, dict[str, dict[str, float]]] = {}


def _calls(which: str, title: str) -> str:
    rows = []
    for name in MODELS:
        if name not in _MEASURED:
            _MEASURED[name] = _steady(name)
        found = {kind: times[which] for kind, times in _MEASURED[name].items()}
        cells = [f"{found[kind] / 1e3:.2f}" for kind in STEADY_KINDS]
        rows.append([name, *cells, f"{found['inductor'] / found['aotc']:.2f}×"])
    heads = ["model", *(f"{NAMES[kind]}, ms" for kind in STEADY_KINDS), "`inductor` / `aotc`"]
    return f"## {title}\n\nMedian call.\n\n{table(heads, rows)}"


def _steady(name: str) -> dict[str, dict[str, float]]:
    """Median microseconds of a call, by back end and by what is called."""
    processes = {kind: _steady_process(kind, name) for kind in STEADY_KINDS}
    times: dict[str, dict[str, list[float]]] = {kind: {} for kind in STEADY_KINDS}
    for process in processes.values():
        _ask(process, None)
    for _ in range(ROUNDS):
        for kind, process in processes.items():
            for which, found in _ask(process, SECONDS_A_TURN).items():
                times[kind].setdefault(which, []).extend(found)
    for process in processes.values():
        process.stdin.close()
        process.wait()
    return {
        kind: {which: statistics.median(found) for which, found in each.items()}
        for kind, each in times.items()
    }


def _steady_process(kind: str, name: str) -> Any:
    command: Sequence[str] = [*PROCESS, "steady", kind, name]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)


def _ask(process: Any, seconds: float | None) -> Any:
    """One line of a process, asked for by a number of seconds, or the line that it is ready."""
    if seconds is not None:
        process.stdin.write(f"{seconds}\n")
        process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise SystemExit("a process ended early")
    return json.loads(line)


if __name__ == "__main__":
    main()
