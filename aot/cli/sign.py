"""`aotc sign BUNDLE --key KEY.pem`: add a signature of the bundle's digest."""

from __future__ import annotations

from pathlib import Path

import click

from aotc.aot.cli import flags
from aotc.aot.cli.printing import print_json
from aotc.aot.cli.suggesting import FileThatExists


@click.command("sign")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "--key",
    required=True,
    type=FileThatExists(),
    metavar="KEY.pem",
    help="Ed25519 private key.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the envelope to this file, not into the bundle.",
)
@click.option("--force", is_flag=True, help="Replace an envelope of another bundle.")
@flags.digest
@flags.as_json
def command(
    bundle: Path, key: Path, output: Path | None, force: bool, digest: str | None, as_json: bool
) -> None:
    """Sign BUNDLE's digest: an in-toto statement in a DSSE envelope, `signature.dsse.json`.

    Every file is checked against its digest first. Signing again with another key adds a signature.
    `aotc verify BUNDLE --key KEY.pub.pem` checks it.
    """
    from aotc.aot.distribution.signing import sign

    report = sign(bundle, key, output, force, digest)
    if as_json:
        record = {name: getattr(report, name) for name in report.__slots__}
        print_json("aotc.sign/1", record)
        return
    click.echo(f"signed   {report.path}")
    click.echo(f"digest   sha256:{report.digest}")
    click.echo(f"key      {report.keyid}")
    click.echo(f"holds    {report.signatures} signature{'s' * (report.signatures > 1)}")
