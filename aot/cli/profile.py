"""`aotc profile BUNDLE`: how long each kernel takes here, and how far it is from the limits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aotc.aot.call_sizes import resized
from aotc.aot.cli import flags
from aotc.aot.cli.output import check_place, plot, write_output, write_plot
from aotc.aot.cli.printing import bytes_text, count_text, print_json, print_table, time_text
from aotc.aot.errors import FallbackProfileUnsupported
from aotc.aot.host_array import host_arrays
from aotc.aot.measure.processor import cpu_name
from aotc.runtime.bundle.manifest import find_entry
from aotc.runtime.bundle.opened import Bundle, read_bundle
from aotc.runtime.bundle.signature import NO_SIZES
from aotc.runtime.errors import GoldenMissing
from aotc.runtime.extras import golden_of
from aotc.runtime.loading import load_open

if TYPE_CHECKING:
    from aotc.aot.profile.report import LaunchRow, Profile
    from aotc.runtime import Program

UNKNOWN = "-"
HEADS = (
    "kernel", "launches", "time", "share", "each", "bytes", "operations", "limit", "registers",
    "shared", "spills", "occupancy",
)  # fmt: skip


@click.command("profile")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--device", help="cpu or cuda; else the first target that runs here.")
@click.option(
    "--repetitions",
    default=20,
    type=flags.COUNT,
    show_default=True,
    help="Take medians of this many runs.",
)
@click.option("--launches", "each", is_flag=True, help="Print one line for each launch, in order.")
@plot
@click.option(
    "--trace",
    "trace_file",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="Write a timeline for ui.perfetto.dev.",
)
@flags.sizes
@flags.entry
@flags.digest
@flags.imports
@flags.as_json
def command(
    bundle: Path,
    device: str | None,
    repetitions: int,
    each: bool,
    plot_file: Path | None,
    trace_file: Path | None,
    sizes: Mapping[str, int],
    entry: str | None,
    digest: str | None,
    as_json: bool,
) -> None:
    """Time every launch of BUNDLE on its golden input.

    `share` is of the time of all launches, `each` the time of one. `limit` is the share of the
    measured copy bandwidth or rate of products, whichever is nearer, that a kernel reaches.
    Products of f32 on a GPU have the part of that rate which their precision leaves them; on a CPU
    it is >100% where operands come from caches. `occupancy` is the share of a multiprocessor's
    threads that fit at once with their registers and shared memory. What is not known has no
    column; bytes and operations are known of the example's sizes alone. Below the table stand the
    kernels that take more than 3% of the launches' time and reach less than 25% of their limit,
    with the time they would take at the limit.
    """
    for path in (plot_file, trace_file):
        check_place(path, bundle)
    profile = profile_bundle(bundle, device, repetitions, digest, entry, sizes)
    name = f"{bundle.resolve().name}, {profile.entry}"
    if trace_file is not None:
        from aotc.aot.profile.trace import trace

        text = json.dumps(trace(profile, name), ensure_ascii=False, allow_nan=False)
        write_output(trace_file, text.encode())
    if plot_file is not None:
        from aotc.aot.profile.plot import profile_pictures

        heading = f"aotc profile: {name}, {profile.target} on {profile.device}"
        figures = _figures(bundle, profile.target, digest)
        write_plot(plot_file, heading, profile_pictures(profile, figures))
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
    sizes: Mapping[str, int] = NO_SIZES,
) -> Profile:
    """Load, run and time, at the sizes that are given by name, else at the example's; raises the
    errors of `runtime.load`, and those of `subject_of`."""
    from aotc.aot.profile import cpu, cpu_limits, cuda, peaks
    from aotc.aot.profile.occupancy import Multiprocessor
    from aotc.aot.profile.report import Profile, rows_of
    from aotc.aot.profile.subject import subject_of

    program, golden, facts, needs = read_bundle(
        bundle, lambda opened: _parts(opened, device, entry), digest
    )
    with closing(program):
        subject = subject_of(program, entry, sizes)
        family = program.device.partition(":")[0]
        if family == "cuda" and len(subject.plan.launches) < len(subject.plan.steps):
            raise FallbackProfileUnsupported(path=str(bundle))
        called = find_entry(program.manifest.entries, entry)
        examples = host_arrays(called.inputs, golden) if golden else {}
        inputs = {
            spec.name: resized(examples[spec.name], spec.shape).data
            if golden
            else bytes(spec.nbytes)
            for spec in subject.inputs
        }
        measure = cuda.measure if family == "cuda" else cpu.measure
        times_us, call_us, host_us = measure(subject, inputs, max(repetitions, 1))
        if family != "cuda":
            threads = subject.executable.threads
            name, limits = cpu_name(), cpu_limits.measure_limits(needs, threads)
            multiprocessor = None
        else:
            gpu = program._open().executable.gpu
            name, limits = gpu.name, peaks.measure_limits(gpu)
            multiprocessor = Multiprocessor.of(gpu)
        known = {**facts, "groups": []} if sizes else facts
        rows = rows_of(subject.plan, times_us, known, multiprocessor)
        return Profile(program.target, name, rows, call_us, limits, host_us, called.name)


def _figures(bundle: Path, target: str, digest: str | None) -> tuple[float, float] | None:
    """Bytes and operations a second by the cost model's figures, as the bundle's graphs have
    them; None where they were deleted."""
    from aotc.aot.facts.graph_file import read_graphs

    graphs = read_bundle(bundle, read_graphs, digest)
    found = graphs.target(target) if graphs is not None else None
    if found is None or not found.byte_fs or not found.operation_fs:
        return None
    return 1e15 / found.byte_fs, 1e15 / found.operation_fs


def _parts(
    opened: Bundle, device: str | None, entry: str | None
) -> tuple[Program, Mapping[str, bytes | memoryview], Mapping[str, Any], Sequence[str]]:
    """The program, its golden input, if it was not deleted, what the build wrote of it, and what
    its target needs."""
    from aotc.aot.profile.report import facts_of, product_rates

    golden: Mapping[str, bytes | memoryview] = {}
    with suppress(GoldenMissing):
        golden = golden_of(opened, entry).inputs
    program = load_open(opened, device)
    needs = next(row.needs for row in opened.manifest.targets if row.name == program.target)
    facts = dict(facts_of(opened, program.target))
    facts["product_rates"] = product_rates(facts)
    facts["groups"] = _groups(opened, program.target, entry) or facts.get("groups", [])
    return program, golden, facts, needs


def _groups(opened: Bundle, target: str, entry: str | None) -> list[dict[str, int]]:
    """Bytes and operations of each launch of an entry at the example's sizes; empty where the
    bundle's graphs were deleted."""
    from aotc.aot.facts.graph_file import read_graphs

    graphs = read_graphs(opened)
    found = graphs.target(target) if graphs is not None else None
    entries = opened.manifest.entries
    number = entries.index(find_entry(entries, entry))
    rows = [] if found is None else [row for row in found.variants if row.entry == number]
    groups = rows[0].groups if rows else ()
    return [
        {"bytes": group.bytes, "arithmetic": group.operations}
        for group in groups
        if group.kind not in ("torch", "control")
    ]


