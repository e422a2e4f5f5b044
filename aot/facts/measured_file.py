"""Files that `aotc profile --json` and `aotc bench --json` printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aotc.aot.errors import MeasuredFileInvalid
from aotc.runtime.bundle.strict_json import NotStrict, parse
from aotc.runtime.errors import environment_fault

LIMIT_BYTES = 64 << 20


def read_measured(path: Path, command: str) -> dict[str, Any]:
    """The record that a command printed, `profile` or `bench`; raises `MeasuredFileInvalid` for
    anything else, and `EnvironmentFault`."""
    schema = f"aotc.{command}/1"
    expected = f"a record of {schema}"
    try:
        with path.open("rb") as file:
            data = file.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise environment_fault("read", str(path), error) from error
    if len(data) > LIMIT_BYTES:
        raise invalid(path, f"more than {LIMIT_BYTES >> 20} MiB", expected, command)
    try:
        record = parse(data, has_floats=True)
    except NotStrict as error:
        raise invalid(path, str(error), expected, command) from None
    found = record.get("schema") if isinstance(record, dict) else "no map"
    if not isinstance(record, dict) or found != schema:
        raise invalid(path, str(found)[:64], expected, command)
    return record


def invalid(path: Path, found: str, expected: str, command: str) -> MeasuredFileInvalid:
    """The error for a file that holds something else."""
    return MeasuredFileInvalid(path=path, found=found, expected=expected, command=command)
