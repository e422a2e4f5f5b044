"""`aotc warm SPEC… --cache DIR`: fill a cache with kernels, in an image build without a device."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aotc.aot.build_extra import require_build_extra
from aotc.aot.cli import flags
from aotc.aot.cli.build import (
    refuse_missing_file,
    refuse_unknown_targets,
)
from aotc.aot.cli.printing import print_json, time_text
from aotc.aot.cli.progress import progress_for
from aotc.aot.project import cache_folder, cache_layers, setting

if TYPE_CHECKING:
    from aotc.aot.warm import WarmReport

# Options of a build that decide which kernels it has.
OF_PROGRAMS = (
    "quantize", "fallback", "round_intermediates", "unchecked_indices", "ranks", "adapters",
)  # fmt: skip


@click.command("warm")
@flags.specs
@flags.targets
@flags.cache_dir
@flags.remote_cache
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    help="Tuning record, whose choices are compiled too.",
)
@click.option(
    "--tune",
    type=click.Choice(["off", "quick", "full"]),
    default="off",
    show_default=True,
    help="Compile the candidates too that tuning in this mode measures.",
)
@flags.quantize
@flags.fallback
@flags.round_intermediates
@flags.unchecked_indices
@flags.ranks
@flags.adapters
@flags.rewrites
@click.option("--shared", is_flag=True, help="Let other users read the cache, as in an image.")
@flags.ray
@flags.jobs
@flags.quiet
@flags.as_json
def command(
    specs: tuple[str, ...], targets: tuple[str, ...], quiet: bool, as_json: bool, **given: Any
) -> None:
    """Compile the kernels of every SPEC for every target into a cache, and write nothing else.

    A later `aotc build` with this cache and the same options compiles nothing, even if it can only
    read the cache. SPEC is what `aotc build` takes.
    """
    for spec in specs:
        refuse_missing_file(spec)
    require_build_extra("aotc warm")
    refuse_unknown_targets(targets)
    from aotc.aot.options import BuildOptions
    from aotc.aot.rewrites.user_rewrites import rewrites_of
    from aotc.aot.warm import warm

    options = BuildOptions(
        cache_folder=cache_folder(given["cache_dir"]),
        cache_layers=cache_layers(given["remote_cache"]),
        record=given["record"],
        tune=given["tune"],
        jobs=setting("AOTC_JOBS", given["jobs"]) or None,
        skip=frozenset(setting("AOTC_SKIP")),
        rewrites=rewrites_of(given["rewrites"]),
        ray=given["ray"],
        **{name: given[name] for name in OF_PROGRAMS},
    )
    progress = progress_for(quiet)
    try:
        report = warm(specs, targets, options, progress, given["shared"])
    finally:
        progress.stop()
    if as_json:
        print_json("aotc.warm/1", report.record())
    else:
        _print(report, len(specs))


def _print(report: WarmReport, models: int) -> None:
    kernels: Counter[str] = Counter()
    for row in report.rows:
        kernels[row.target] += row.candidates
    for target, count in kernels.items():
        click.echo(f"target   {target}: {count} kernels, {models} models")
    click.echo(f"cache    {report.cache}")
    click.echo(f"kernels  {report.compiled} compiled, {report.cache_hits} from the cache")
    click.echo(f"time     {time_text(report.seconds)}")
