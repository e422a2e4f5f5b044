"""`python -m benchmarks.gpu.cliffs`: the corpus on this machine's GPU, and where time is lost.

Each workload is built and, in turns on the device, profiled and timed beside eager torch, eager in
a CUDA graph and, with `--compile`, torch.compile. Slow kernels are those of `aotc profile`: more
than 3 % of a call, less than 25 % of the device's limit. Writes `docs/cliffs.md` and `.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from benchmarks.cores import groups
from benchmarks.gpu.corpus.rows import CORPUS
from benchmarks.gpu.corpus.slower import SLOWER, UNEQUAL
from benchmarks.report import geometric_mean, table
from benchmarks.suite import ROOT, Step, Suite

SHOWN = 40
PEERS = {"eager": "eager", "eager + graph": "eager + graph", "compile": "torch.compile"}
_SPEC = """\
import sys

sys.path.insert(0, {root!r})
from benchmarks.gpu.corpus.rows import CORPUS

model, example_inputs = CORPUS[{name!r}].made({is_full})
"""


@click.command()
@click.option(
    "--workload", "names", multiple=True, type=click.Choice([*CORPUS]), help="These only."
)
@click.option("--work", type=click.Path(path_type=Path), default=ROOT / "build" / "cliffs")
@click.option("--seconds", default=86400.0, help="Begin nothing after this; end what still runs.")
@click.option("--tune", default="quick", show_default=True, type=click.Choice(["off", "quick"]))
@click.option("--cores", default=2, show_default=True, help="Processors of a workload.")
@click.option("--compile", "compiles", is_flag=True, help="torch.compile too.")
@click.option("--again", is_flag=True, help="Forget all earlier results of these workloads.")
@click.option("--page-only", is_flag=True, help="Measure nothing: write the page anew.")
@click.option("-o", "--out", type=click.Path(path_type=Path), default=ROOT / "docs")
def main(
    names: tuple[str, ...],
    work: Path,
    seconds: float,
    tune: str,
    cores: int,
    compiles: bool,
    again: bool,
    page_only: bool,
    out: Path,
) -> None:
    """Run what has no result yet, then write the page from all results there are."""
    from benchmarks.gpu import machine

    work = work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    suite = Suite(work, seconds, tune)
    if not page_only:
        (work / "facts.json").write_text(json.dumps({**machine.facts(), "tuning": tune}) + "\n")
        steps = [_step(suite, name, compiles) for name in names or CORPUS]
        for step in steps if again else ():
            suite.result(step.part, step.name).unlink(missing_ok=True)
        suite.on_cores(steps, groups(cores), ended=lambda: _write(suite, out))
    _write(suite, out)


def _step(suite: Suite, name: str, compiles: bool) -> Step:
    out = str(suite.result("cliffs", name))
    command = ("-m", "benchmarks.gpu.cliffs_of", name, str(suite.work), suite.tune, out)
    return Step("cliffs", name, (*command, *(["--compile"] if compiles else [])))


def write_spec(name: str, is_full: bool, folder: Path) -> Path:
    """The SPEC file of a workload, as `aotc build` takes it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(_SPEC.format(root=str(ROOT), name=name, is_full=is_full))
    return path


def _write(suite: Suite, out: Path) -> None:
    facts = json.loads((suite.work / "facts.json").read_text())
    found = {name: suite.read("cliffs", name) for name in CORPUS}
    rows = {name: row for name, row in found.items() if row}
    record = {"facts": facts, "workloads": rows}
    (out / "cliffs.json").write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    (out / "cliffs.md").write_text(render(facts, rows), encoding="utf-8")


