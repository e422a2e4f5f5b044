"""`aotc bench BUNDLE`: how long a call takes, alone or beside torch in the same run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from aotc.aot.cli.build import require_build_extra
from aotc.aot.cli.contest import PERCENTILES, Result, contest
from aotc.aot.cli.machine import cpu_name, usable_cpus
from aotc.aot.cli.printing import print_json, print_table, time_text
from aotc.aot.errors import SpecMissing
from aotc.runtime.check import read_manifest
from aotc.runtime.directory import Directory

KINDS = ("eager", "compile", "aoti")


@click.command("bench")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("spec", required=False)
@click.option("--against", multiple=True, type=click.Choice(KINDS), help="Compare; needs SPEC.")
@click.option("--rounds", default=5, show_default=True, help="Turns of every contender.")
@click.option("--seconds", default=0.5, show_default=True, help="Length of one turn.")
@click.option("--fail-if-slower", type=float, metavar="PERCENT", help="Exit 1 if slower by more.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    bundle: Path,
    spec: str | None,
    against: Sequence[str],
    rounds: int,
    seconds: float,
    fail_if_slower: float | None,
    as_json: bool,
) -> int:
    """Measure BUNDLE on its golden input; with --against, beside the model that SPEC names.

    Every contender has a process of its own and they take turns. Torch is given its own defaults.
    """
    with Directory(str(bundle)) as directory:
        read_manifest(directory)
    if against:
        require_build_extra("aotc bench --against")
        if spec is None:
            raise SpecMissing(command="aotc bench --against")
    results = contest(bundle, spec, ("aotc", *against), rounds, seconds)
    if as_json:
        record = {"machine": cpu_name(), "cpus": usable_cpus()}
        print_json("aotc.bench/1", {**record, "results": [row.record() for row in results]})
    else:
        _print(results)
    limit = 1 + (fail_if_slower or 0) / 100
    ours, *others = results
    is_slower = any(ours.median_us > row.median_us * limit for row in others if row.times_us)
    return 1 if fail_if_slower is not None and is_slower else 0


def _print(results: Sequence[Result]) -> None:
    ours = results[0]
    heads = ("contender", "calls", *(f"p{percent}" for percent in PERCENTILES), "of ours", "first")
    rows = []
    for row in results:
        if row.times_us:
            percentiles = (time_text(row.percentile_us(percent) / 1e6) for percent in PERCENTILES)
            ratio = f"{row.median_us / ours.median_us:.2f}"
            rows.append((row.kind, len(row.times_us), *percentiles, ratio, time_text(row.first_s)))
    print_table(heads, rows)
    for row in results:
        if row.skipped:
            click.echo(f"{row.kind} was skipped: {row.skipped}")
