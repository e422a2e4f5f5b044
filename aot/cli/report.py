"""`aotc report BUNDLE -o report.html`: all that a bundle's files say, as one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aotc.aot.cli import flags
from aotc.aot.cli.output import check_place, write_output
from aotc.aot.cli.printing import bytes_text, print_json
from aotc.aot.facts.bundle_facts import read_facts, variants
from aotc.aot.facts.measured_file import invalid, read_measured
from aotc.aot.report.report import Measured, report
from aotc.aot.report.steps import is_profile_of
from aotc.runtime.verify import verify

if TYPE_CHECKING:
    from aotc.aot.facts.bundle_facts import BundleFacts

REPETITIONS = 20
READ = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("report")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(path_type=Path),
    default="report.html",
    show_default=True,
    help="The page to write.",
)
@click.option("--measure", "is_measured", is_flag=True, help="Run the bundle here: times, errors.")
@click.option("--device", help="With --measure: cpu, cuda or cuda:1.")
@click.option(
    "--profile",
    "profile_files",
    multiple=True,
    type=READ,
    metavar="FILE.json",
    help="Times that `aotc profile --json` printed; may be given repeatedly, one an entry point.",
)
@click.option(
    "--bench",
    "bench_file",
    type=READ,
    metavar="FILE.json",
    help="Times that `aotc bench --json` printed.",
)
@flags.digest
@flags.imports
@flags.as_json
def command(
    bundle: Path,
    out: Path,
    is_measured: bool,
    device: str | None,
    profile_files: Sequence[Path],
    bench_file: Path | None,
    digest: str | None,
    as_json: bool,
) -> None:
    """Write one HTML page about BUNDLE: graph with fusion groups and source lines, kernels with
    times, roofline and Triton source, memory, weights, golden numbers, provenance.

    The page needs no network. Nothing of the bundle is run unless --measure is given; times are
    then those of the device here, else those of a profile or of tuning, else the cost model's,
    and the page says which.
    """
    if device is not None and not is_measured:
        raise click.UsageError("--device says where to measure: give --measure with it")
    if profile_files and is_measured:
        raise click.UsageError("both --measure and --profile give times: leave one out")
    check_place(out, bundle)
    if device is not None and not is_measured:
        raise click.UsageError("'--device' needs '--measure': nothing is run without it")
    facts = read_facts(bundle, digest)
    profiles = [_profile(path, facts) for path in profile_files]
    bench = read_measured(bench_file, "bench") if bench_file else {}
    golden: list[Mapping[str, Any]] = []
    if is_measured:
        profiles, golden = _measure(bundle, facts, device)
    text = report(facts, Measured(profiles, bench, golden))
    data = text.encode()
    write_output(out, data, bundle)
    nbytes = len(data)
    if as_json:
        print_json("aotc.report/1", {"path": str(out), "bytes": nbytes, "digest": facts.digest})
    else:
        click.echo(f"report   {out} ({bytes_text(nbytes)})")


def _profile(path: Path, facts: BundleFacts) -> dict[str, Any]:
    """A profile of one of the bundle's entries; raises `MeasuredFileInvalid`."""
    record = read_measured(path, "profile")
    if not any(is_profile_of(record, each) for each in variants(facts)):
        found = f"a profile of other launches, target {str(record.get('target'))[:64]}"
        raise invalid(path, found, "a profile of this bundle", "profile")
    return record


def _measure(
    bundle: Path, facts: BundleFacts, device: str | None
) -> tuple[list[dict[str, Any]], list[Mapping[str, Any]]]:
    """Times of the launches of each entry, and the errors of golden numbers."""
    from aotc.aot.cli.profile import profile_bundle
    from aotc.aot.extensions import extension

    extension("aotc profile")
    profiles = [
        profile_bundle(bundle, device, REPETITIONS, facts.digest, entry.name).record()
        for entry in facts.manifest.entries
    ]
    findings = verify(bundle, ("golden",), device, digest=facts.digest)
    return profiles, [finding.as_map() for finding in findings]
