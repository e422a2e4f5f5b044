"""`aotc explain [CODE]`: what an error code means, its exit code and the next step."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

import click

from aotc.aot.cli import flags
from aotc.aot.cli.printing import print_json, print_table
from aotc.aot.errors import UnknownCode
from aotc.runtime.errors import ExtensionMissing
from aotc.runtime.extensions import load

# Where errors are defined; a test compares this with the sources. None of them imports torch,
# triton or numpy: errors are explained, and exit codes read, where only the runtime is installed.
MODULES = (
    "aotc.runtime.errors",
    "aotc.runtime.settings",
    "aotc.runtime.drivers.memory",
    "aotc.runtime.drivers.cuda.errors",
    "aotc.runtime.backends.errors",
    "aotc.runtime.bundle.image",
    "aotc.runtime.trust.errors",
    "aotc.aot.errors",
    "aotc.aot.folders",
    "aotc.aot.cli.backends",
    "aotc.aot.project",
    "aotc.aot.distribution.errors",
    "aotc.aot.dynamo.errors",
    "aotc.aot.huggingface.errors",
    "aotc.aot.init.errors",
    "aotc.aot.native.lowering",
    "aotc.aot.pack.staging",
    "aotc.aot.rewrites.user_rewrites",
    "aotc.aot.schedule.schedule",
    "aotc.aot.targets.toolchain",
    "aotc.aot.tasks.errors",
    "aotc.cache.errors",
)


def _complete_codes(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    return [code for code in error_classes() if code.startswith(incomplete)]


@click.command("explain")
@click.argument("code", required=False, shell_complete=_complete_codes)
@flags.as_json
def command(code: str | None, as_json: bool) -> None:
    """Explain what an error CODE means; without a code, list them all."""
    classes = error_classes()
    if code is None:
        rows = [(name, kind.exit_code, _meaning(kind)) for name, kind in classes.items()]
        if as_json:
            print_json("aotc.explain/1", {"codes": [_record(name) for name in classes]})
        else:
            print_table(("code", "exit", "meaning"), rows)
        return
    if code not in classes:
        near = difflib.get_close_matches(code, classes, n=3)
        meant = " or ".join(f"`{each}`" for each in near)
        raise UnknownCode(wanted=code, near=f"did you mean {meant}? " if meant else "")
    if as_json:
        print_json("aotc.explain/1", {"codes": [_record(code)]})
        return
    kind = classes[code]
    click.echo(f"{code} (exit {kind.exit_code})\n\n{inspect.getdoc(kind)}\n")
    click.echo(f"message: {as_printed(kind.template)}")
    if kind.hint:
        click.echo(f"hint:    {as_printed(kind.hint)}")


def error_classes() -> dict[str, Any]:
    """Every error code → its class, sorted by code."""
    found: dict[str, Any] = {}
    for module in MODULES:
        try:
            names = vars(load("aotc explain", module))
        except ExtensionMissing:
            continue
        for name, value in names.items():
            if name[:1].isupper() and hasattr(value, "template"):
                found.setdefault(value.code, value)
    return dict(sorted(found.items()))


def as_printed(template: str) -> str:
    """The template of a message or hint with its doubled braces as an error prints them."""
    return template.replace("{{", "{").replace("}}", "}")


def _meaning(kind: Any) -> str:
    return (inspect.getdoc(kind) or "").splitlines()[0]


def _record(code: str) -> dict[str, object]:
    kind = error_classes()[code]
    return {
        "code": code,
        "exit_code": kind.exit_code,
        "meaning": inspect.getdoc(kind),
        "template": as_printed(kind.template),
        "hint": as_printed(kind.hint),
    }
