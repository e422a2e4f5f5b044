"""Seconds of builds with an empty and with a full artifact cache, each with its stages.

All models are built one after the other by one process, so that starting Python and importing torch
count once; then again by a fresh process that finds the first one's cache.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks import machine
from benchmarks.report import table
from benchmarks.zoo.measure import ROOT, write_spec
from benchmarks.zoo.table import ZOO

TURNS = ("cold", "warm")


@dataclass(frozen=True, slots=True)
class Build:
    """One build: its seconds, those of its stages, and what became of its kernels."""

    name: str
    turn: str  # of TURNS
    seconds: float
    compiled: int
    cache_hits: int
    stages: dict[str, float] = field(default_factory=dict)


def run(names: Sequence[str], size: str, record: Path, page: Path) -> None:
    """Build the models twice and write the record and the page."""
    found: list[Build] = []
    with tempfile.TemporaryDirectory(prefix="aotc-zoo-") as folder:
        for turn in TURNS:
            found += _turn(turn, names, size, folder)
    facts = machine.facts()
    rows = {"facts": facts, "builds": [asdict(row) for row in found]}
    record.write_text(json.dumps(rows, indent=1) + "\n")
    page.write_text(render(size, found, facts), encoding="utf-8")


def _turn(turn: str, names: Sequence[str], size: str, folder: str) -> list[Build]:
    """All builds of one process; each is reported as it ends."""
    command = [sys.executable, "-m", __name__, turn, size, folder, *names]
    found = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                found.append(Build(**json.loads(line)))
                print(_line(found[-1]), flush=True)
    return found


def _line(row: Build) -> str:
    stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in row.stages.items())
    kernels = f"{row.compiled} compiled, {row.cache_hits} from the cache"
    return f"{row.turn} {row.name}: {row.seconds:.2f} s ({stages}), {kernels}"


def main(turn: str, size: str, folder: str, *names: str) -> None:
    """In a process of its own: build the models, a line of JSON each."""
    from aotc.aot.pipeline import BuildOptions, build

    options = BuildOptions(cache_folder=Path(folder) / "cache", force=True)
    for name in names:
        spec = write_spec(ZOO[name], size == "full", Path(folder))
        report = build(str(spec), Path(folder) / name, ("cpu",), options)
        stages: dict[str, float] = {}
        for row in report.stages:
            stages[row.stage] = stages.get(row.stage, 0.0) + row.seconds
        built = Build(name, turn, report.seconds, report.compiled, report.cache_hits, stages)
        print(json.dumps(asdict(built)), flush=True)


def render(size: str, rows: Sequence[Build], facts: dict[str, str]) -> str:
    """The page; written by `python -m benchmarks.zoo --builds`, never by hand."""
    cold, warm = ({row.name: row for row in rows if row.turn == turn} for turn in TURNS)
    both = [name for name in cold if name in warm]
    return "\n\n".join([
        "# Builds of the zoo, cold and warm",
        "Written by `python -m benchmarks.zoo --builds`. One process builds all models one after "
        f"the other, at {size} sizes, for the CPU, with an empty artifact cache; a second process "
        "does the same with the cache that the first one left. Seconds are those of the builds, "
        "from reading the spec to the written bundle; the first model of each process also pays "
        "for imports of torch that a build needs.",
        "- " + ", ".join(f"{name} {value}" for name, value in facts.items()),
        _total(cold, warm, both),
        _table(cold, warm, both),
        "",
    ])  # fmt: skip


def _total(cold: dict[str, Build], warm: dict[str, Build], names: Sequence[str]) -> str:
    if not names:
        return "No model was built twice."
    sums = [sum(turn[name].seconds for name in names) for turn in (cold, warm)]
    share: dict[str, float] = {}
    for name in names:
        for stage, seconds in warm[name].stages.items():
            share[stage] = share.get(stage, 0.0) + seconds
    parts = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in share.items())
    return (
        f"{len(names)} models: cold {sums[0]:.1f} s, warm {sums[1]:.1f} s, "
        f"{sums[0] / sums[1]:.1f}×. Seconds of the warm builds by stage: {parts}."
    )


def _table(cold: dict[str, Build], warm: dict[str, Build], names: Sequence[str]) -> str:
    stages = list(dict.fromkeys(stage for name in names for stage in warm[name].stages))
    heads = ["model", "kernels compiled", "cold s", "warm s", "cold / warm"]
    return table([*heads, *(f"warm {stage} s" for stage in stages)],
                 [_cells(cold[name], warm[name], stages) for name in names])  # fmt: skip


def _cells(cold: Build, warm: Build, stages: Sequence[str]) -> list[str]:
    text: Callable[[float], str] = "{:.2f}".format
    ratio = f"{cold.seconds / warm.seconds:.1f}×"
    head = [cold.name, str(cold.compiled), text(cold.seconds), text(warm.seconds), ratio]
    return [*head, *(text(warm.stages.get(stage, 0.0)) for stage in stages)]


if __name__ == "__main__":
    main(*sys.argv[1:])
