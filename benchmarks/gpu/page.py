"""The results of a suite as `docs/benchmarks-gpu.md`, and all figures as JSON beside it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.parts import KERNELS, MODELS, Model
from benchmarks.report import geometric_mean, table
from benchmarks.suite import Suite

TITLES = {
    "aotc": "aotc", "eager": "eager", "eager + graph": "eager + CUDA graph",
    "compile": "torch.compile", "max-autotune": "max-autotune + graphs",
}  # fmt: skip
STRICT = "max-autotune"
MISSING = "–"
KERNEL_ROWS = 8  # of a model: those that take longest

METHOD = (
    "bf16, random weights. Everything is compiled and tuned first, all contenders and models side "
    "by side, since that takes processors; each measurement of an autotuner, of `aotc` and of "
    "Inductor alike, waits until it has the device for itself (a lock of the machine). The models "
    "are then loaded into a process each, with warm caches, and measured one process after the "
    "other, nothing else running. Inductor measures each choice 40 ms long, as it does its own "
    "kernels. Torch runs without gradients, with `cudnn.benchmark`, models of images in channels-"
    "last memory, attention by `scaled_dot_product_attention` in forms that it has fused kernels "
    "for: no mask where nothing is masked, query heads packed where decoding shares keys."
)
FORWARD = (
    "Milliseconds a call by the device's events around 30 calls that follow each other; all "
    "contenders in one process, in turns, medians of 11 rounds. `host` is how long a bound call of "
    "ours keeps the caller on an idle device; `difference` that of our first output from eager's, "
    "relative to its largest value. "
    f"{MISSING}: torch had not compiled it when the time given to the run was over."
)
CALLS = "Milliseconds of single calls of the same run, between events after each call."
START = (
    "Seconds of a whole process that loads what was deployed, answers once and has the answer in "
    "host memory, files in the page cache; medians. Ours checks every byte of the bundle and has "
    "no torch; torch loads the pickled model, memory-mapped, with warm compiler caches."
)
LOWER_BOUNDS = (
    "What no implementation can beat: weights (tables of embeddings whole), inputs and outputs "
    "moved once at the measured copy bandwidth, or all operations at the measured rate of "
    "products, whichever is longer. `launches` is the sum of our launches one by one; in a call "
    "they overlap, and caches are warmer."
)
KERNEL_TIMES = (
    "The kernels of a call that take longest. `limit` is the share of the measured bandwidth or "
    "rate that they reach, by the bytes and operations of each launch alone."
)
BUILD = (
    "Whole process with empty caches and everything else being compiled at the same time on the "
    "same processors: what a cold start of all five costs, not what one does. Torch's are the "
    "seconds until its first calls have ended."
)


def write(suite: Suite, folder: Path) -> None:
    """Write both files from the results that there are."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        path.stem: json.loads(path.read_text()) for path in sorted(suite.work.glob("*-*.json"))
    }
    record = {"schema": "aotc.benchmarks-gpu/1", "figures": figures}
    (folder / "benchmarks-gpu.json").write_text(json.dumps(record, indent=1) + "\n")
    (folder / "benchmarks-gpu.md").write_text(page(suite))


def page(suite: Suite) -> str:
    """The page's text; parts without a result are left out."""
    facts = _facts(suite)
    sections = [
        ("Forward", FORWARD, _forward(suite)),
        ("Single calls", CALLS, _calls(suite)),
        ("Process start to first result", START, _starts(suite)),
        ("Lower bounds", LOWER_BOUNDS, _lower_bounds(suite)),
        ("Kernels of the models", KERNEL_TIMES, _kernels_of_models(suite)),
        ("Build and tuning", BUILD, _builds(suite)),
        *((f"Kernels: {name}", "", _kernels(suite, name)) for name in KERNELS),
    ]
    texts = [
        "# Benchmarks on a GPU",
        "Written by `python -m benchmarks.gpu`; run it to measure your own machine.",
        table(["what", "value"], [[name, value] for name, value in facts.items()]),
        METHOD,
    ]
    for title, words, body in sections:
        if body:
            texts += [f"## {title}", *([words] if words else []), body]
    return "\n\n".join([*texts, ""])


def _results(suite: Suite, part: str) -> list[tuple[Model, dict[str, Any]]]:
    """The models that have a result of this part."""
    return [(model, found) for model in MODELS if (found := suite.read(part, model.name))]


