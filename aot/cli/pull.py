"""`aotc pull REFERENCE -o BUNDLE`: a bundle from an OCI registry or an image layout."""

from __future__ import annotations

from pathlib import Path

import click

from aotc.aot.cli import flags
from aotc.aot.cli.printing import bytes_text, print_json
from aotc.aot.cli.progress import progress_for


@click.command("pull")
@click.argument("reference")
@click.option(
    "-o",
    "--output",
    "out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="BUNDLE",
    help="Folder to write the bundle to.",
)
@click.option("--force", is_flag=True, help="Replace a bundle that is there.")
@flags.digest
@flags.trusted_keys
@flags.revoked
@flags.transfers
@flags.plain_http
@flags.quiet
@flags.as_json
def command(
    reference: str,
    out: Path,
    force: bool,
    digest: str | None,
    keys: tuple[Path, ...],
    revoked: Path | None,
    jobs: int,
    plain_http: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Fetch the bundle at REFERENCE: `registry.example.com/team/model@sha256:…`, with a tag in
    place of the digest, or `oci-layout:PATH:TAG`.

    Digests, and signatures where keys are trusted, are checked before the bundle appears. A pull
    that was interrupted is resumed by the next `aotc pull` to the same place. User and password are
    those that `docker login` stored.
    """
    from aotc.aot.distribution.exchange import pull_bundle
    from aotc.runtime.trust.trust import policy

    asked = policy(keys or None, revoked)
    progress = progress_for(quiet)
    try:
        report = pull_bundle(reference, out, asked, digest, force, jobs, plain_http, progress)
    finally:
        progress.stop()
    if as_json:
        print_json("aotc.pull/1", {name: getattr(report, name) for name in report.__slots__})
        return
    click.echo(f"bundle   {report.path} ({bytes_text(report.nbytes)})")
    click.echo(f"digest   sha256:{report.bundle}")
    click.echo(f"image    {report.digest}")
    click.echo(f"fetched  {bytes_text(report.fetched_bytes)}")
