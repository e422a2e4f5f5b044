"""`aotc profile BUNDLE`: how long each kernel takes here, and how far it is from the limits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aotc.aot.cli import flags
from aotc.aot.cli.printing import bytes_text, print_json, print_table, time_text
from aotc.aot.errors import FallbackProfileUnsupported
from aotc.aot.measure.processor import cpu_name
from aotc.runtime.bundle.opened import Bundle, read_bundle
from aotc.runtime.errors import GoldenMissing
from aotc.runtime.extras import golden_of
from aotc.runtime.loading import load_open

if TYPE_CHECKING:
    from aotc.aot.profile.report import LaunchRow, Profile
    from aotc.runtime import Program


@click.command("profile")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--device", help="cpu or cuda; else the first target that runs here.")
@click.option("--repetitions", default=20, show_default=True, help="Medians are of so many.")
@click.option("--launches", "each", is_flag=True, help="One line a launch, in their order.")
@click.option("--trace", "trace_file", type=click.Path(path_type=Path), help="Chrome trace.")
@flags.entry
@flags.digest
@flags.imports
@flags.as_json
def command(
    bundle: Path,
    device: str | None,
    repetitions: int,
    each: bool,
    trace_file: Path | None,
    entry: str | None,
    digest: str | None,
    as_json: bool,
) -> None:
    """Time every launch of BUNDLE on its golden input, at the example's sizes where calls decide.

    On a device, `limit` is the share of the measured copy bandwidth or matrix rate, whichever is
    the nearer, that a kernel reaches.
    """
    profile = profile_bundle(bundle, device, repetitions, digest, entry)
    if trace_file is not None:
        from aotc.aot.profile.trace import trace

        trace_file.write_text(json.dumps(trace(profile)))
    if as_json:
        print_json("aotc.profile/1", {"path": str(bundle), **profile.record()})
    else:
        _print(profile, each)


def profile_bundle(
    bundle: Path,
    device: str | None,
    repetitions: int,
    digest: str | None = None,
    entry: str | None = None,
) -> Profile:
    """Load, run and time; raises the errors of `runtime.load`."""
    from aotc.aot.profile import cpu, cuda
    from aotc.aot.profile.report import Profile, rows_of
    from aotc.aot.profile.subject import subject_of

    program, golden, facts = read_bundle(
        bundle, lambda opened: _parts(opened, device, entry), digest
    )
    with closing(program):
        subject = subject_of(program, entry)
        family = program.device.partition(":")[0]
        if family == "cuda" and len(subject.plan.launches) < len(subject.plan.steps):
            raise FallbackProfileUnsupported(path=str(bundle))
        inputs = golden or {spec.name: bytes(spec.nbytes) for spec in subject.inputs}
        measure = cuda.measure if family == "cuda" else cpu.measure
        times_us, call_us = measure(subject, inputs, max(repetitions, 1))
        name, limits = cpu_name(), None
        if family == "cuda":
            from aotc.aot.profile.peaks import measure_limits

            gpu = program._open().executable.gpu
            name, limits = gpu.name, measure_limits(gpu)
        rows = rows_of(subject.plan, times_us, facts)
        return Profile(program.target, name, rows, call_us, limits)


def _parts(
    opened: Bundle, device: str | None, entry: str | None
) -> tuple[Program, dict[str, bytes], Mapping[str, Any]]:
    """The program, its golden input, if it was not deleted, and what the build wrote of it."""
    from aotc.aot.profile.report import facts_of

    golden: dict[str, bytes] = {}
    with suppress(GoldenMissing):
        golden = {name: bytes(data) for name, data in golden_of(opened, entry).inputs.items()}
    program = load_open(opened, device)
    return program, golden, facts_of(opened, program.target)


def _print(profile: Profile, each: bool) -> None:
    groups = [[row] for row in profile.launches] if each else list(profile.by_kernel().values())
    print_table(
        (
            "kernel", "launches", "time", "share", "one", "bytes", "operations", "limit",
            "registers", "shared", "spills",
        ),
        [_line(profile, rows) for rows in groups],
    )  # fmt: skip
    click.echo(
        f"\n{profile.target} on {profile.device}: {len(profile.launches)} launches in "
        f"{time_text(profile.launches_us / 1e6)}, a call takes {time_text(profile.call_us / 1e6)}"
    )
    if profile.limits is not None:
        share = profile.share_of_limit(profile.launches)
        limits = profile.limits
        click.echo(
            f"limits measured: copy {limits.bytes_per_s / 1e12:.2f} TB/s, bf16 products "
            f"{limits.operations_per_s / 1e12:.0f} TFLOP/s"
            + ("" if share is None else f"; the launches reach {share:.0%} of them")
        )


def _line(profile: Profile, rows: Sequence[LaunchRow]) -> tuple[object, ...]:
    first = rows[0]
    time_us = sum(row.time_us for row in rows)
    share = profile.share_of_limit(rows)
    return (
        first.name,
        len(rows),
        time_text(time_us / 1e6),
        f"{time_us / max(profile.launches_us, 1e-9):.1%}",
        time_text(time_us / len(rows) / 1e6),
        "-" if first.nbytes is None else bytes_text(first.nbytes),
        "-" if first.operations is None else f"{first.operations / 1e9:.2f} G",
        "-" if share is None else f"{share:.0%}",
        "-" if first.registers is None else first.registers,
        "-" if first.shared_bytes is None else bytes_text(first.shared_bytes),
        "-" if first.spill_bytes is None else bytes_text(first.spill_bytes),
    )
