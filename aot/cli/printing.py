"""What the commands print: results on stdout as text or JSON, errors and warnings on stderr."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

import click

from aotc.aot.cli.suggesting import near, near_path
from aotc.aot.printable import printable
from aotc.runtime import settings
from aotc.runtime.errors import DiskFull, LimitReached, PermissionMissing

INTERNAL_EXIT_CODE = 70
REFUSED_BY_SYSTEM = (DiskFull, LimitReached, PermissionMissing)  # no other path is meant


def print_json(schema: str, record: dict[str, Any]) -> None:
    """One JSON object with its schema's id first: `{"schema": "aotc.inspect/1", …}`."""
    click.echo(json.dumps({"schema": schema, **record}, indent=2))


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns with two spaces between them; numbers to the right."""
    lines = [[printable(cell, "") for cell in row] for row in rows]
    widths = [
        max(len(line[index]) for line in [list(heads), *lines]) for index in range(len(heads))
    ]
    is_right = [
        bool(lines) and all(line[index][:1].isdigit() for line in lines)
        for index in range(len(heads))
    ]
    for line in [list(heads), *lines]:
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_right, strict=True)
        )
        click.echo("  ".join(cells).rstrip())


def print_error(error: Exception) -> int:
    """`error: …`, its hint, and for a bug of ours the traceback; returns the exit code."""
    message, hint = map(printable, texts_of(error))
    code = int(getattr(error, "exit_code", INTERNAL_EXIT_CODE))
    if code == INTERNAL_EXIT_CODE and error.__cause__ is not None:
        traceback.print_exception(error.__cause__, file=sys.stderr)
    print(f"{_paint('error', 31)}: {message}", file=sys.stderr)
    if hint:
        print(f"\n{_paint('hint', 36)}: {hint}", file=sys.stderr)
    return code


def print_usage(error: click.ClickException) -> int:
    """A command line that click refuses, in the form of all errors; the help where no command is
    named. Exit 2."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(printable(error.format_message()), file=sys.stderr)
        return error.exit_code
    message, hint = map(printable, usage_texts(error))
    print(f"{_paint('error', 31)}: {message}", file=sys.stderr)
    if hint:
        print(f"\n{_paint('hint', 36)}: {hint}", file=sys.stderr)
    return error.exit_code


def usage_texts(error: click.ClickException) -> tuple[str, str]:
    """Message and hint of a command line that click refuses."""
    message = error.format_message().rstrip(".")
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        message = "no command is named"
    elif isinstance(error, click.NoSuchOption):
        message = f"no such option `{error.option_name}`"
    context = getattr(error, "ctx", None)
    help_text = f"see `{context.command_path} --help`" if context is not None else ""
    meant = "".join(f"did you mean `{name}`? " for name in near(error))
    first = getattr(error, "hint", "")
    hint = " ".join(filter(None, [f"{meant}".strip(), first, help_text]))
    return f"{message[:1].lower()}{message[1:]}", hint


def texts_of(error: Exception) -> tuple[str, str]:
    """Message and hint of an error; where it names a path that is not there, with the nearest,
    unless the system refused to make that."""
    message, _, hint = str(error).partition("\nhint: ")
    path = None if isinstance(error, REFUSED_BY_SYSTEM) else getattr(error, "path", None)
    meant = near_path(str(path)) if path else ""
    return message, f"did you mean `{meant}`? {hint}".strip() if meant else hint


def print_error_json(
    code: str, exit_code: int, texts: tuple[str, str], fields: Mapping[str, Any] | None = None
) -> None:
    """The one JSON object of a command that failed under `--json`, on stdout.

    texts: message and hint; fields: what the message was made of, by name.
    """
    message, hint = texts
    rows = {"code": code, "exit_code": exit_code, "message": message, "hint": hint}
    print_json("aotc.error/1", {**rows, "fields": dict(fields or {})})


def print_unexpected(error: Exception) -> int:
    """An exception that no class of ours names: traceback, one line, exit 70."""
    traceback.print_exception(error, file=sys.stderr)
    print(f"{_paint('error', 31)}: internal error: {error!r}", file=sys.stderr)
    print("\nhint: this is a bug in aotc: please report it with `aotc doctor`", file=sys.stderr)
    return INTERNAL_EXIT_CODE


def print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """`warning: …` on stderr, in place of Python's form with a path and a source line."""
    print(f"{_paint('warning', 33)}: {printable(message)}", file=sys.stderr)


def bytes_text(count: int) -> str:
    """A size for people: `412 B`, `3.4 MB`."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def count_text(count: float) -> str:
    """A number of operations for people: `412`, `3.4 M`, `1.2 T`."""
    size = float(count)
    for unit in ("", " k", " M", " G"):
        if size < 1000:
            return f"{size:.1f}{unit}" if unit else f"{count:.0f}"
        size /= 1000
    return f"{size:.1f} T"


def time_text(seconds: float) -> str:
    """A duration for people: `3.1 µs`, `42.0 ms`, `1.9 s`."""
    for scale, unit in ((1e-3, "µs"), (1.0, "ms")):
        if seconds < scale:
            return f"{seconds / scale * 1000:.1f} {unit}"
    return f"{seconds:.2f} s"


def is_terminal() -> bool:
    """Whether stderr takes bars and colours: a terminal, not dumb, not in CI."""
    is_plain = settings.read("CI").value or settings.read("TERM").value == "dumb"
    return sys.stderr.isatty() and not is_plain


def _paint(word: str, colour: int) -> str:
    if is_terminal() and not settings.read("NO_COLOR").value:
        return f"\033[1;{colour}m{word}\033[0m"
    return word
