#!/usr/bin/env python3
"""Writes docs/reference from the tables of the code: commands, settings, errors, ops, Python API.

scripts/reference_pages.py            write the pages
scripts/reference_pages.py --check    fail if one differs
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from aotc.aot.cli.explain import as_printed, error_classes
from aotc.aot.cli.program import COMMANDS, program
from aotc.runtime.record import Record
from aotc.runtime.settings import SETTINGS

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
EXIT_CODES = {
    1: "negative answer: numbers differ, a check fails",
    2: "wrong use: a command, an option, an argument, an input of a call",
    3: "the model or an operation is not supported, or the model's own code raised",
    4: "compiling or tuning failed",
    5: "the bundle does not fit this machine or this runtime",
    6: "integrity: a file is altered, damaged or not signed",
    7: "environment: disk, memory, permission, a device, a package that is not installed",
    70: "a bug in aotc: please report it",
}
SIGNAL_EXIT_CODES = {
    129: "the terminal was closed (SIGHUP)",
    130: "interrupted, by ctrl-c (SIGINT)",
    143: "terminated, as by `kill` and `docker stop` (SIGTERM)",
}


def main() -> int:
    """Write the pages, or with `--check` compare them."""
    wrong = []
    for name, page in PAGES.items():
        path, text = FOLDER / name, page()
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            wrong.append(name)
    if wrong:
        print(f"not current: {', '.join(wrong)}; run scripts/reference_pages.py", file=sys.stderr)
    return int(bool(wrong))


def _page(title: str, source: str, *parts: str) -> str:
    note = f"<!-- Written by scripts/reference_pages.py from {source}. Do not edit. -->"
    return "\n\n".join([f"# {title}", note, *(part.strip("\n") for part in parts if part)]) + "\n"


def _table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    heads = list(heads)
    lines = [[_cell(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, ["---"] * len(heads), *lines])


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def _block(text: str, language: str = "text") -> str:
    return f"```{language}\n{text.rstrip()}\n```"


# --- commands


def commands() -> str:
    """One section a command, one a subcommand, from click's own tables."""
    parts = [
        "Every command has `--help`. Results go to stdout; progress, warnings and errors go to "
        "stderr. With `--json` a command prints one object on stdout, for errors too. A name in "
        "square brackets is the [setting](settings.md) that does the same.",
        _table(
            ("command", "what it does"),
            ((f"[`aotc {name}`](#aotc-{name})", line) for name, (_, line) in COMMANDS.items()),
        ),
        "## Exit codes",
        _table(
            ("exit", "what it means"),
            [(0, "done"), *EXIT_CODES.items(), *SIGNAL_EXIT_CODES.items()],
        ),
        "A command that a signal ends prints one line, ends its processes and deletes its "
        "temporary files. What it was writing is there whole or not at all; kernels that were "
        "compiled are in the cache.",
    ]
    context = click.Context(program, info_name="aotc")
    for name in COMMANDS:
        command = program.get_command(context, name)
        assert command is not None
        parts += _command(command, f"aotc {name}", context)
    return _page("Commands", "the commands in aot/cli", *parts)


def _command(command: click.Command, name: str, above: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name.rpartition(" ")[2], parent=above)
    yield f"{'#' * (name.count(' ') + 1)} {name}"
    yield _block(f"{name} {' '.join(command.collect_usage_pieces(context))}")
    yield from _paragraphs(command.help or "")
    rows = [_option(each, context) for each in command.params if isinstance(each, click.Option)]
    if rows:
        yield _table(("option", "meaning"), rows)
    yield from _paragraphs(command.epilog or "")
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None and not found.hidden:
                yield from _command(found, f"{name} {each}", context)


