"""`aotc init MODEL`: write a spec, which `aotc build` takes as it is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from aotc.aot.build_extra import require_build_extra
from aotc.aot.cli import flags
from aotc.aot.cli.output import check_new, write_output
from aotc.aot.cli.printing import count_text, print_json
from aotc.aot.init.errors import InitFileMissing, InitOverModel, model_not_understood
from aotc.aot.printable import printable
from aotc.aot.spec_form import is_bundle


@click.command("init")
@click.argument("model", metavar="MODEL", shell_complete=flags.complete_files)
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(path_type=Path),
    default="spec.py",
    show_default=True,
    metavar="FILE.py",
    help="The spec to write.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=DTYPE[SIZES]",
    help="An example input: x=f32[2,64], 'ids=i64[2,16]<30522', scale=0.5; may be repeated.",
)
@click.option(
    "--argument",
    "arguments",
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument of the model's class: width=64; may be repeated.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@flags.as_json
def command(
    model: str,
    out: Path,
    inputs: Sequence[str],
    arguments: Sequence[str],
    force: bool,
    as_json: bool,
) -> None:
    """Write a spec for MODEL that `aotc build` takes as it is.

    MODEL is FILE.py[:NAME] or PACKAGE.MODULE:NAME with a class or instance of torch.nn.Module, or a
    folder with a model of transformers and its config.json; nothing is downloaded. Inputs that are
    not given are found by running the model on arrays of the sizes of its layers. Imports and runs
    the model's code, as `aotc build` does.
    """
    if not Path(model).is_dir() or is_bundle(model):
        _refuse_no_model(model, out)
    if out.suffix != ".py":
        raise click.UsageError(
            f"`{out}` does not end in `.py`, expected a Python file for the spec"
        )
    check_new(out, force)
    require_build_extra("aotc init")
    from aotc.aot.init.init import init

    written = init(model, out, inputs, arguments)
    write_output(out, written.text.encode())
    if as_json:
        record = {"path": str(out), "model": written.model, "parameters": written.parameters}
        found = {"inputs": dict(written.inputs), "notes": list(written.notes)}
        print_json("aotc.init/1", {**record, **found, "text": written.text})
        return
    click.echo(f"spec     {printable(out)}")
    click.echo(f"model    {printable(written.model)}, {count_text(written.parameters)} parameters")
    for name, text in written.inputs.items():
        click.echo(f"input    {name}: {printable(text)}")
    for source in written.sources:
        click.echo(f"sizes    from {printable(source)}")
    for note in written.notes:
        click.echo(f"note     {printable(note)}")
    click.echo(f"next     aotc build {printable(out)} -o BUNDLE")


def _refuse_no_model(text: str, out: Path) -> None:
    """Raise before the seconds that importing torch takes, where no model can be found, or the
    spec would replace it. Comes before what is wrong with `out` alone: a free place for the spec
    of a model that is not there helps nobody, and `--force` must not be the advice for the latter.
    """
    path, _, name = text.partition(":")
    if path.endswith(".py"):
        if not Path(path).is_file():
            raise InitFileMissing(path=path)
        if os.path.exists(out) and os.path.samefile(out, path):  # noqa: PTH110, PTH121  no errors
            raise InitOverModel(path=path)
    elif not name or not all(part.isidentifier() for part in path.split(".")):
        raise model_not_understood(text)
