"""The tuning record: one line a kernel, text, sorted, mergeable, committable.

Grammar:

    record  = "# aotc tuning record 1" newline { line newline }
    line    = spec-digest " " target " " device " " config " " time " " runner-up " " time
    config  = "-" | name "=" number { "," name "=" number }
    time    = microseconds with two decimals, or "-" where there is no runner-up

Lines are sorted by spec digest, target and device; of two lines for the same three the faster one
wins, so that the union of two files (git's `merge=union`) is a valid record. Lines starting with
`#` after the first are comments and are not kept.

Version history: 1, the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aotc.aot.errors import TuningRecordInvalid

HEAD = "# aotc tuning record 1"

Config = tuple[tuple[str, int], ...]
Place = tuple[str, str, str]  # spec digest, target, device


@dataclass(frozen=True, slots=True)
class Line:
    """The measured choice for one kernel on one kind of machine."""

    spec_digest: str
    target: str  # `cpu-x86-64-v4`
    device: str  # `amd-epyc-9b14-x2`
    config: Config
    time_us: float
    runner_up: Config | None = None
    runner_up_us: float | None = None

    @property
    def place(self) -> Place:
        """What the line is about; one line for each place is kept."""
        return (self.spec_digest, self.target, self.device)

    def __str__(self) -> str:
        second = "-" if self.runner_up is None else config_text(self.runner_up)
        second_us = "-" if self.runner_up_us is None else f"{self.runner_up_us:.2f}"
        config = config_text(self.config)
        return " ".join([*self.place, config, f"{self.time_us:.2f}", second, second_us])


Record = Mapping[Place, Line]


def config_text(config: Config) -> str:
    """`XBLOCK=4,YBLOCK=64`; `-` for a kernel without choices."""
    return ",".join(f"{name}={value}" for name, value in config) or "-"


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
    digest, target, device, config, time_us, second, second_us = cells
    try:
        return Line(
            digest,
            target,
            device,
            _parse_config(config),
            float(time_us),
            None if second_us == "-" else _parse_config(second),
            None if second_us == "-" else float(second_us),
        )
    except ValueError as error:
        raise TuningRecordInvalid(path=path, line=number, detail=str(error)) from None


def _parse_config(text: str) -> Config:
    if text == "-":
        return ()
    pairs = []
    for pair in text.split(","):
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"config `{text}` is not of the form NAME=NUMBER,…")
        pairs.append((name, int(value)))
    return tuple(pairs)
