"""The tuning record: one line a kernel, text, sorted, mergeable, committable.

Grammar:

    record  = "# aotc tuning record 1" newline { line newline }
    line    = spec-digest " " target " " device " " choice " " time " " runner-up " " time
    choice  = "-" | [ "form=" word "," ] name "=" number { "," name "=" number }
    time    = microseconds with two decimals, or "-" where there is no runner-up

Lines are sorted by spec digest, target and device; of two lines for the same three the faster one
wins, so that the union of two files (git's `merge=union`) is a valid record. Lines starting with
`#` after the first are comments and are not kept.

Version history: 1, the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from aotc.aot.errors import TuningRecordInvalid
from aotc.aot.lower.spec import Candidate

HEAD = "# aotc tuning record 1"
FORM = "form="

Config = tuple[tuple[str, int], ...]
Place = tuple[str, str, str]  # spec digest, target, device


@dataclass(frozen=True, slots=True)
class Choice:
    """What distinguishes a candidate from the others of its spec: its form and its config."""

    config: Config
    form: str = ""

    @classmethod
    def of(cls, candidate: Candidate) -> Self:
        """The choice that is this candidate."""
        return cls(candidate.config, candidate.form)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote; raises ValueError."""
        form = ""
        if text.startswith(FORM):
            form, _, text = text.removeprefix(FORM).partition(",")
            if not form:
                raise ValueError(f"form in `{FORM},{text}` has no name")
        pairs = [] if text in ("", "-") else [_parse_pair(pair) for pair in text.split(",")]
        return cls(tuple(pairs), form)

    def __str__(self) -> str:
        """`XBLOCK=4,YBLOCK=64`, `form=split_k,BLOCK_K=64`; `-` for a kernel without choices."""
        words = [f"{FORM}{self.form}"] if self.form else []
        return ",".join([*words, *(f"{name}={value}" for name, value in self.config)]) or "-"


@dataclass(frozen=True, slots=True)
class Line:
    """The measured choice for one kernel on one kind of machine."""

    spec_digest: str
    target: str  # `cuda-sm_90`
    device: str  # `nvidia-h200`
    choice: Choice
    time_us: float
    runner_up: Choice | None = None
    runner_up_us: float | None = None

    @property
    def place(self) -> Place:
        """What the line is about; one line for each place is kept."""
        return (self.spec_digest, self.target, self.device)

    def __str__(self) -> str:
        second = "-" if self.runner_up is None else str(self.runner_up)
        second_us = "-" if self.runner_up_us is None else f"{self.runner_up_us:.2f}"
        return " ".join([*self.place, str(self.choice), f"{self.time_us:.2f}", second, second_us])


Record = Mapping[Place, Line]


def merge(*records: Iterable[Line]) -> dict[Place, Line]:
    """One record of all lines; of two for the same place the faster one."""
    merged: dict[Place, Line] = {}
    for line in (line for record in records for line in record):
        known = merged.get(line.place)
        if known is None or line.time_us < known.time_us:
            merged[line.place] = line
    return merged


def print_record(record: Record) -> str:
    """The record's text, sorted."""
    return "\n".join([HEAD, *(str(record[place]) for place in sorted(record))]) + "\n"


def parse_record(text: str, path: str) -> dict[Place, Line]:
    """Read a record; raises TuningRecordInvalid with the line's number."""
    lines = text.splitlines()
    if not lines or lines[0].strip() != HEAD:
        found = lines[0][:40] if lines else "an empty file"
        raise TuningRecordInvalid(path=path, line=1, detail=f"found `{found}`, expected `{HEAD}`")
    parsed = []
    for number, line in enumerate(lines[1:], start=2):
        if line.strip() and not line.startswith("#"):
            parsed.append(_parse_line(line, path, number))
    return merge(parsed)


def _parse_line(text: str, path: str, number: int) -> Line:
    cells = text.split()
    if len(cells) != 7:
        detail = f"found {len(cells)} columns, expected 7"
        raise TuningRecordInvalid(path=path, line=number, detail=detail)
    digest, target, device, choice, time_us, second, second_us = cells
    try:
        return Line(
            digest,
            target,
            device,
            Choice.parse(choice),
            float(time_us),
            None if second_us == "-" else Choice.parse(second),
            None if second_us == "-" else float(second_us),
        )
    except ValueError as error:
        raise TuningRecordInvalid(path=path, line=number, detail=str(error)) from None


def _parse_pair(pair: str) -> tuple[str, int]:
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise ValueError(f"choice `{pair}` is not of the form NAME=NUMBER")
    return name, int(value)
