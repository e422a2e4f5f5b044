"""`aotc bench BUNDLE`: how long a call takes, alone or beside torch in the same run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from aotc.aot.build_extra import require_build_extra
from aotc.aot.call_sizes import CallSizes, sizes_beside
from aotc.aot.cli import flags
from aotc.aot.cli.build import refuse_missing_file
from aotc.aot.cli.contest import PERCENTILES, Result, contest
from aotc.aot.cli.explain import error_classes
from aotc.aot.cli.output import check_place, plot, write_plot
from aotc.aot.cli.printing import print_json, print_table, time_text
from aotc.aot.errors import SpecMissing
from aotc.aot.host_array import host_arrays
from aotc.aot.measure.processor import cpu_name
from aotc.runtime.bundle.manifest import Entry
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.drivers.cpu.pool import default_threads
from aotc.runtime.errors import AotcError, EnvironmentFault
from aotc.runtime.extras import golden_of
from aotc.runtime.mismatch import require_target

KINDS = ("eager", "graph", "compile", "max-autotune", "aoti")


@click.command("bench")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("spec", required=False, shell_complete=flags.complete_files)
@click.option("--against", multiple=True, type=click.Choice(KINDS), help="Compare; needs SPEC.")
@click.option(
    "--rounds", default=5, type=flags.COUNT, show_default=True, help="Turns of every contender."
)
@click.option(
    "--seconds", default=0.5, type=flags.SECONDS, show_default=True, help="Length of one turn."
)
@click.option(
    "--fail-if-slower", type=flags.Amount(), metavar="PERCENT", help="Exit 1 if slower by more."
)
@plot
@flags.sizes
@flags.entry
@flags.digest
@flags.imports_elsewhere
@flags.as_json
def command(
    bundle: Path,
    spec: str | None,
    against: Sequence[str],
    rounds: int,
    seconds: float,
    fail_if_slower: float | None,
    plot_file: Path | None,
    sizes: Mapping[str, int],
    entry: str | None,
    digest: str | None,
    imports: Sequence[str],
    as_json: bool,
) -> int:
    """Measure BUNDLE on its golden input; with --against, beside the model that SPEC names.

    Every contender has a process of its own and they take turns. Torch is given its own defaults;
    `graph` is eager torch in a CUDA graph. On a device, times are those of the device, and `host`
    is how long a call keeps the caller; `bound` is a call whose memory is fixed beforehand. `start`
    is the time of loading and of the first call, for torch with its import and the model's.
    """
    check_place(plot_file, bundle)
    if fail_if_slower is not None and not against:
        raise click.UsageError("'--fail-if-slower' needs '--against': nothing else is measured")
    if spec is not None:
        refuse_missing_file(spec)
    with Bundle(bundle, digest) as opened:
        device = require_target(opened.manifest, opened.path)[0].device
        row = opened.manifest.entry(entry)
        at = _sizes(opened, row, sizes, bool(against)) if sizes else None
    if against:
        require_build_extra("aotc bench --against")
        if spec is None:
            raise SpecMissing(command="aotc bench --against")
    ours = ("aotc", "bound") if against and device == "cuda" else ("aotc",)
    results = contest(
        bundle,
        spec,
        (*ours, *against),
        rounds,
        seconds,
        device,
        digest=opened.digest,
        entry=row.name,
        sizes=at,
        imports=imports,
    )
    if results[0].skipped:
        raise _failure(results[0], bundle)
    if plot_file is not None:
        _plot(plot_file, results, f"{bundle.resolve().name}, {row.name}: {device}, {cpu_name()}")
    if as_json:
        record = {"machine": cpu_name(), "cpus": default_threads(), "device": device}
        print_json("aotc.bench/1", {**record, "results": [row.record() for row in results]})
    else:
        _print(results)
    return 1 if fail_if_slower is not None and _is_slower(results, against, fail_if_slower) else 0


def _sizes(opened: Bundle, entry: Entry, sizes: Mapping[str, int], has_peers: bool) -> CallSizes:
    """The call at these sizes, else at those of the golden input."""
    golden = host_arrays(entry.inputs, golden_of(opened, entry.name).inputs)
    found = sizes_beside(entry.signature, opened.manifest.session, golden, sizes)
    if found.session and has_peers:
        names = ", ".join(f"'--size {name}'" for name in found.session)
        raise click.UsageError(f"{names} is of states, and those of SPEC's model are its own")
    return found


def _is_slower(results: Sequence[Result], against: Sequence[str], percent: float) -> bool:
    """Whether the bundle takes more than `percent` longer than one of the peers."""
    own, *others = results
    peers = [row for row in others if row.kind in against and row.times_us]
    return any(own.median_us > row.median_us * (1 + percent / 100) for row in peers)


def _plot(path: Path, results: Sequence[Result], heading: str) -> None:
    """The distribution of each contender's calls, beside that of the others."""
    from aotc.aot.charts.calls import call_pictures

    rows = [(row.kind, row.quantiles_us()) for row in results if row.times_us]
    write_plot(path, f"aotc bench: {heading}", call_pictures(rows))


def _failure(ours: Result, bundle: Path) -> AotcError:
    """What kept the bundle from being measured: the typed error of its process, if it had one."""
    kind = error_classes().get(ours.error["code"]) if ours.error else None
    if ours.error is None or kind is None:
        return EnvironmentFault(action="measure", path=bundle, detail=ours.skipped)
    error: AotcError = kind(**ours.error["fields"])
    return error


def _print(results: Sequence[Result]) -> None:
    ours = results[0]
    has_host = any(row.host_us for row in results)
    percents = tuple(f"p{percent}" for percent in PERCENTILES)
    heads = ("contender", "calls", *percents, "p50 / aotc's", *(["host"] * has_host), "start")
    rows = []
    for row in results:
        if row.times_us and ours.times_us:
            percentiles = (time_text(row.percentile_us(percent) / 1e6) for percent in PERCENTILES)
            ratio = f"{row.median_us / ours.median_us:.2f}"
            host = [time_text(statistics.median(row.host_us) / 1e6)] if row.host_us else []
            start = time_text(row.first_s)
            rows.append((row.kind, len(row.times_us), *percentiles, ratio, *host, start))
    print_table(heads, rows)
    for row in results:
        if row.skipped:
            click.echo(f"{row.kind} was skipped: {row.skipped}")
