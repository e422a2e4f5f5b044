"""`aotc tune BUNDLE -o OUT`: choose a bundle's kernels anew, on the machine that will serve it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aotc.aot.build_extra import require_build_extra
from aotc.aot.cli import flags
from aotc.aot.cli.printing import print_json, time_text
from aotc.aot.cli.progress import progress_for
from aotc.aot.measure.processor import device_name
from aotc.aot.pack.staging import check_free
from aotc.aot.project import cache_folder, cache_layers, setting
from aotc.aot.tasks.errors import TasksWritten

if TYPE_CHECKING:
    from aotc.aot.retune import RetuneReport

NEEDED = ("triton", "numpy")


# What the processes that execute kernel sources gave up → what `aotc tune` prints about them.
RIGHTS = {
    ("network", "writes"): "ran without network, able to write only to folders of their own",
    ("network",): "ran without network; this system cannot restrict where they write",
    ("writes",): "ran with network, able to write only to folders of their own",
    (): "ran with network and with your own permissions",
}


@click.command("tune")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("-o", "--output", "out", type=click.Path(path_type=Path), metavar="OUT",
              help="Bundle to write.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace a bundle that stands at the output path.")
@click.option(
    "--tune",
    type=click.Choice(["quick", "full"]),
    default="quick",
    show_default=True,
    help="Measure some candidates, or all.",
)
@flags.tune_budget
@click.option("--record", type=click.Path(path_type=Path), help="Tuning record, read and written.")
@flags.frozen
@flags.digest
@click.option(
    "--target",
    "only",
    multiple=True,
    metavar="NAME",
    help="Only this target of the bundle's, or those of this device.",
)
@flags.ray
@flags.measure_on
@click.option(
    "--tasks-to",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write what is to be measured for `aotc measure`, and no bundle.",
)
@click.option(
    "--results-from",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Take times from what `aotc measure` has written.",
)
@flags.jobs
@flags.cache_dir
@flags.remote_cache
@flags.quiet
@flags.imports
@flags.as_json
def command(
    bundle: Path,
    out: Path | None,
    digest: str | None,
    quiet: bool,
    as_json: bool,
    only: tuple[str, ...],
    **given: Any,
) -> None:
    """Write BUNDLE at OUT with the kernels that are fastest on this machine, or with `--ray` on the
    devices of a cluster, or with `--tasks-to` and `--results-from` wherever `aotc measure` runs.

    Needs triton here, but neither torch nor the model. Compiling a kernel executes its source in
    BUNDLE as Python code, in processes without network that can write only to folders of their own;
    measuring runs the compiled kernels with your permissions. So tune only bundles that you trust,
    and pin them by --digest. Everything that is run is covered by the bundle's digest.
    """
    _check_usage(out, given)
    if out is None:  # nothing will be written there
        out = given["tasks_to"] / "bundle"
    check_free(str(out), given["force"])
    require_build_extra("aotc tune", NEEDED)
    started_s = time.perf_counter()
    progress = progress_for(quiet)
    try:
        from aotc.aot.options import BuildOptions
        from aotc.aot.retune import retune

        options = BuildOptions(
            cache_folder=cache_folder(given["cache_dir"]),
            cache_layers=cache_layers(given["remote_cache"]),
            device=device_name(),
            tune=given["tune"],
            tune_budget_seconds=given["tune_budget"],
            record=given["record"],
            frozen=setting("AOTC_FROZEN", "1" if given["frozen"] else None),
            force=given["force"],
            jobs=setting("AOTC_JOBS", given["jobs"]) or None,
            ray=given["ray"],
            measure_on=given["measure_on"],
            tasks_to=given["tasks_to"],
            results_from=given["results_from"],
            is_confined=True,
        )
        report = retune(bundle, out, options, progress, digest, only)
    except TasksWritten as written:
        progress.stop()
        if as_json:
            print_json("aotc.tasks/1", dict(written.fields))
        else:
            click.echo(str(written))
        return
    finally:
        progress.stop()
    if as_json:
        print_json("aotc.tune/1", report.record())
    else:
        _print(report, time.perf_counter() - started_s)


def _check_usage(out: Path | None, given: dict[str, Any]) -> None:
    is_by_files = given["tasks_to"] is not None or given["results_from"] is not None
    if out is None and given["tasks_to"] is None:
        raise click.UsageError("missing option '-o' / '--output'")
    if is_by_files and given["ray"] is not None:
        raise click.UsageError("either '--ray' or '--tasks-to' and '--results-from'")
    if given["measure_on"] and given["ray"] is None and not is_by_files:
        raise click.UsageError("'--on' needs '--ray', '--tasks-to' or '--results-from'")
    if is_by_files and not given["measure_on"]:
        raise click.UsageError("'--tasks-to' and '--results-from' need '--on DEVICE'")


def _print(report: RetuneReport, seconds: float) -> None:
    click.echo(f"bundle   {report.path}")
    click.echo(f"digest   sha256:{report.digest}")
    click.echo(f"targets  {', '.join(report.targets)}")
    click.echo(
        f"kernels  {report.kernels}: {report.measured} measured, {report.changed} changed, "
        f"{report.left} left for the budget"
    )
    how = RIGHTS[report.given_up] if report.compiled else "none executed, all code from the cache"
    click.echo(f"sources  {how}")
    click.echo(f"time     {time_text(seconds)}")
