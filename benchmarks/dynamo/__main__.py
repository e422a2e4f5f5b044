"""What `backend="aotc"` costs and gives beside eager and Inductor.

    python -m benchmarks.dynamo [start] [MODEL …]

Starts: processes one after the other, in turns, caches warm. Calls of a model: three times one
process a back end, which are sampled in turns. Each part is put on record when it is done
(benchmarks/records/dynamo.json); parts that are not named stay as they are on record, and
docs/torch-compile-speed.md says when and where each was taken. All of it takes ten minutes on a
machine with nothing to do, which is what it wants.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from operator import sub
from pathlib import Path
from typing import Any

from benchmarks.dynamo.models import MODELS
from benchmarks.machine import facts
from benchmarks.report import table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "torch-compile-speed.md"
PROCESS = (sys.executable, "-m", "benchmarks.dynamo.process")
RECORD = ROOT / "benchmarks" / "records" / "dynamo.json"
PARTS = ("start", *MODELS)
START_MODEL, START_KINDS, STARTS = "encoder-12", ("eager", "aotc", "inductor"), 9
STEADY_KINDS, ROUNDS, SECONDS_A_TURN = ("none", "aotc", "inductor"), 3, 0.4
PROCESSES = 3  # a back end: where memory happens to lie makes up to a third between processes
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
NAMES = {"none": "eager", "eager": "`eager`", "aotc": "`aotc`", "inductor": "`inductor`"}


Record = dict[str, Any]  # of a part: `taken`, `place`, and its seconds


def main() -> None:
    """Measure what is asked for, or all of it, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dynamo", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="|".join(PARTS))
    asked = parser.parse_args().parts
    if not set(asked) <= set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    records = json.loads(RECORD.read_text()) if asked and RECORD.exists() else {}
    for part in asked or PARTS:
        taken = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
        found = _starts() if part == "start" else _steady(part)
        records[part] = {"taken": taken, "place": _place(), "found": found}
        RECORD.write_text(json.dumps(records, indent=1) + "\n")
        print(f"{part}: {found}", flush=True)
    PAGE.write_text(page(records))
    print(page(records))


def page(records: Mapping[str, Record]) -> str:
    """The page of the parts that are on record."""
    models = {name: records[name]["found"] for name in MODELS if name in records}
    parts = ["# Back ends of torch.compile, measured", _taken(records)]
    if "start" in records:
        parts.append(_start_table(records["start"]["found"]))
    for which, title in (("forward", "Forward"), ("both", "Forward and backward")):
        parts.append(_call_table(title, {name: each[which] for name, each in models.items()}))
    return "\n\n".join(parts) + "\n"


def _place() -> str:
    known = facts()
    place = f"{known['processor']}, {known['cores']} cores, {known['system']}"
    return f"{place}; {known['versions']}"


def _taken(records: Mapping[str, Record]) -> str:
    """When and where: one sentence for all parts of one place."""
    places: dict[str, list[str]] = {}
    for part, record in records.items():
        places.setdefault(record["place"], []).append(f"{part} {record['taken']}")
    lines = [f"{place} ({', '.join(parts)})" for place, parts in places.items()]
    return f"By `python -m benchmarks.dynamo`: {'; '.join(lines)}."


def _starts() -> dict[str, dict[str, float]]:
    """Median seconds to the first result, by back end, and median distance from eager's.

    The distance is taken within each turn: what slows the machine down for a while slows both.
    """
    for kind in START_KINDS:
        _start(kind)  # fills the caches
    found: dict[str, list[float]] = {kind: [] for kind in START_KINDS}
    for _ in range(STARTS):
        for kind in START_KINDS:
            record = _start(kind)
            found[kind].append(record["seconds"])
            if record.get("kernels_compiled") or record.get("programs_made"):
                raise SystemExit(f"a warm start compiled: {record}")
    return {
        kind: {
            "seconds": statistics.median(times),
            "above_eager": statistics.median(map(sub, times, found["eager"])),
        }
        for kind, times in found.items()
    }


def _start_table(found: Mapping[str, Mapping[str, float]]) -> str:
    rows = [
        [NAMES[kind], f"{times['seconds']:.2f}", f"{times['above_eager']:.2f}"]
        for kind, times in found.items()
    ]
    heads = ["back end", "first result, s", "above `eager`, s"]
    text = f"`{START_MODEL}`, inference. Medians, of what a turn has above its own `eager` too."
    return f"## A second process\n\n{text}\n\n{table(heads, rows)}"


def _start(kind: str) -> dict[str, Any]:
    command = [*PROCESS, "start", kind, START_MODEL]
    # Compiled modules are kept, as an installation keeps them.
    variables = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    done = subprocess.run(
        command, cwd=ROOT, env=variables, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _call_table(title: str, models: Mapping[str, Mapping[str, float]]) -> str:
    rows = []
    for name, found in models.items():
        cells = [f"{found[kind] / 1e3:.2f}" for kind in STEADY_KINDS]
        rows.append([name, *cells, f"{found['inductor'] / found['aotc']:.2f}×"])
    heads = ["model", *(f"{NAMES[kind]}, ms" for kind in STEADY_KINDS), "`inductor` / `aotc`"]
    return f"## {title}\n\nMedian call.\n\n{table(heads, rows)}"


def _steady(name: str) -> dict[str, dict[str, float]]:
    """Median microseconds of a call, by what is called and by back end."""
    times: dict[str, dict[str, list[float]]] = {kind: {} for kind in STEADY_KINDS}
    for _ in range(PROCESSES):
        for kind, found in _sampled(name):
            for which, calls in found.items():
                times[kind].setdefault(which, []).extend(calls)
    return {
        which: {kind: statistics.median(each[which]) for kind, each in times.items()}
        for which in ("forward", "both")
    }


def _sampled(name: str) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """Calls of one process a back end, which are sampled in turns."""
    processes = {kind: _steady_process(kind, name) for kind in STEADY_KINDS}
    for process in processes.values():
        _ask(process, None)
    for _ in range(ROUNDS):
        for kind, process in processes.items():
            yield kind, _ask(process, SECONDS_A_TURN)
    for process in processes.values():
        process.stdin.close()
        process.wait()


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