def _paragraphs(text: str) -> Iterator[str]:
    """Click's help as Markdown: a paragraph that is marked `\\b` keeps its lines."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if paragraph.lstrip().startswith("\b"):
            yield _block(textwrap.dedent(paragraph.replace("\b\n", "").replace("\b", "")))
        elif paragraph.strip():
            yield paragraph.replace("<", "\\<")


def _option(option: click.Option, context: click.Context) -> tuple[str, str]:
    names = ", ".join(option.opts)
    if option.secondary_opts:
        names += " / " + ", ".join(option.secondary_opts)
    if not option.is_flag and not option.count:
        names += f" {option.make_metavar(context)}"
    notes = ["Required."] if option.required else []
    default = option.default
    if option.show_default and default is not None:
        shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
        notes.append(f"Default: `{shown}`.")
    text = option.help or ("Where the result is written." if option.name == "out" else "")
    return f"`{names}`", " ".join([text, *notes]).strip()


# --- settings


def settings() -> str:
    """The table of settings."""
    own = [row for row in SETTINGS.values() if row.name.startswith("AOTC_")]
    others = [row for row in SETTINGS.values() if not row.name.startswith("AOTC_")]
    heads = ("variable", "in `[tool.aotc]`", "default", "values", "meaning")
    return _page(
        "Settings",
        "runtime/settings.py",
        "A setting is taken from the first of these that has it: the flag of the command line, "
        "the environment variable, the table `[tool.aotc]` of the `pyproject.toml` in or above the "
        "current folder, the default. An empty variable counts as not set. `runtime.load` has no "
        "flags and reads no `pyproject.toml`. `aotc doctor` prints every value and its origin.",
        _table(heads, (_setting(row) for row in own)),
        "Secrets are read from variables and files only, never from `pyproject.toml`.",
        "## Variables of other programs that aotc reads",
        _table(
            ("variable", "values", "meaning"),
            ((f"`{row.name}`", row.expected, row.meaning) for row in others),
        ),
    )


def _setting(row: Any) -> tuple[str, ...]:
    default = {False: "0", True: "1", (): "", None: "", "": ""}.get(row.default, row.default)
    if row.kind == "size":
        default = f"{row.default >> 30}GiB"
    key = "" if row.kind == "secret" else f"`{row.key}`"
    return (
        f"`{row.name}`",
        key,
        f"`{default}`" if default != "" else "",
        row.expected,
        row.meaning,
    )


# --- errors


def errors() -> str:
    """Every error, by exit code and then by its own code: meaning, message, remedy."""
    classes = error_classes()
    parts = [
        "Every error has a code and a message, and most have a hint with the next step. The "
        "command line prints the message and the hint, and ends with the exit code. With `--json` "
        'it also prints an object `{"schema": "aotc.error/1", "code": …}`. In Python the error is '
        "an `aotc.runtime.AotcError` with `code`, `exit_code`, `message`, `hint_text`, and its "
        "fields as attributes. `aotc explain CODE` prints the section of one code.",
        "Words in braces are filled in when the error is raised. To find a message on this page, "
        "search for its fixed words. [Troubleshooting](../troubleshooting.md) has the errors that "
        "are met most often.",
        "## By exit code",
        _table(
            ("exit", "what it means", "errors"),
            (
                (code, meaning, sum(kind.exit_code == code for kind in classes.values()))
                for code, meaning in EXIT_CODES.items()
            ),
        ),
    ]
    for exit_code, meaning in EXIT_CODES.items():
        found = {code: kind for code, kind in classes.items() if kind.exit_code == exit_code}
        if found:
            parts.append(f"## Exit {exit_code}: {meaning.partition(':')[0]}")
        for code, kind in found.items():
            parts += [f"### `{code}`", _escaped(inspect.getdoc(kind) or "")]
            hint = f"\nhint: {kind.hint}" if kind.hint else ""
            parts.append(_block(as_printed(f"{kind.template}{hint}")))
    return _page("Errors", "the error classes", *parts)


def _escaped(text: str) -> str:
    """Prose of a docstring as Markdown: what stands outside of backticks is not read as HTML."""
    pieces = re.split(r"(`[^`]*`)", text)
    escaped = (
        each if each.startswith("`") else re.sub(r"([<*])", r"\\\1", each) for each in pieces
    )
    return "".join(escaped)


# --- ops


def ops() -> str:
    """ATen ops that are imported, those that are refused with the reason, and the graph's ops."""
    from aotc.aot.capture.imports.table import REFUSED
    from aotc.aot.ir.ops import OPS

    refused = {name for names in REFUSED.values() for name in names}
    parts = [
        "torch.export turns a model into ATen ops, and many of these into others by torch's own "
        "decompositions. The import table has a row for each of the following. An op that is not "
        "here and that torch does not decompose raises `ops-unsupported`, with the line of the "
        "model. Which arguments and element types compile is measured with torch's own samples: "
        "[coverage.md](../coverage.md).",
        "## ATen ops that are imported",
        _imported(refused),
        "## ATen ops that are refused",
        "Random functions, complex numbers and Fourier transforms are rewritten before the import "
        "wherever [random.md](../random.md) says so. An op of this table is refused where it is "
        "still there after that.",
        _table(("reason", "ops"), ((why, _names(names)) for why, names in REFUSED.items())),
        "## Ops of the graph",
        "What the imported ops become, and what `aot.ops` offers to "
        "[rewrites of your own](../rewrites.md). `aotc build --debug` prints graphs of them.",
        _table(
            ("op", "kind", "operands", "attributes", "Triton"),
            (
                (
                    f"`{row.name}`", row.kind,
                    f"{row.fewest} or more" if row.operands is None else row.operands,
                    ", ".join(f"`{each}`" for each in row.attributes),
                    f"`{row.triton}`" if row.triton else "",
                )
                for row in OPS.values()
            ),
        ),
    ]  # fmt: skip
    return _page("Ops", "aot/capture/imports and aot/ir/ops.py", *parts)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _imported(refused: set[str]) -> str:
    table = importlib.import_module("aotc.aot.capture.imports.table")
    rows = []
    for subject, value in sorted(vars(table).items()):
        if inspect.ismodule(value) and hasattr(value, "ROWS"):
            names = sorted(set(value.ROWS) - refused)
            rows.append((subject.replace("_", " "), _names(names)))
    return _table(("subject", "ops"), rows)


