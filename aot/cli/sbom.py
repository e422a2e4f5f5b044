"""`aotc sbom BUNDLE`: the bundle's bill of materials, as an SPDX document."""

from __future__ import annotations

import json
from pathlib import Path

import click

from aotc.aot.cli import flags
from aotc.aot.cli.output import check_place, write_output
from aotc.aot.distribution.sbom import bill_of_materials


@click.command("sbom")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file to write. Default: stdout.",
)
@flags.digest
def command(bundle: Path, output: Path | None, digest: str | None) -> None:
    """Print a software bill of materials of BUNDLE, as SPDX 2.3 in JSON.

    It names the tools with their versions, the digest of the model's file and native libraries; the
    same bundle gives the same bytes.
    """
    check_place(output, bundle)
    text = json.dumps(bill_of_materials(bundle, digest), indent=2, ensure_ascii=False)
    if output is None:
        click.echo(text)
    else:
        write_output(output, f"{text}\n".encode(), bundle)