def _forward(suite: Suite) -> str:
    found = _results(suite, "forward")
    if not found:
        return ""
    names = [name for name in TITLES if any(name in row["ms"] for _, row in found)]
    rows, ratios, strict = [], [], []
    for model, row in found:
        times = row["ms"]
        best = min(value for name, value in times.items() if name != "aotc")
        ratios.append(best / times["aotc"])
        if STRICT in times:
            strict.append(times[STRICT] / times["aotc"])
        cells = [f"{times[name]:.3f}" if name in times else MISSING for name in names]
        ratio = f"{ratios[-1]:.2f}×"
        rows.append([
            model.title, *cells, ratio, f"{row['host_us']:.1f}", f"{row['difference']:.1e}",
        ])  # fmt: skip
    blank = [""] * len(names)
    rows.append(["geometric mean", *blank, f"**{geometric_mean(ratios):.2f}×**", "", ""])
    if strict:
        rows.append(["against max-autotune", *blank, f"{geometric_mean(strict):.2f}×", "", ""])
    heads = ["model", *(f"{TITLES[name]} ms" for name in names), "best peer / aotc", "host µs"]
    return table([*heads, "difference"], rows) + _failures(found)


def _failures(found: Sequence[tuple[Model, Mapping[str, Any]]]) -> str:
    lines = [
        f"- {model.title}, {TITLES.get(name, name)} failed: `{why}`"
        for model, row in found
        for name, why in row["failed"].items()
    ]
    return "\n\n" + "\n".join(lines) if lines else ""


def _calls(suite: Suite) -> str:
    rows = []
    heads: list[str] = []
    for model, found in _results(suite, "forward"):
        for name, cuts in found["calls_ms"].items():
            heads = [f"{cut} ms" for cut in cuts]
            cells = [f"{value:.3f}" for value in cuts.values()]
            rows.append([f"{model.title}, {TITLES[name]}", *cells])
    return table(["model, contender", *heads], rows) if rows else ""


def _starts(suite: Suite) -> str:
    kinds = ("aotc", "eager", "compile", STRICT)
    rows = []
    for model, found in _results(suite, "start"):
        seconds = {
            **found["seconds"],
            **suite.read("start_compiled", model.name).get("seconds", {}),
        }
        medians = {kind: statistics.median(row) for kind, row in seconds.items() if row}
        cells = [f"{medians[kind]:.2f}" if kind in medians else MISSING for kind in kinds]
        parts = ", ".join(f"{name} {value:.3f}" for name, value in found["ours"].items())
        has_both = {"aotc", "eager"} <= medians.keys()
        ratio = f"{medians['eager'] / medians['aotc']:.1f}×" if has_both else MISSING
        rows.append([model.title, *cells, ratio, parts])
    heads = ["model", *(f"{TITLES[kind]} s" for kind in kinds), "eager / aotc", "ours, s"]
    return table(heads, rows) if rows else ""


def _lower_bounds(suite: Suite) -> str:
    rows = []
    for model, found in _results(suite, "floors"):
        limits, nbytes = found["limits"], found["least_bytes"]
        operations = sum(row["operations"] or 0 for row in found["launches"])
        bound = max(nbytes / limits["bytes_per_s"], operations / limits["operations_per_s"])
        call_ms = suite.read("forward", model.name).get("ms", {}).get("aotc")
        call_ms = found["call_us"] / 1e3 if call_ms is None else call_ms
        rows.append([
            model.title, f"{nbytes / 1e6:.0f}", f"{operations / 1e9:.0f}", f"{bound * 1e3:.3f}",
            f"{found['launches_us'] / 1e3:.3f}", f"{call_ms:.3f}", f"{bound * 1e3 / call_ms:.0%}",
            str(len(found["launches"])),
        ])  # fmt: skip
    heads = [
        "model", "MB", "G operations", "floor ms", "launches ms", "call ms", "floor / call",
        "launches",
    ]  # fmt: skip
    return table(heads, rows) if rows else ""


def _kernels_of_models(suite: Suite) -> str:
    rows = []
    for model, found in _results(suite, "floors"):
        for row in found["kernels"][:KERNEL_ROWS]:
            limit = MISSING if row["limit"] is None else f"{row['limit']:.0%}"
            share = row["time_us"] / max(found["launches_us"], 1e-9)
            one_us = row["time_us"] / row["launches"]
            cells = (str(row["launches"]), f"{one_us:.1f}", f"{share:.0%}", limit)
            rows.append([f"{model.title}: `{row['name']}`", *cells])
    return table(["kernel", "launches", "one µs", "share", "limit"], rows) if rows else ""


def _builds(suite: Suite) -> str:
    rows = []
    for model, built in _results(suite, "build"):
        peers = suite.read("peers", model.name).get("seconds", {})
        cells = [f"{peers[kind]:.0f}" if kind in peers else MISSING for kind in ("compile", STRICT)]
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


def _facts(suite: Suite) -> dict[str, str]:
    """The machine's facts, and the limits that were measured on it."""
    facts: dict[str, str] = suite.read("facts", "machine")
    limits = next((row["limits"] for _, row in _results(suite, "floors")), None)
    if limits:
        facts["copy bandwidth, measured"] = f"{limits['bytes_per_s'] / 1e12:.2f} TB/s"
        facts["bf16 products, measured"] = f"{limits['operations_per_s'] / 1e12:.0f} TFLOP/s"
    return facts