# --- Python API


def python_api() -> str:
    """Public names with their signatures and docstrings."""
    import aotc.aot as aot
    import aotc.aot.huggingface as huggingface
    import aotc.kernels as kernels
    import aotc.runtime as runtime

    compiler = [*aot._PUBLIC, "native_op"]
    parts = [
        "Where only the runtime is used, `import runtime` and `from aotc import runtime` give the "
        "same module.",
        *_module(runtime, "aotc.runtime", sorted(runtime.__all__, key=_order)),
        *_module(aot, "aotc.aot", compiler),
        *_module(huggingface, "aotc.aot.huggingface", list(huggingface.__all__)),
        *_module(kernels, "aotc.kernels", list(kernels.__all__)),
    ]
    return _page("Python API", "signatures and docstrings", *parts)


MADE_BY_CALLS = ("Program", "Session", "Bound", "Mismatch", "TensorSpec", "Patch")
FIRST = ("load", "Program", "Session", "Bound", "check", "manual_seed", "get_backend")


def _order(name: str) -> tuple[int, str]:
    return (FIRST.index(name) if name in FIRST else len(FIRST), name)


def _module(module: Any, name: str, public: list[str]) -> Iterator[str]:
    yield f"## {name}"
    yield _prose(inspect.getdoc(module) or "")
    for each in public:
        yield from _object(getattr(module, each), each)


def _object(value: Any, name: str) -> Iterator[str]:
    if inspect.isclass(value):
        yield f"### class {name}"
        yield from _construction(value, name)
        yield _prose(inspect.getdoc(value) or "")
        if issubclass(value, BaseException):
            return
        for member, found in _members(value):
            is_property = isinstance(found, property)
            function = found.fget if is_property else getattr(found, "__func__", found)
            yield f"#### {name}.{member}"
            if not is_property:
                yield from _signature(function, member)
            yield _prose(inspect.getdoc(function) or "")
    elif inspect.isfunction(value):
        yield f"### {name}"
        yield from _signature(value, name)
        yield _prose(inspect.getdoc(value) or "")
    else:
        yield f"### {name}"
        yield _prose(inspect.getdoc(type(value)) or "")


