"""`docs/coverage.md` from outcomes: one row an op with its samples, and why some are refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.operators.core_set import BESIDE, LEFT_OUT, SHARED, core_ops, records_of
from benchmarks.operators.drive import BROKEN, REFUSED, RIGHT, WRONG, Outcome

PROMISED = ("f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool")
HEAD = """# Coverage of torch's operators

Written by `python -m benchmarks.operators`: samples of torch's own operator database (OpInfo) are
captured, compiled for the target below and run, and their numbers compared with eager's. A sample
is `right`, `refused` (at build, with its reason) or `wrong`.
"""
JUDGED = """
Floats are right within {limits}
of the value and of the largest value of the result; everything else to the last bit. A 16-bit
sample is also right where it is what eager gives in f32, since eager rounds between steps that a
kernel does at once, and `special.ndtr` where it is ½ erfc(-x/√2): eager's ½ (1 + erf) cancels.
Where equal elements tie in a sort, the elements at the places are compared, not the places. Tensors
that a call changes are copied for it, and what they then hold is compared as well.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """Counts of one op."""

    name: str
    samples: int
    right: int
    refused: int
    wrong: int
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        note = "; ".join(self.reasons)
        counts = f"{self.samples} | {self.right} | {self.refused} | {self.wrong}"
        return f"| `{self.name}` | {counts} | {note} |"


def row_of(name: str, outcomes: Sequence[Outcome]) -> Row:
    """One op's outcomes; `broken` ones count as wrong."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    bad = [outcome for outcome in outcomes if outcome.verdict != RIGHT]
    reasons = tuple(dict.fromkeys(short(outcome.reason) for outcome in bad))
    wrong = counts[WRONG] + counts[BROKEN]
    return Row(name, len(outcomes), counts[RIGHT], counts[REFUSED], wrong, reasons)


def short(reason: str) -> str:
    """A refusal without the error's name and the line: what a table's cell has room for."""
    text = " ".join(reason.split())
    text = re.sub(
        r"^\w+: (the model (?:holds what|has operations that) aotc cannot compile: )?", "", text
    )
    text = re.sub(r",? at samples\.py:\d+ in \w+", "", text)
    text = re.sub(r" hint: .*$", "", text)
    return text.replace("|", "\\|")[:160]


def render(
    outcomes: Sequence[Outcome], facts: Mapping[str, str], limits: Mapping[str, float]
) -> str:
    """The whole page."""
    by_record: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_record.setdefault(outcome.operator, []).append(outcome)
    rows = []
    for op in core_ops():
        own = [each for record in records_of(op) for each in by_record.get(record, [])]
        if own:
            rows.append(row_of(op, own))
    beside = [row_of(record, by_record[record]) for record in BESIDE if record in by_record]
    bounds = ", ".join(f"{limit:g} ({name})" for name, limit in limits.items())
    parts = [HEAD, JUDGED.format(limits=bounds), "\n".join(f"- {k}: {v}" for k, v in facts.items())]
    parts += ["", _summary(outcomes), "", "## Core ATen ops", "", _table(rows)]
    parts += ["", "Without samples of their own: " + _left_out() + "."]
    if beside:
        parts += [
            "",
            "## Beside them",
            "",
            "Other calls of the model libraries.",
            "",
            _table(beside),
        ]
    return "\n".join(parts) + "\n"


def _summary(outcomes: Sequence[Outcome]) -> str:
    """Core samples by element type."""
    core = {record for op in core_ops() for record in records_of(op)}
    lines = [
        "| element type | core samples | right | refused | wrong | right in % |",
        "|---|---|---|---|---|---|",
    ]
    names = list(dict.fromkeys(outcome.dtype for outcome in outcomes))
    groups = [(name, (name,)) for name in names]
    promised = tuple(name for name in names if name in PROMISED)
    for title, dtypes in [*groups, (f"all but {_others(names)}", promised)]:
        own = [each for each in outcomes if each.operator in core and each.dtype in dtypes]
        row = row_of(title, own)
        if own:
            share = 100 * row.right / row.samples
            counts = f"{row.samples} | {row.right} | {row.refused} | {row.wrong}"
            lines.append(f"| {title} | {counts} | {share:.1f} |")
    return "\n".join(lines)


def _others(names: Sequence[str]) -> str:
    return ", ".join(name for name in names if name not in PROMISED) or "none"


def _table(rows: Sequence[Row]) -> str:
    head = ["| op | samples | right | refused | wrong | reason |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *map(str, rows)])


def _left_out() -> str:
    own = [f"`{name}` ({reason})" for name, reason in LEFT_OUT.items()]
    return ", ".join([*own, *(f"`{name}` (as `{other}`)" for name, other in SHARED.items())])
