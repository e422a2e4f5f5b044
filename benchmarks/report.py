"""The measured figures as `docs/benchmarks.md`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.examples import ModelFigures
from benchmarks.matmul import MatmulFigures

PEERS = ("eager", "compile", "aoti")
NAMES = {"aotc": "aotc", "eager": "eager", "compile": "torch.compile", "aoti": "AOTInductor"}


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(x) for x in values) / len(values))


def _forward(models: Sequence[ModelFigures]) -> str:
    rows, ratios = [], []
    for model in models:
        medians = {kind: statistics.median(times) for kind, times in model.forward_seconds.items()}
        best = min(medians[p] for p in PEERS if p in medians)
        ratios.append(best / medians["aotc"])
        cells = [f"{medians[c] * 1e3:.2f}" if c in medians else "–" for c in ("aotc", *PEERS)]
        rows.append([model.name, *cells, f"{ratios[-1]:.2f}×"])
    rows.append(["geometric mean", "", "", "", "", f"**{geometric_mean(ratios):.2f}×**"])
    heads = ["model", *(f"{NAMES[c]} ms" for c in ("aotc", *PEERS)), "best peer / aotc"]
    return table(heads, rows)


def _percentiles(models: Sequence[ModelFigures]) -> str:
    rows = []
    for model in models:
        for kind, times in model.forward_seconds.items():
            cuts = statistics.quantiles(times, n=100, method="inclusive")
            cells = [f"{cuts[percent - 1] * 1e3:.2f}" for percent in (10, 50, 90, 99)]
            rows.append([f"{model.name}, {NAMES[kind]}", *cells, str(len(times))])
    return table(["model, contender", "p10 ms", "p50 ms", "p90 ms", "p99 ms", "calls"], rows)


def _starts(models: Sequence[ModelFigures]) -> str:
    rows = []
    for model in models:
        medians = {
            kind: statistics.median(times) for kind, times in model.first_result_seconds.items()
        }
        ours, theirs = medians["aotc"], medians.get("aoti")
        sizes_bytes = [model.artifact_bytes.get(kind) for kind in ("aotc", "aoti")]
        rows.append([
            model.name, f"{ours:.3f}", f"{theirs:.2f}" if theirs else "–",
            f"{theirs / ours:.1f}×" if theirs else "–",
            *("–" if size is None else f"{size / 1e6:.1f}" for size in sizes_bytes),
        ])  # fmt: skip
    heads = ["model", "aotc s", "AOTInductor s", "ratio", "bundle MB", "package MB"]
    return table(heads, rows)


def _builds(models: Sequence[ModelFigures]) -> str:
    rows = []
    for model in models:
        ours, theirs = model.build_seconds["aotc"], model.build_seconds.get("aoti")
        stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in model.stage_seconds.items())
        rows.append([
            model.name, f"{ours:.1f}", f"{theirs:.1f}" if theirs else "–",
            f"{ours / theirs:.2f}" if theirs else "–", stages,
        ])  # fmt: skip
    return table(["model", "aotc s", "AOTInductor s", "ratio", "aotc's stages, s"], rows)


def _matmuls(figures: Sequence[MatmulFigures]) -> str:
    rows = [
        [
            f"{f.size}³", f"{f.aotc:.0f}", f"{f.torch:.0f}", f"{f.peak:.0f}",
            f"{f.aotc / f.peak:.0%}", f"{f.torch / f.peak:.0%}",
        ]
        for f in figures
    ]  # fmt: skip
    return table(
        ["product", "aotc GFLOP/s", "torch GFLOP/s", "FMA peak", "aotc / peak", "torch / peak"],
        rows,
    )


def summary(
    facts: Mapping[str, str],
    models: Sequence[ModelFigures],
    matmuls: Sequence[MatmulFigures],
    host: Mapping[str, float],
) -> str:
    """What the README shows: forward, start and build of every model in one table."""
    rows, forwards, starts, builds = [], [], [], []
    for model in models:
        forward = {kind: statistics.median(times) for kind, times in model.forward_seconds.items()}
        best = min(forward[peer] for peer in PEERS if peer in forward)
        first = {kind: statistics.median(t) for kind, t in model.first_result_seconds.items()}
        build = model.build_seconds
        forwards.append(best / forward["aotc"])
        cells = [
            model.name,
            f"{forward['aotc'] * 1e3:.2f}",
            f"{best * 1e3:.2f}",
            f"{forwards[-1]:.2f}×",
        ]
        cells.append(f"{first['aotc']:.2f}")
        if "aoti" in first:
            starts.append(first["aoti"] / first["aotc"])
        cells.append(f"{starts[-1]:.0f}×" if "aoti" in first else "–")
        cells.append(f"{build['aotc']:.1f}")
        if "aoti" in build:
            builds.append(build["aoti"] / build["aotc"])
        cells.append(f"{builds[-1]:.1f}×" if "aoti" in build else "–")
        rows.append(cells)
    means = [f"**{geometric_mean(x):.2f}×**" if x else "–" for x in (forwards, starts, builds)]
    rows.append(["geometric mean", "", "", means[0], "", means[1], "", means[2]])
    heads = [
        "model", "forward ms", "best of eager, compile, AOTI", "faster", "start → result s",
        "startup × AOTI's", "build s", "build × AOTI's",
    ]  # fmt: skip
    products = ", ".join(f"{f.aotc / f.peak:.0%} at {f.size}³" for f in matmuls)
    calls = ", ".join(f"{way} {us:.1f} µs" for way, us in host.items())
    return "\n\n".join([
        f"{facts['date']}, {facts['processor']}, {facts['cores']} cores, {facts['versions']}:",
        table(heads, rows),
        f"f32 matmul with packed weights, share of the measured FMA peak: {products}. "
        f"A call with nothing to compute: {calls}.",
    ])  # fmt: skip


def render(
    facts: Mapping[str, str],
    models: Sequence[ModelFigures],
    matmuls: Sequence[MatmulFigures],
    host: Mapping[str, float],
    starts_ms: Mapping[str, float],
) -> str:
    """The page; written by `scripts/bench`, never by hand."""
    skipped = sorted(
        {f"- {NAMES.get(n, n)}, {m.name}: {why}" for m in models for n, why in m.skipped.items()}
    )
    return "\n\n".join([
        "# Benchmarks",
        "Written by `scripts/bench`; run it to measure your own machine. Every table comes from "
        "one run, in which each contender has a process of its own and they take turns; medians "
        "unless said otherwise.",
        table(["what", "value"], [[k, v] for k, v in facts.items()]),
        "## Forward",
        "One call on the example's inputs, no gradients, all cores.",
        _forward(models),
        "## Process start to first result",
        "A fresh Python process loads the deployed artifact and answers once. "
        "aotc verifies every byte of the bundle on the way.",
        _starts(models),
        "## Build",
        "Whole process, cold caches, no tuning.",
        _builds(models),
        "## f32 matmul with packed weights",
        "`Linear(n, n)` on n rows; best turn of each. The peak is a loop of fused multiply-adds in "
        "registers.",
        _matmuls(matmuls),
        "## Host cost",
        "A model that adds one to eight numbers: what a call costs when there is nothing to "
        "compute.",
        table(["call", "µs"], [[way, f"{us:.2f}"] for way, us in host.items()]),
        "A fresh process takes, in milliseconds (medians, in turns): "
        + ", ".join(f"{name} {found:.1f}" for name, found in starts_ms.items())
        + ".",
        "## Forward, percentiles",
        _percentiles(models),
        *(["Not measured:\n\n" + "\n".join(skipped)] if skipped else []),
        "",
    ])  # fmt: skip
