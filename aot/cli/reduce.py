"""`aotc reduce SPEC -o OUT.py`: the smallest part of a model that still fails to build."""

from __future__ import annotations

from pathlib import Path

import click

from aotc.aot.build_extra import require_build_extra
from aotc.aot.cli import flags
from aotc.aot.cli.build import refuse_missing_file, refuse_unknown_targets
from aotc.aot.cli.printing import print_json
from aotc.aot.project import cache_folder, cache_layers, setting


@click.command("reduce")
@click.argument("spec", shell_complete=flags.complete_files)
@click.option(
    "-o",
    "--output",
    "out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="Spec file to write.",
)
@flags.targets
@click.option(
    "--tries",
    default=200,
    type=flags.COUNT,
    show_default=True,
    help="Build at most this many parts.",
)
@click.option("--force", is_flag=True, help="Replace a file that stands at the output path.")
@flags.cache_dir
@flags.quiet
@flags.as_json
def command(
    spec: str,
    out: Path,
    targets: tuple[str, ...],
    tries: int,
    force: bool,
    cache_dir: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Find the smallest part of the model in SPEC that fails to build as the whole does.

    A part that builds but gives other numbers than torch counts as failing too. The
    smallest part is written to OUT as a spec, with the model's weights beside it as .pt unless
    random ones fail too. Exit 0 when something was found, 2 when the model builds and agrees.
    """
    refuse_missing_file(spec)
    require_build_extra("aotc reduce")
    refuse_unknown_targets(targets)
    from aotc.aot.options import BuildOptions
    from aotc.aot.reduce.reduce import reduce

    options = BuildOptions(
        cache_folder=cache_folder(cache_dir),
        cache_layers=cache_layers(),
        force=force,
        jobs=setting("AOTC_JOBS") or None,
        skip=frozenset(setting("AOTC_SKIP")),
    )
    report = reduce(spec, out, targets, options, tries, _silent if quiet else _show)
    if as_json:
        print_json("aotc.reduce/1", report.as_map())
        return
    click.echo(f"reduced  {report.operations} of {report.total} operations, {report.path}")
    click.echo(f"fails    {report.failure.code}: {report.failure.message}")
    values = (
        "stored beside it as .pt" if report.has_values else "random ones fail too, none are stored"
    )
    click.echo(f"values   {values}")
    click.echo(f"builds   {report.builds}")


def _silent(tried: int, left: int) -> None:
    pass


def _show(tried: int, left: int) -> None:
    click.echo(f"parts built: {tried}, operations left: {left}", err=True)
