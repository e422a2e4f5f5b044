"""The zoo's figures as `docs/zoo.md`."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.report import NAMES, geometric_mean, table
from benchmarks.zoo.measure import PEERS, TOLERANCE, Figures

LEAST = 0.95  # of the best peer's speed, that every model is to reach


def render(size: str, rows: Sequence[Figures]) -> str:
    """The page of one size; written by `python -m benchmarks.zoo`, never by hand."""
    built = [row for row in rows if not row.refused]
    correct = [row for row in built if row.is_correct]
    return "\n\n".join([
        "# Models of public libraries",
        "Written by `python -m benchmarks.zoo`; run it to measure your own machine. Models are "
        "made from the configs of their libraries with random weights (`benchmarks/zoo`), at "
        f"{size} sizes, in f32. *Difference* is the largest one of an output from eager torch, "
        f"relative to that output's scale; at most {TOLERANCE:.0e} is right, or thrice what eager "
        "itself is away from the same model in f64, where that is more. Times of calls are "
        "medians on the cores that are named here, the contenders in processes of their own that "
        "take turns; a model without them was built and compared only, with `--rounds 0`.",
        f"{len(built)} of {len(rows)} models build, {len(correct)} are right.",
        _machine(rows),
        _models(rows),
        *_speed(rows),
        *_notes(rows),
        "",
    ])  # fmt: skip


def _machine(rows: Sequence[Figures]) -> str:
    """Where and when, a line a run, with its models where there are several runs."""
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for row in rows:
        if row.facts:
            found.setdefault(tuple(row.facts.items()), []).append(row.name)
    lines = []
    for facts, names in found.items():
        line = ", ".join(f"{name} {value}" for name, value in facts)
        lines.append(f"- {line}" + (f": {', '.join(names)}" if len(found) > 1 else ""))
    return "\n".join(lines)


def _models(rows: Sequence[Figures]) -> str:
    heads = ["model", "difference", "kernels", "launches", "build s"]
    timed = {kind for row in rows for kind in row.forward_us}
    contenders = [kind for kind in ("aotc", *PEERS) if kind in timed]
    heads += [f"{NAMES[kind]} ms" for kind in contenders]
    heads += ["best peer / aotc"] if timed else []
    return table(heads, [_cells(row, contenders) for row in rows])


def _cells(row: Figures, contenders: Sequence[str]) -> list[str]:
    if row.refused:
        return [row.name, "refused", *["–"] * (len(contenders) + 3 + bool(contenders))]
    mark = "" if row.is_correct else " **wrong**"
    times = [row.forward_us.get(kind) for kind in contenders]
    speedup = row.speedup()
    return [
        row.name,
        f"{row.difference:.0e}{mark}",
        str(row.kernels),
        str(row.launches),
        f"{row.build_seconds:.1f}",
        *("–" if time is None else f"{time / 1e3:.2f}" for time in times),
        *(["–" if speedup is None else f"{speedup:.2f}×"] if contenders else []),
    ]


def _speed(rows: Sequence[Figures]) -> list[str]:
    ratios = {row.name: speedup for row in rows if (speedup := row.speedup()) is not None}
    if not ratios:
        return []
    slow = sorted((ratio, name) for name, ratio in ratios.items() if ratio < LEAST)
    text = (
        f"Geometric mean over {len(ratios)} models: {geometric_mean(list(ratios.values())):.2f}×."
    )
    if slow:
        listed = ", ".join(f"{name} {ratio:.2f}×" for ratio, name in slow)
        text += f" Below {LEAST}×: {listed}."
    return [text]


def _notes(rows: Sequence[Figures]) -> list[str]:
    notes = [f"- {row.name} is refused: {row.refused}" for row in rows if row.refused]
    notes += [
        f"- {row.name}, {NAMES[kind]}: {why}" for row in rows for kind, why in row.skipped.items()
    ]
    return ["\n".join(notes)] if notes else []
