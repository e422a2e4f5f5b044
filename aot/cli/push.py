"""`aotc push BUNDLE REFERENCE`: a bundle as an OCI image, to a registry or into a layout."""

from __future__ import annotations

from pathlib import Path

import click

from aotc.aot.cli import flags
from aotc.aot.cli.printing import bytes_text, print_json
from aotc.aot.cli.progress import progress_for


@click.command("push")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("reference")
@flags.transfers
@flags.plain_http
@flags.digest
@flags.quiet
@flags.as_json
def command(
    bundle: Path,
    reference: str,
    jobs: int,
    plain_http: bool,
    digest: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Send BUNDLE to REFERENCE: `registry.example.com/team/model:v1`, or, for an image layout on
    disk, `oci-layout:PATH:TAG`.

    Every file is checked against its digest first, and becomes one uncompressed layer. Layers that
    the registry already has are not sent. User and password are those that `docker login` stored.
    """
    from aotc.aot.distribution.exchange import push_bundle

    progress = progress_for(quiet)
    try:
        report = push_bundle(bundle, reference, jobs, plain_http, progress, digest)
    finally:
        progress.stop()
    if as_json:
        print_json("aotc.push/1", {name: getattr(report, name) for name in report.__slots__})
        return
    click.echo(f"image    {report.reference}")
    click.echo(f"digest   sha256:{report.bundle}")
    click.echo(f"sent     {bytes_text(report.sent_bytes)} of {bytes_text(report.nbytes)}")