def _print(profile: Profile, each: bool) -> None:
    groups = [[row] for row in profile.launches] if each else list(profile.by_kernel().values())
    lines = [_line(profile, rows) for rows in groups]
    known = [head for head in HEADS if any(line[head] != UNKNOWN for line in lines)]
    print_table(known, [[line[head] for head in known] for line in lines])
    click.echo(
        f"\n{profile.target} on {profile.device}: {len(profile.launches)} launches in "
        f"{time_text(profile.launches_us / 1e6)}, a call takes {time_text(profile.call_us / 1e6)}"
    )
    if profile.limits is not None:
        share = profile.share_of_limit(profile.launches)
        limits = profile.limits
        click.echo(
            f"limits measured: copy {bytes_text(round(limits.bytes_per_s))}/s, {limits.products} "
            f"{count_text(limits.operations_per_s)}FLOP/s"
            + ("" if share is None else f"; the launches reach {_share_text(share)} of them")
        )
    for row in profile.slow_kernels():
        times = "once" if row.launches == 1 else f"{row.launches} times"
        click.echo(
            f"slow: {row.name}, launched {times}, takes {time_text(row.time_us / 1e6)}, "
            f"{row.share_of_call:.0%} of the launches, and reaches "
            f"{_share_text(row.time_us and row.limit_us / row.time_us)} of its limit; "
            f"at the limit {time_text(row.limit_us / 1e6)}"
        )


def _share_text(share: float) -> str:
    """A share of a limit; operands in a cache come faster than the limit of memory says."""
    return f"{share:.0%}" if share <= 1 else ">100%"


def _line(profile: Profile, rows: Sequence[LaunchRow]) -> dict[str, object]:
    """A line of the table: by its heads, `-` for what is not known."""
    first = rows[0]
    time_us = sum(row.time_us for row in rows)
    share = profile.share_of_limit(rows)
    cells = (
        first.name,
        len(rows),
        time_text(time_us / 1e6),
        f"{time_us / max(profile.launches_us, 1e-9):.1%}",
        time_text(time_us / len(rows) / 1e6),
        UNKNOWN if first.nbytes is None else bytes_text(first.nbytes),
        UNKNOWN if first.operations is None else count_text(first.operations),
        UNKNOWN if share is None else _share_text(share),
        UNKNOWN if first.registers is None else first.registers,
        UNKNOWN if first.shared_bytes is None else bytes_text(first.shared_bytes),
        UNKNOWN if first.spill_bytes is None else bytes_text(first.spill_bytes),
        UNKNOWN if first.occupancy is None else f"{first.occupancy:.0%}",
    )
    return dict(zip(HEADS, cells, strict=True))