def render(facts: Mapping[str, str], rows: Mapping[str, dict[str, Any]]) -> str:
    """The page; written by `python -m benchmarks.gpu.cliffs`, never by hand."""
    built = {name: row for name, row in rows.items() if not row["failed"]}
    parts = [
        "# The corpus on a GPU: where time is lost",
        "Written by `python -m benchmarks.gpu.cliffs`. Workloads at real sizes that no other "
        "benchmark of this repository holds (`benchmarks/gpu/corpus/rows.py`), bf16 where they "
        "are networks; `_f32` are networks as torch makes them, with convolutions of TF32 "
        "(precision.md). Milliseconds of a call, inputs on the device, contenders in turns in one "
        "process; `limit` is what all launches would take at the device's copy bandwidth and rate "
        "of products.",
        "- " + "\n- ".join(f"{name}: {value}" for name, value in facts.items()),
        f"{len(built)} of {len(rows)} workloads built and ran.",
        _workloads(built),
        *_slower(built),
        "## Slow kernels",
        "By the time that a call would gain at the limit: kernels of more than 3 % of a call that "
        "reach less than 25 % of their limit.",
        _slow(built),
    ]
    failed = [
        [name, "; ".join(filter(None, (str(row["failed"]), UNEQUAL.get(name))))]
        for name, row in rows.items()
        if row["failed"]
    ]
    if failed:
        parts += ["## Not built, not right or not measured", table(["workload", "why"], failed)]
    return "\n\n".join([*parts, ""])


def _workloads(rows: Mapping[str, dict[str, Any]]) -> str:
    lines, ratios = [], []
    for name, row in sorted(rows.items(), key=lambda pair: _ratio(pair[1])):
        ratios.append(_ratio(row))
        times = [f"{row['ms'][peer]:.3f}" if peer in row["ms"] else "–" for peer in PEERS]
        lines.append([
            name, f"{row['ms']['aotc']:.3f}", *times, f"{ratios[-1]:.2f}×", str(row["launches"]),
            f"{row['limit_ms']:.3f}" if row["limit_ms"] else "–", f"{row['build_s']:.0f}",
        ])  # fmt: skip
    if ratios:
        mean = f"**{geometric_mean(ratios):.2f}×**"
        lines.append(["geometric mean", "", *[""] * len(PEERS), mean, "", "", ""])
    heads = ["workload", "aotc ms", *(f"{name} ms" for name in PEERS.values())]
    return table([*heads, "best / aotc", "launches", "limit ms", "build s"], lines)


def _slower(rows: Mapping[str, dict[str, Any]]) -> list[str]:
    """Why workloads are slower than the best of their peers."""
    found = [name for name, row in rows.items() if _ratio(row) < 1.0]
    if not found:
        return []
    names_by_reason: dict[str, list[str]] = {}
    for name in found:
        names_by_reason.setdefault(SLOWER.get(name, "Not explained."), []).append(name)
    lines = (f"- {', '.join(names)}: {reason}" for reason, names in names_by_reason.items())
    return ["## Slower than the best of the others", "\n".join(lines)]


def _ratio(row: dict[str, Any]) -> float:
    best: float = min(value for name, value in row["ms"].items() if name != "aotc")
    return best / float(row["ms"]["aotc"])


def _slow(rows: Mapping[str, dict[str, Any]]) -> str:
    found = [(name, kernel) for name, row in rows.items() for kernel in row["slow_kernels"]]
    found.sort(key=lambda pair: pair[1]["limit_us"] - pair[1]["time_us"])
    lines = [
        [
            name, f"`{kernel['name']}`", str(kernel["launches"]), f"{kernel['time_us']:.1f}",
            f"{kernel['limit_us']:.1f}", f"{kernel['share_of_call']:.0%}",
            f"{kernel['limit_us'] / kernel['time_us']:.0%}",
        ]
        for name, kernel in found[:SHOWN]
    ]  # fmt: skip
    heads = [
        "workload",
        "kernel",
        "launches",
        "us",
        "us at the limit",
        "of the call",
        "of the limit",
    ]
    rest = f"\n\n{len(found) - SHOWN} more in `cliffs.json`." if len(found) > SHOWN else ""
    return table(heads, lines) + rest if lines else "None."


if __name__ == "__main__":
    main()
