"""The results of a suite as `docs/benchmarks-gpu.md`, and all figures as JSON beside it."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import math
import platform
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.suite import KERNELS, MODELS, PEERS, Model, Suite
from benchmarks.report import geometric_mean, table

TITLES = {
    "aotc": "aotc", "eager": "eager", "eager + graph": "eager + CUDA graph",
    "compile": "torch.compile", "max-autotune": "max-autotune + graphs", "aoti": "AOTInductor",
}  # fmt: skip
MISSING = "–"


def write(suite: Suite, folder: Path) -> None:
    """Write both files from the results that there are."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = _facts(suite)
    figures = {
        path.stem: json.loads(path.read_text()) for path in sorted(suite.work.glob("*-*.json"))
    }
    record = {"schema": "aotc.benchmarks-gpu/1", "facts": facts, "figures": figures}
    (folder / "benchmarks-gpu.json").write_text(json.dumps(record, indent=1) + "\n")
    (folder / "benchmarks-gpu.md").write_text(page(suite, facts))


def page(suite: Suite, facts: Mapping[str, str]) -> str:
    """The page's text; parts without a result are left out."""
    models = [row for row in MODELS if suite.read("forward", row.name)]
    sections = [
        ("Forward", FORWARD, _forward(suite, models)),
        ("Rounds", "Milliseconds a call over the rounds of that run.", _rounds(suite, models)),
        ("Process start to first result", START, _starts(suite)),
        ("Floors", FLOORS, _floors(suite)),
        ("Build and tuning", BUILD, _builds(suite)),
        *((f"Kernels: {name}", "", _kernels(suite, name)) for name in KERNELS),
    ]
    texts = [
        "# Benchmarks on a GPU",
        "Written by `python -m benchmarks.gpu`; run it to measure your own machine.",
        table(["what", "value"], [[name, value] for name, value in facts.items()]),
    ]
    for title, words, body in sections:
        if body:
            texts += [f"## {title}", *([words] if words else []), body]
    return "\n\n".join([*texts, ""])


FORWARD = (
    "bf16, random weights, milliseconds a call by the device's events over calls that follow each "
    "other; all contenders in one process, in turns, medians of the rounds. `host` is how long a "
    "bound call of ours keeps the caller. Torch's models of images are in channels-last memory."
)
START = (
    "Seconds of a whole process that loads what was deployed, answers once and has the answer in "
    "host memory, files in the page cache; medians. Ours checks every byte of the bundle and has "
    "no torch; torch loads the pickled model, memory-mapped, with warm compiler caches."
)
FLOORS = (
    "What no implementation can beat: weights, inputs and outputs moved once at the measured copy "
    "bandwidth, or the operations of the products at the measured rate, whichever is longer. "
    "`launches` is the sum of our launches, the rest of a call are the gaps between them."
)
BUILD = (
    "Whole process with empty caches, measuring included; torch's compilation on first calls, one "
    "model at a time."
)


def _forward(suite: Suite, models: Sequence[Model]) -> str:
    names = [name for name in TITLES if any(name in _ms(suite, row) for row in models)]
    rows, ratios, strict = [], [], []
    for model in models:
        found = _ms(suite, model)
        peers = {name: value for name, value in found.items() if name != "aotc"}
        best = min(peers.values())
        ratios.append(best / found["aotc"])
        if "max-autotune" in found:
            strict.append(found["max-autotune"] / found["aotc"])
        host = suite.read("forward", model.name).get("host_us")
        cells = [f"{found[name]:.3f}" if name in found else MISSING for name in names]
        rows.append([model.title, *cells, f"{ratios[-1]:.2f}×", f"{host:.1f}" if host else MISSING])
    if not rows:
        return ""
    mean = f"**{geometric_mean(ratios):.2f}×**"
    rows.append(["geometric mean", *[""] * len(names), mean, ""])
    if strict:
        blank = [""] * len(names)
        rows.append(["against max-autotune", *blank, f"{geometric_mean(strict):.2f}×", ""])
    heads = ["model", *(f"{TITLES[name]} ms" for name in names), "best peer / aotc", "host µs"]
    return table(heads, rows)


def _rounds(suite: Suite, models: Sequence[Model]) -> str:
    rows = []
    for model in models:
        for name, found in suite.read("forward", model.name).get("rounds_ms", {}).items():
            ordered = sorted(found)
            cells = [f"{value:.3f}" for value in (ordered[0], *_quartiles(ordered), ordered[-1])]
            rows.append([f"{model.title}, {TITLES.get(name, name)}", *cells])
    heads = ["model, contender", "least", "p25", "p50", "p75", "most"]
    return table(heads, rows) if rows else ""


def _quartiles(ordered: Sequence[float]) -> list[float]:
    if len(ordered) < 2:
        return [ordered[0]] * 3
    return statistics.quantiles(ordered, n=4, method="inclusive")


