"""The table of figures as Markdown."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .spread import Found

HEAD = """# How much was tried against bundles and the cache

Written by `scripts/robustness` from `{data}`, where each run replaces the parts that it tried.

Each row is a part of that command; `tests/robustness` says what a part does. *Asked* is its full
count, *done* what there was time for. *Wrong* counts what must not be: something half-made or
altered that was used, an error that is not aotc's, a crash, a time or a memory over its bound,
something left behind. *Run* is a number of the list below the table.

"""


@dataclass(frozen=True)
class Row:
    """One part. asked: pieces of work at full scale; found: None where the part could not run, for
    the reason in `note`; run: command, date and machine."""

    name: str
    asked: int
    found: Found | None
    note: str
    seconds: float
    run: str = ""


def describe_run(command: str, date: str) -> str:
    """What identifies a run of the command."""
    versions = ", ".join(_version(name) for name in ("torch", "triton"))
    return (
        f"`{command}` on {date}: {platform.machine()}, {len(os.sched_getaffinity(0))} processors, "
        f"Python {platform.python_version()}, {versions}"
    )


def read_rows(path: Path) -> list[Row]:
    """The rows of earlier runs."""
    rows = []
    for fields in _read(path)["rows"]:
        found = fields["found"] and Found.of(fields["found"])
        rows.append(Row(**{**fields, "found": found}))
    return rows


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """The rows as JSON, beside what else the page has."""
    listed = [{**vars(row), "found": row.found and vars(row.found)} for row in rows]
    _write(path, {**_read(path), "rows": listed})


def put_text(output: Path, title: str, lines: Sequence[str]) -> None:
    """Put a section into a page, in the place of an earlier one of that title."""
    data = output.with_suffix(".json")
    known = _read(data)
    _write(data, {**known, "sections": {**known["sections"], title: list(lines)}})
    output.write_text(page(read_rows(data), data))


def _read(path: Path) -> dict[str, Any]:
    empty: dict[str, Any] = {"rows": [], "sections": {}}
    return json.loads(path.read_text()) if path.exists() else empty


def _write(path: Path, tree: dict[str, Any]) -> None:
    path.write_text(json.dumps(tree, indent=1) + "\n")


def merge(old: Sequence[Row], new: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """The latest row of each name, in the order of the names."""
    latest = {row.name: row for row in (*old, *new)}
    return [latest[name] for name in names if name in latest]


def page(rows: Sequence[Row], data: Path) -> str:
    """The whole page; `data` is the file of the rows and of the sections below them."""
    runs = list(dict.fromkeys(row.run for row in rows))
    lines = [
        HEAD.format(data=data.name),
        "| part | asked | done | wrong | seconds | run | what was found |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [line_of(row, runs) for row in rows]
    lines += ["", *(f"{number}. {run}" for number, run in enumerate(runs, 1))]
    wrong = [f"- {row.name}: {_one_line(text)}" for row in rows for text in _texts(row)]
    if wrong:
        lines += ["", "The first that were wrong:", "", *wrong]
    for title, text in _read(data)["sections"].items():
        lines += ["", f"## {title}", "", *text]
    return "\n".join(lines).lstrip("\n") + "\n"


def line_of(row: Row, runs: Sequence[str] = ()) -> str:
    """A line of the table."""
    run = f" {runs.index(row.run) + 1} |" if runs else ""
    if row.found is None:
        return f"| {row.name} | {row.asked:,} | not run | – | – |{run} {row.note} |"
    counts, most = Counter(row.found.counts), row.found.most
    done, wrong = counts.pop("done", 0), counts.pop("wrong", 0)
    texts = [row.note] if row.note else []
    texts += [f"{name} {count:,}" for name, count in sorted(counts.items()) if count]
    texts += [f"at most {_number(value)} {name}" for name, value in sorted(most.items())]
    said = f"**{wrong:,}**" if wrong else "0"
    return (
        f"| {row.name} | {row.asked:,} | {done:,} | {said} | {row.seconds:.0f} |{run} "
        f"{'; '.join(texts)} |"
    )


def _texts(row: Row) -> list[str]:
    return [] if row.found is None else row.found.wrong[:8]


def _one_line(text: str) -> str:
    return " ".join(text.split())[-400:]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2g}"


def _version(name: str) -> str:
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return f"no {name}"
