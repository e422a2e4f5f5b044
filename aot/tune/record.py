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

import errno
import math
import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from aotc.aot.errors import TuningRecordInvalid
from aotc.aot.lower.spec import Candidate
from aotc.runtime.errors import environment_fault

HEAD = "# aotc tuning record 1"
LIMIT_BYTES = 1 << 28
NOT_REPLACED = (errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS, errno.EXDEV)
FORM = "form="
RECORDS = Path(__file__).with_name("records")  # of this package, a file for each target

Config = tuple[tuple[str, int], ...]
LineKey = tuple[str, str, str]  # spec digest, target, device


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
    def key(self) -> LineKey:
        """What the line is about; a record has one line a key."""
        return (self.spec_digest, self.target, self.device)

    def __str__(self) -> str:
        second = "-" if self.runner_up is None else str(self.runner_up)
        second_us = "-" if self.runner_up_us is None else f"{self.runner_up_us:.2f}"
        return " ".join([*self.key, str(self.choice), f"{self.time_us:.2f}", second, second_us])


Record = Mapping[LineKey, Line]


def merge(*records: Iterable[Line]) -> dict[LineKey, Line]:
    """One record of all lines; of two with the same key the faster one."""
    merged: dict[LineKey, Line] = {}
    for line in (line for record in records for line in record):
        known = merged.get(line.key)
        if known is None or line.time_us < known.time_us:
            merged[line.key] = line
    return merged


def print_record(record: Record) -> str:
    """The record's text, sorted."""
    return "\n".join([HEAD, *(str(record[key]) for key in sorted(record))]) + "\n"


def read_record(path: Path | None) -> dict[LineKey, Line]:
    """A record's lines; none where there is no file yet. Raises what `parse_record` does, also for
    what is no plain file, and `EnvironmentFault`."""
    if path is None:
        return {}
    found = ""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            state = os.fstat(descriptor)
            if not stat.S_ISREG(state.st_mode):
                found = "it is no plain file"
            elif state.st_size > LIMIT_BYTES:
                found = f"it has {state.st_size} bytes, expected at most {LIMIT_BYTES}"
            data = b"" if found else file.read(LIMIT_BYTES)
        text = data.decode()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        detail = "it has bytes that are not text"
        raise TuningRecordInvalid(path=str(path), line=line, detail=detail) from None
    except OSError as error:
        raise environment_fault("read", str(path), error) from error
    if found:
        raise TuningRecordInvalid(path=str(path), line=1, detail=found)
    return parse_record(text, str(path))


@cache
def shipped_record(target: str) -> dict[LineKey, Line]:
    """The record of a target that this package has; no lines where it has none."""
    return read_record(RECORDS / f"{target}.txt")


def write_record(path: Path, record: Record) -> None:
    """Write a record in the place of one that is there: readers see either, whole.

    A file that cannot be replaced, such as one that is mounted by itself, is written in place.
    Raises `EnvironmentFault`.
    """
    data = print_record(record).encode()
    place = Path(os.path.realpath(path))
    staged = place.with_name(f".{place.name}-{secrets.token_hex(8)}")
    try:
        try:
            with staged.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            staged.replace(place)
        except OSError as error:
            if error.errno not in NOT_REPLACED:
                raise
            place.write_bytes(data)
    except OSError as error:
        raise environment_fault("write", str(path), error) from error
    finally:
        staged.unlink(missing_ok=True)


def parse_record(text: str, path: str) -> dict[LineKey, Line]:
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
            _parse_time(time_us),
            None if second_us == "-" else Choice.parse(second),
            None if second_us == "-" else _parse_time(second_us),
        )
    except ValueError as error:
        raise TuningRecordInvalid(path=path, line=number, detail=str(error)) from None


def _parse_time(text: str) -> float:
    found = float(text)
    if not 0 <= found < math.inf:  # nor NaN, of which none is the faster one
        raise ValueError(f"time `{text}`, expected microseconds")
    return found


def _parse_pair(pair: str) -> tuple[str, int]:
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise ValueError(f"choice `{pair}` is not of the form NAME=NUMBER")
    return name, int(value)
