"""`aotc stubs BUNDLE`: a typed module of a bundle's entry points; nothing of it is run."""

from __future__ import annotations

from pathlib import Path

import click

from aotc.aot.cli import flags
from aotc.aot.cli.output import check_new, write_output
from aotc.aot.cli.printing import print_json
from aotc.aot.facts.typed_module import typed_module
from aotc.runtime.bundle.opened import read_bundle


@click.command("stubs")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE.py|FILE.pyi",
    help="The module to write; a .pyi has the types only. Default: stdout.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@flags.digest
@flags.as_json
def command(
    bundle: Path, output: Path | None, force: bool, digest: str | None, as_json: bool
) -> None:
    """Write a Python module in which the entry points of BUNDLE have real signatures.

    Names, and how arguments and results are nested, are those of the model; docstrings say dtypes
    and shapes. Type checkers and editors read the module. Its `load` returns the program.

    \b
    import ranker
    with ranker.load("bundle/") as program:
        scores = program(features)
    """
    if output is not None and output.suffix not in (".py", ".pyi"):
        raise click.UsageError(f"{output} is neither a .py nor a .pyi file")
    if output is not None:
        check_new(output, force)
    is_stub = output is not None and output.suffix == ".pyi"
    text, names = read_bundle(
        bundle,
        lambda opened: (
            typed_module(opened.manifest, Path(bundle).resolve().name, opened.digest, is_stub),
            [entry.name for entry in opened.manifest.entries],
        ),
        digest,
    )
    if output is not None:
        write_output(output, text.encode(), bundle)
    if as_json:
        place = None if output is None else str(output)
        print_json("aotc.stubs/1", {"path": place, "entries": names, "text": text})
    elif output is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"typed    {output}: {', '.join(names)}")
