"""`compile_for`: from a rewritten graph to the launch plan and the machine code of one target."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from aotc.aot import contents
from aotc.aot.ir.graph import Graph
from aotc.aot.lower import KernelSpec, lower
from aotc.aot.options import BuildOptions
from aotc.aot.plan import ChosenKernel, plan
from aotc.aot.schedule import Schedule, schedule
from aotc.aot.stages import Clock
from aotc.aot.targets.families import FAMILIES
from aotc.aot.targets.target import Target
from aotc.aot.targets.workers import Workers
from aotc.aot.tune.choose import Policy, Tuning, tune, with_lines
from aotc.aot.tune.compiling import Counts, Files, prelude
from aotc.aot.tune.job import Job, Measurer, Operand
from aotc.aot.tune.measure import CpuMeasurer
from aotc.aot.tune.record import Line, Place, parse_record, print_record
from aotc.cache import Store
from aotc.runtime.plan import LaunchPlan


@dataclass(frozen=True, slots=True)
class Compiled:
    """Everything of one target between the rewritten graph and the bundle."""

    target: Target
    scheduled: Schedule
    specs: tuple[KernelSpec, ...]  # one a group
    tuning: Tuning
    plan: LaunchPlan
    library: bytes


@dataclass(frozen=True, slots=True)
class Machinery:
    """What compiles: worker processes and the artifact cache with the build's counts."""

    workers: Workers
    store: Store
    counts: Counts


def compile_for(
    target: Target, graph: Graph, options: BuildOptions, machinery: Machinery, clock: Clock
) -> Compiled:
    """The stages from schedule to plan, in order."""
    scheduled = _schedule(graph, target, clock)
    specs = _lower(scheduled, target, clock)
    tuning, beside = _tune(scheduled, specs, target, options, machinery, clock)
    planned, library = _plan(scheduled, specs, tuning, beside, target, clock)
    return Compiled(target, scheduled, specs, tuning, planned, library)


def _schedule(graph: Graph, target: Target, clock: Clock) -> Schedule:
    with clock.stage("schedule"):
        scheduled = schedule(graph, target.traits)
        clock.dump("schedule", str(scheduled))
        clock.detail = f"{len(scheduled.groups)} groups"
    return scheduled


def _lower(scheduled: Schedule, target: Target, clock: Clock) -> tuple[KernelSpec, ...]:
    with clock.stage("lower"):
        specs = lower(scheduled, target.traits)
        clock.dump("lower", contents.specs_text(specs))
        clock.detail = f"{len({spec.digest for spec in specs})} distinct kernels"
    return specs


def _tune(
    scheduled: Schedule,
    specs: tuple[KernelSpec, ...],
    target: Target,
    options: BuildOptions,
    machinery: Machinery,
    clock: Clock,
) -> tuple[Tuning, Files]:
    """The choice and the machine code of each kernel, and what a library holds beside them."""
    workers, store, counts = machinery.workers, machinery.store, machinery.counts
    policy = Policy(
        target=target,
        device=options.device,
        mode=options.tune,
        frozen=options.frozen,
        record=_read_record(options.record),
    )
    compiled, hits = counts.compiled, counts.cache_hits
    with clock.stage("tune"):
        beside = prelude(target.device, workers, store)
        arguments = (workers, store, counts, clock.progress.advance)
        tuning = tune(_jobs(scheduled, specs), policy, *arguments, _measurer(target, beside))
        clock.dump("tune", print_record({line.place: line for line in tuning.lines}))
        clock.detail = (
            f"{counts.compiled - compiled} compiled, {counts.cache_hits - hits} from the cache"
        )
        if options.record is not None and tuning.measured:
            merged = with_lines(policy.record, tuning.lines)
            options.record.write_text(print_record(merged))
    return tuning, beside


def _measurer(target: Target, beside: Files) -> Measurer | None:
    """Who measures kernels of this target here; None where nobody can."""
    return CpuMeasurer(beside["executor.o"]) if target.device == "cpu" else None


def _jobs(scheduled: Schedule, specs: tuple[KernelSpec, ...]) -> list[Job]:
    """Each distinct kernel with the memory of its parameters."""
    counts = Counter(spec.digest for spec in specs)
    jobs = []
    for spec, group in zip(specs, scheduled.groups, strict=True):
        reads = (
            Operand(node.type.nbytes, "weight" if node.op == "constant" else "read")
            for node in group.reads
        )
        stored = (Operand(root.node.type.nbytes, "stored") for root in group.roots)
        jobs.append(Job(spec, (*reads, *stored), counts[spec.digest]))
    return jobs


def _read_record(path: Path | None) -> dict[Place, Line]:
    """The record's lines; none where there is no file yet."""
    if path is None or not path.exists():
        return {}
    return parse_record(path.read_text(), str(path))


def _plan(
    scheduled: Schedule,
    specs: tuple[KernelSpec, ...],
    tuning: Tuning,
    beside: Files,
    target: Target,
    clock: Clock,
) -> tuple[LaunchPlan, bytes]:
    """The launch plan, and the library that holds its kernels."""
    with clock.stage("plan"):
        kernels = [tuning.kernels[spec.digest] for spec in specs]
        family = FAMILIES[target.device]
        library = family.library([kernel.binary for kernel in kernels], beside)
        rows = [
            ChosenKernel(
                kernel.binary.symbol,
                spec.name,
                kernel.candidate.grid,
                library.images.get(kernel.binary.symbol),
                kernel.candidate.scratch,
            )
            for spec, kernel in zip(specs, kernels, strict=True)
        ]
        # On a GPU each image names its own.
        lent = [0 if library.images else kernel.binary.scratch_bytes for kernel in kernels]
        planned = plan(scheduled, rows, max(lent, default=0))
        clock.dump("plan", contents.plan_text(planned))
        clock.detail = f"{len(planned.launches)} launches, {planned.arena_bytes} bytes of arena"
    return planned, library.data
