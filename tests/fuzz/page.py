"""The summary page from outcomes: counts per family, by way, and refusals by reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from fuzz.trial import (
    BAD,
    INTERNAL,
    LATE,
    REFUSED,
    RIGHT,
    TORCH_DIES,
    UNJUDGEABLE,
    WRONG,
    Outcome,
)

VERDICTS = (RIGHT, UNJUDGEABLE, REFUSED, TORCH_DIES, WRONG, INTERNAL, LATE)
# Of a program that is judged several ways: the first of these that any way gave.
WORST = (WRONG, INTERNAL, LATE, TORCH_DIES, REFUSED, UNJUDGEABLE, RIGHT)
HEAD = """# Random programs

Written by `scripts/fuzz`. Programs of 3 to 40 ops are drawn from a typed table
(`tests/fuzz/rows/`), built and run as users do, and judged by eager torch.

- **right**: movement and integers to the bit; floats within what rounding explains: the span of
  eager's own answer, its answer in f64, and answers whose every rounding is moved at random, on
  the way back too.
- **unjudgeable**: only elements differ at which those answers part among themselves (comparisons
  and orders of nearly equal values; a comparison whose differences, as eager's answers show them,
  have 0 within their span may come out either way), which hang on squares that are no normal
  numbers of f64, or on sums that pass the largest number in some order, or where torch's
  implementations of attention part (rows whose every score is not a number, hidden scores that are
  not finite), or which are gradients that are no numbers where eager's own 16-bit floats pass the
  largest number on the way; or eager raises of data in an op of which only the shape is read, which
  torch.export leaves out; or the judge's own runs of eager take more than 240 s.
- **refused**: a typed error names what is not supported, or torch itself cannot trace the program,
  or traces it as of another shape than it gives.
- **torch dies**: eager torch ends the process that draws the program, or runs what torch.export
  made of it; a new one too, in which no kernel of ours has run.
- **wrong**, **internal** (an error that is ours, a process that died, a write beside memory that
  a kernel may write to, a read beside its buffer), **over time** (more than 60 s of processors,
  eager's runs for the judge apart): findings.

A program that is run several ways counts once, by the worst that a way gave; the table of ways
counts runs.
"""


def render(outcomes: Sequence[Outcome], facts: Mapping[str, str]) -> str:
    """The whole page."""
    lines = [HEAD, *(f"- {name}: {value}" for name, value in facts.items()), ""]
    programs = of_programs(outcomes)
    lines += ["## Families", "", *_table(programs, lambda each: each.family, "programs"), ""]
    lines += ["## Kinds", "", *_table(programs, _kind, "programs"), ""]
    lines += ["## Ways", "", *_table(outcomes, lambda each: each.way, "runs"), ""]
    refusals = Counter(short(each.reason) for each in programs if each.verdict == REFUSED)
    if refusals:
        lines += ["## Refusals by reason", "", "| programs | reason |", "|---|---|"]
        lines += [f"| {count} | {reason} |" for reason, count in refusals.most_common()]
        lines.append("")
    bad = [each for each in outcomes if each.verdict in BAD]
    if bad:
        lines += ["## Findings", "", "| program | way | what |", "|---|---|---|"]
        for each in bad:
            lines.append(f"| `{each.task}` | {each.way} | {each.verdict}: {short(each.reason)} |")
    return "\n".join(lines).rstrip() + "\n"


def of_programs(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """One outcome for each program: that of the way with the worst verdict."""
    rows: dict[str, list[Outcome]] = {}
    for each in outcomes:
        rows.setdefault(each.task, []).append(each)
    return [min(own, key=lambda each: WORST.index(each.verdict)) for own in rows.values()]


def of_program(outcomes: Sequence[Outcome]) -> str:
    """The verdict on one program, of its outcomes by each way."""
    return min((each.verdict for each in outcomes), key=WORST.index)


def _kind(outcome: Outcome) -> str:
    words = outcome.task.split()[2:]
    return " ".join(words) or "fixed sizes, forward"


def _table(outcomes: Sequence[Outcome], key: object, counted: str) -> list[str]:
    rows: dict[str, list[Outcome]] = {}
    for each in outcomes:
        rows.setdefault(key(each), []).append(each)  # type: ignore[operator]
    heads = ["", counted, *VERDICTS]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, own in [*sorted(rows.items()), ("all", list(outcomes))]:
        counts = Counter(each.verdict for each in own)
        cells = [name, str(len(own)), *(str(counts[verdict]) for verdict in VERDICTS)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def short(reason: str) -> str:
    """A reason without the places and numbers of one program."""
    text = " ".join(reason.split())
    text = re.sub(r",? ?(at )?program_\d+\.py:\d+( in \w+)?(: .*)?", "", text)
    text = re.sub(r"the model (?:holds what|has operations that) aotc cannot compile: ?", "", text)
    text = re.sub(r"\bv\d+\b", "v", text)
    return text.replace("|", "\\|")[:200]
