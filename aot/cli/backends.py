"""`aotc backends ls|check|new|include-dir`: shared libraries that give functions to Python and
to compiled graphs.

A library is looked at in a process of its own: what crashes there is reported here.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from aotc.aot.cli import flags
from aotc.aot.cli.printing import print_json, print_table
from aotc.aot.cli.suggesting import FileThatExists, SuggestingGroup
from aotc.aot.errors import UserError
from aotc.runtime.backends import ABI, discovery
from aotc.runtime.backends.discovery import Found, find_all, places

PROBE_SECONDS = 60
HEADERS = Path(discovery.__file__).parent
SKELETON = HEADERS / "skeleton"


class BackendNameUnusable(UserError):
    """`aotc backends new` was given a name that no back end can have."""

    template = "`{found}` cannot be the name of a back end, expected a-z, 0-9 and `_`"
    hint = "the library will be `libNAME.so`, and its functions `NAME::function`"


class FolderTaken(UserError):
    """`aotc backends new` would write into a folder that is already there."""

    template = "`{path}` exists already"
    hint = "choose another one with `--output`"


@dataclass(frozen=True, slots=True)
class Report:
    """What a probe found out about one library; problems are sentences."""

    path: str
    name: str = ""
    version: str = ""
    devices: tuple[str, ...] = ()
    functions: tuple[dict[str, Any], ...] = ()
    problems: tuple[str, ...] = ()
    is_shadowed: bool = False  # another library of its name comes before it
    origin: str = "path"

    def record(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self)


@dataclass(slots=True)
class _Said:
    """What a probe said before it ended."""

    stage: str = "start"
    found: dict[str, Any] = field(default_factory=dict)
    functions: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""


@click.group("backends", cls=SuggestingGroup)
def command() -> None:
    """List, check and create native back ends: libraries of functions behind a small C ABI."""


@command.command("include-dir")
def show_headers() -> None:
    """Print the folder of aotc_backend.h, aotc_backend.hpp and the CMake package."""
    click.echo(HEADERS)


@command.command("ls")
@flags.as_json
def list_backends(as_json: bool) -> None:
    """List the native back ends that are found, in search order."""
    reports = _marked([_reported(found) for found in find_all()])
    if as_json:
        rows = [report.record() for report in reports]
        print_json("aotc.backends/1", {"searched": places(), "backends": rows})
        return
    if not reports:
        click.echo(f"none; looked in: {places()}")
        return
    heads = ("name", "version", "devices", "functions", "path", "remarks")
    print_table(heads, [_row(report) for report in reports])


@command.command("check")
@click.argument("file", type=FileThatExists())
@flags.as_json
def check(file: Path, as_json: bool) -> int:
    """Load FILE in a process of its own, read its table, initialize and finalize it.

    Exit code 1 where anything is wrong with it.
    """
    report = look_at(str(file.resolve()))
    wanted = f"lib{report.name}.so"
    if report.name and file.name != wanted:
        remark = f"the file is called `{file.name}`, expected `{wanted}` to be found by its name"
        report = replace(report, problems=(*report.problems, remark))
    if as_json:
        print_json("aotc.backends.check/1", report.record())
    else:
        _print(report)
    return 1 if report.problems else 0


@command.command("new")
@click.argument("name")
@click.option(
    "-o", "--output", "out", type=click.Path(path_type=Path), help="The folder to make [NAME]."
)
def begin(name: str, out: Path | None) -> None:
    """Write the skeleton of the back end NAME: a C++ source, Makefile, CMakeLists.txt, a test."""
    if not (name.isascii() and name.isidentifier() and name == name.lower()):
        raise BackendNameUnusable(found=name)
    folder = out or Path(name)
    if folder.exists():
        raise FolderTaken(path=str(folder))
    names = {"library.cpp": f"{name}.cpp", "test.py": f"test_{name}.py"}
    try:
        folder.mkdir(parents=True)
        for template in sorted(SKELETON.glob("*.in")):
            target = folder / names.get(template.stem, template.stem)
            target.write_text(template.read_text().replace("@NAME@", name))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    click.echo(f"{folder}: `make` builds lib{name}.so, `make test` calls it")


def look_at(path: str) -> Report:
    """Probe a library in a process of its own, which may crash."""
    program = [sys.executable, "-P", "-m", "aotc.runtime.backends.probe", path]
    try:
        ran = subprocess.run(
            program, capture_output=True, text=True, check=False, timeout=PROBE_SECONDS
        )
        lines, code, words = ran.stdout, ran.returncode, ran.stderr
    except subprocess.TimeoutExpired as late:
        lines, code, words = _text(late.stdout), None, _text(late.stderr)
    said = _read(lines)
    problems = [said.error] if said.error else []
    if not said.error and said.stage != "end":
        problems.append(_ending(code, said.stage, words))
    return Report(
        path=path,
        name=said.found.get("name", ""),
        version=said.found.get("version", ""),
        devices=tuple(said.found.get("devices", ())),
        functions=tuple(said.functions),
        problems=tuple(problems),
    )


def _read(lines: str) -> _Said:
    said = _Said()
    for line in lines.splitlines():
        try:
            record = json.loads(line)
        except ValueError:  # the process died within a line
            continue
        said.stage = record.get("stage", said.stage)
        said.found = record.get("found", said.found)
        if "function" in record:
            said.functions.append(record["function"])
        if "error" in record:
            said.error = record["error"]["message"]
    return said


def _ending(code: int | None, stage: str, words: str) -> str:
    """How a process ended that did not come to its end."""
    last = words.strip().splitlines()[-1:]
    said = f" ({last[0]})" if last else ""
    if code is None:
        return f"`{stage}` did not end within {PROBE_SECONDS} seconds{said}"
    if code < 0:
        return f"crashed with {signal.Signals(-code).name} in `{stage}`{said}"
    return f"ended the process with exit code {code} in `{stage}`{said}"


def _text(raw: bytes | str | None) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw or ""


def _reported(found: Found) -> Report:
    if found.problem:
        return Report(found.path, found.name, problems=(found.problem,), origin=found.origin)
    report = replace(look_at(found.path), origin=found.origin)
    if report.name and report.name != found.name:
        remark = f"holds `{report.name}`, expected `{found.name}` by its {_found_by(found)}"
        return replace(report, problems=(*report.problems, remark))
    return report if report.name else replace(report, name=found.name)


def _found_by(found: Found) -> str:
    return "file name" if found.origin == "path" else "entry point"


def _marked(reports: list[Report]) -> list[Report]:
    """The first of each name is the one that is used."""
    names = [report.name for report in reports]
    return [
        replace(report, is_shadowed=report.name in names[:place])
        for place, report in enumerate(reports)
    ]


def _row(report: Report) -> tuple[str, ...]:
    names = " ".join(each["name"] for each in report.functions)
    remarks = [f"shadowed by another `{report.name}` before it"] if report.is_shadowed else []
    remarks += report.problems
    devices = " ".join(report.devices)
    return report.name, report.version, devices, names, report.path, "; ".join(remarks)


def _print(report: Report) -> None:
    click.echo(f"library    {report.path}")
    if report.name:
        click.echo(f"back end   {report.name} {report.version}, ABI {ABI}")
        click.echo(f"devices    {' '.join(report.devices)}")
    for function in report.functions:
        click.echo(f"function   {_function_text(function)}")
    for problem in report.problems:
        click.echo(f"problem    {problem}")
    if not report.problems:
        click.echo("ok")


def _function_text(function: dict[str, Any]) -> str:
    words = [
        word
        for word, field in (
            ("concurrent", "is_concurrent"),
            ("tiled", "is_tiled"),
            ("with workspace", "has_workspace"),
        )
        if function[field]
    ]
    return f"{function['text']} on {' '.join(function['devices'])}; {', '.join(words) or 'alone'}"
