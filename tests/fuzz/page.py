"""The summary page from outcomes: counts per family, by way, and refusals by reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from fuzz.trial import BAD, INTERNAL, LATE, REFUSED, RIGHT, UNJUDGEABLE, WRONG, Outcome

VERDICTS = (RIGHT, UNJUDGEABLE, REFUSED, WRONG, INTERNAL, LATE)
HEAD = """# Random programs

Written by `scripts/fuzz`. Programs of 3 to 40 ops are drawn from a typed table
(`tests/fuzz/rows/`), built and run as users do, and judged by eager torch.

- **right**: movement and integers to the bit; floats within what rounding explains: the span of
  eager's own answer, its answer in f64, and answers whose every rounding is moved at random.
- **unjudgeable**: only elements differ at which those answers part among themselves (comparisons
  and orders of nearly equal values).
- **refused**: a typed error names what is not supported, or torch itself cannot trace the program.
- **wrong**, **internal** (an error that is ours), **over time** (more than 60 s): findings.
"""


def render(outcomes: Sequence[Outcome], facts: Mapping[str, str]) -> str:
    """The whole page."""
    lines = [HEAD, *(f"- {name}: {value}" for name, value in facts.items()), ""]
    lines += ["## Families", "", *_table(outcomes, lambda each: each.family), ""]
    lines += ["## Kinds", "", *_table(outcomes, _kind), ""]
    lines += ["## Ways", "", *_table(outcomes, lambda each: each.way), ""]
    refusals = Counter(short(each.reason) for each in outcomes if each.verdict == REFUSED)
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


def _kind(outcome: Outcome) -> str:
    words = outcome.task.split()[2:]
    return " ".join(words) or "fixed sizes, forward"


def _table(outcomes: Sequence[Outcome], key: object) -> list[str]:
    rows: dict[str, list[Outcome]] = {}
    for each in outcomes:
        rows.setdefault(key(each), []).append(each)  # type: ignore[operator]
    heads = ["", "programs", *VERDICTS]
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
    text = re.sub(r"the model holds what aotc cannot compile: ?", "", text)
    text = re.sub(r"\bv\d+\b", "v", text)
    return text.replace("|", "\\|")[:200]