def _construction(kind: type, name: str) -> Iterator[str]:
    """How one is made, or for a record its fields; nothing of what other calls return."""
    if issubclass(kind, BaseException) or name in MADE_BY_CALLS:
        return
    if dataclasses.is_dataclass(kind) or issubclass(kind, Record):
        yield _block("\n".join([f"{name}(", *_fields(kind), ")"]), "python")
    elif "__init__" in vars(kind):
        yield from _signature(vars(kind)["__init__"], name)


def _fields(kind: type) -> Iterator[str]:
    for name, annotation in inspect.get_annotations(kind).items():
        default = getattr(kind, "__dataclass_fields__", {}).get(name)
        is_given = default is not None and default.default is not dataclasses.MISSING
        yield f"    {name}: {annotation}{f' = {default.default!r}' if is_given else ''},"


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of a class and of its bases in aotc, in their order."""
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        if each is not Record and each.__module__.startswith(("aotc", "runtime")):
            found |= vars(each)
    for name, value in found.items():
        is_public = not name.startswith("_") or name == "__call__"
        is_method = inspect.isfunction(value) or isinstance(
            value, (property, classmethod, staticmethod)
        )
        if is_public and is_method:
            yield name, value


def _signature(function: Callable[..., Any], name: str) -> Iterator[str]:
    """The `def` as it is written, without its body."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError):
        return
    found = tree.body[0]
    if not isinstance(found, ast.FunctionDef):
        return
    arguments = found.args
    arguments.args = [each for each in arguments.args if each.arg not in ("self", "cls")]
    parameters = [each.strip() for each in _parameters(arguments)]
    result = f" -> {ast.unparse(found.returns)}" if found.returns is not None else ""
    line = f"{name}({', '.join(parameters)}){'' if name[:1].isupper() else result}"
    if len(line) > 88:
        line = f"{name}(\n" + "".join(f"    {each},\n" for each in parameters) + f"){result}"
    yield _block(line, "python")


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    """Each parameter with its annotation and default."""
    given = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(given) - len(arguments.defaults)) + list(arguments.defaults)
    for at, (parameter, default) in enumerate(zip(given, defaults, strict=True), 1):
        yield _parameter(parameter, default)
        if at == len(arguments.posonlyargs):
            yield "/"
    if arguments.vararg is not None:
        yield f"*{ast.unparse(arguments.vararg)}"
    elif arguments.kwonlyargs:
        yield "*"
    for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(parameter, default)
    if arguments.kwarg is not None:
        yield f"**{ast.unparse(arguments.kwarg)}"


def _parameter(parameter: ast.arg, default: ast.expr | None) -> str:
    text = ast.unparse(parameter)
    if default is None:
        return text
    return f"{text}{' = ' if parameter.annotation else '='}{ast.unparse(default)}"


def _prose(text: str) -> str:
    """A docstring as Markdown: indented lines are code, lines that begin with a name a list."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.splitlines()
        code = next((at for at, line in enumerate(lines) if line.startswith("    ")), len(lines))
        written = _escaped("\n".join(lines[:code]))
        if re.match(ARGUMENT, written):
            written = re.sub(ARGUMENT, lambda found: f"- `{found[1]}`: ", written, flags=re.M)
            written = re.sub(r"\n(?!- )", "\n  ", written)
        parts.append(written)
        if lines[code:]:
            parts.append(_block(textwrap.dedent("\n".join(lines[code:])), "python"))
    return "\n\n".join(part for part in parts if part)


ARGUMENT = r"^`?([a-z_]+)`?: "
PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands,
    "settings.md": settings,
    "errors.md": errors,
    "ops.md": ops,
    "python-api.md": python_api,
}

if __name__ == "__main__":
    sys.exit(main())