def _starts(suite: Suite) -> str:
    kinds = ("aotc", "eager", "compile", "max-autotune")
    rows = []
    for model in MODELS:
        found = suite.read("start", model.name)
        if not found:
            continue
        medians = {kind: statistics.median(row) for kind, row in found["seconds"].items() if row}
        cells = [f"{medians[kind]:.2f}" if kind in medians else MISSING for kind in kinds]
        parts = ", ".join(f"{name} {seconds:.3f}" for name, seconds in found["ours"].items())
        ratio = f"{medians['eager'] / medians['aotc']:.1f}×" if "eager" in medians else MISSING
        rows.append([model.title, *cells, ratio, parts])
    heads = ["model", *(f"{TITLES[kind]} s" for kind in kinds), "eager / aotc", "ours, s"]
    return table(heads, rows) if rows else ""


def _floors(suite: Suite) -> str:
    rows = []
    for model in MODELS:
        profile, built = suite.read("profile", model.name), suite.read("build", model.name)
        limits = profile.get("limits")
        if not limits:
            continue
        nbytes = _least_bytes(suite, model, built)
        operations = sum(row["operations"] or 0 for row in profile["launches"])
        floor_us = 1e6 * max(
            nbytes / limits["bytes_per_s"], operations / limits["operations_per_s"]
        )
        call_us = profile["call_us"]
        rows.append([
            model.title, f"{nbytes / 1e6:.0f}", f"{operations / 1e9:.0f}", f"{floor_us / 1e3:.3f}",
            f"{profile['launches_us'] / 1e3:.3f}", f"{call_us / 1e3:.3f}",
            f"{floor_us / call_us:.0%}", str(len(profile["launches"])),
        ])  # fmt: skip
    heads = [
        "model", "MB", "G operations", "floor ms", "launches ms", "call ms", "floor / call",
        "launches",
    ]  # fmt: skip
    return table(heads, rows) if rows else ""


def _least_bytes(suite: Suite, model: Model, built: Mapping[str, Any]) -> int:
    """Weights, inputs and outputs, as the bundle stores them."""
    from aotc.runtime.check import read_manifest
    from aotc.runtime.directory import Directory

    path = suite.bundle(model)
    if not path.is_dir():
        return int(built.get("bundle_bytes", 0))
    with Directory(str(path)) as directory:
        manifest, _ = read_manifest(directory)
    weights = manifest.weights.nbytes if manifest.weights else 0
    return int(weights + sum(spec.nbytes for spec in (*manifest.inputs, *manifest.outputs)))


def _builds(suite: Suite) -> str:
    rows = []
    for model in MODELS:
        built = suite.read("build", model.name)
        if not built:
            continue
        peers = [suite.read("peers", f"{model.name}-{mode}") for mode in PEERS]
        cells = [f"{row['compile_seconds']:.0f}" if row else MISSING for row in peers]
        tuning = sum(row["seconds"] for row in built["stages"] if row["stage"] == "tune")
        megabytes = built["bundle_bytes"] / 1e6
        rows.append([
            model.title, f"{built['step_seconds']:.0f}", f"{tuning:.0f}", str(built["kernels"]),
            str(built["measured"]), f"{megabytes:.0f}", *cells,
        ])  # fmt: skip
    heads = [
        "model", "aotc s", "of it tuning s", "kernels", "measured", "bundle MB", "torch.compile s",
        "max-autotune s",
    ]  # fmt: skip
    return table(heads, rows) if rows else ""


def _kernels(suite: Suite, name: str) -> str:
    text = suite.read("kernels", name).get("text", "")
    return f"```\n{text.strip()}\n```" if text.strip() else ""


def _ms(suite: Suite, model: Model) -> dict[str, float]:
    found: dict[str, float] = suite.read("forward", model.name)["ms"]
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _facts(suite: Suite) -> dict[str, str]:
    profiles: Iterable[dict[str, Any]] = (suite.read("profile", row.name) for row in MODELS)
    limits = next((row["limits"] for row in profiles if row.get("limits")), None)
    facts = {
        "date": datetime.date.today().isoformat(),
        "device": _query("name"),
        "driver": _query("driver_version"),
        "versions": ", ".join(_version(name) for name in ("torch", "triton", "transformers")),
        "python": platform.python_version(),
        "tuning": f"`--tune {suite.tune}`",
    }
    if limits:
        facts["copy bandwidth, measured"] = f"{limits['bytes_per_s'] / 1e12:.2f} TB/s"
        facts["bf16 products, measured"] = f"{limits['operations_per_s'] / 1e12:.0f} TFLOP/s"
    return facts


def _query(field: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip().splitlines()[0]


def _version(name: str) -> str:
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{name} not installed"
