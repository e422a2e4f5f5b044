"""The table of figures as Markdown."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass

from .spread import Found

HEAD = """# How much was tried against bundles and the cache

Written by `{command}` on {date}: {machine}, {processors} processors, Python {python}, {versions}.

Each row is a part of that command; `tests/robustness` says what a part does. *Asked* is its full
count, *done* what there was time for. *Wrong* counts what must not be: something half-made or
altered that was used, an error that is not aotc's, a crash, a time or a memory over its bound,
something left behind.

"""


@dataclass(frozen=True)
class Row:
    """One part. asked: pieces of work at full scale; found: None where the part could not run, for
    the reason in `note`."""

    name: str
    asked: int
    found: Found | None
    note: str
    seconds: float


def page(rows: Sequence[Row], command: str, date: str) -> str:
    """The whole page."""
    lines = [
        HEAD.format(
            command=command,
            date=date,
            machine=platform.machine(),
            processors=len(os.sched_getaffinity(0)),
            python=platform.python_version(),
            versions=", ".join(_version(name) for name in ("torch", "triton")),
        ),
        "| part | asked | done | wrong | seconds | what was found |",
        "|---|---|---|---|---|---|",
    ]
    lines += [line_of(row) for row in rows]
    wrong = [f"- {row.name}: {_one_line(text)}" for row in rows for text in _texts(row)]
    if wrong:
        lines += ["", "The first that were wrong:", "", *wrong]
    return "\n".join(lines).lstrip("\n") + "\n"


def line_of(row: Row) -> str:
    """A line of the table."""
    if row.found is None:
        return f"| {row.name} | {row.asked:,} | not run | – | – | {row.note} |"
    counts, most = dict(row.found.counts), row.found.most
    done, wrong = counts.pop("done", 0), counts.pop("wrong", 0)
    texts = [row.note] if row.note else []
    texts += [f"{name} {count:,}" for name, count in sorted(counts.items()) if count]
    texts += [f"at most {_number(value)} {name}" for name, value in sorted(most.items())]
    said = f"**{wrong:,}**" if wrong else "0"
    return (
        f"| {row.name} | {row.asked:,} | {done:,} | {said} | {row.seconds:.0f} | "
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
