"""`compile_for`: from a rewritten graph to the launch plan and the machine code of one target."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aotc.aot import contents
from aotc.aot.ir.graph import Graph
from aotc.aot.lower import KernelSpec, lower
from aotc.aot.options import BuildOptions
from aotc.aot.plan import ChosenKernel, Wiring, plan_wired, wire
from aotc.aot.schedule import Schedule, schedule
from aotc.aot.stages import Clock
from aotc.aot.targets.families import FAMILIES
from aotc.aot.targets.target import Target
from aotc.aot.targets.workers import Workers
from aotc.aot.tune.choose import Policy, Tuning, tune, with_lines
from aotc.aot.tune.compiling import Counts, Files, prelude
from aotc.aot.tune.job import Job, Operand
from aotc.aot.tune.measurers import device_here, measurer_for
from aotc.aot.tune.record import Line, Place, parse_record, print_record
from aotc.cache import Store
from aotc.runtime.plan import LaunchPlan


@dataclass(frozen=True, slots=True)
class Compiled:
    """Everything of one target between the rewritten graph and the bundle."""

    target: Target
    scheduled: Schedule
    specs: tuple[KernelSpec, ...]  # one a group
    wiring: Wiring
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
    wiring = wire(scheduled)
    tuning, planned, library = tune_and_plan(target, specs, wiring, options, machinery, clock)
    return Compiled(target, scheduled, specs, wiring, tuning, planned, library)


def tune_and_plan(
    target: Target,
    specs: tuple[KernelSpec, ...],
    wiring: Wiring,
    options: BuildOptions,
    machinery: Machinery,
    clock: Clock,
) -> tuple[Tuning, LaunchPlan, bytes]:
    """The stages tune and plan: the choices, the launch plan and the library of the kernels.

    `specs` has one kernel a launch of the wiring. Needs neither the model nor its graph.
    """
    tuning, beside = _tune(specs, wiring, target, options, machinery, clock)
    return (tuning, *_plan(specs, wiring, tuning, beside, target, clock))


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
    specs: tuple[KernelSpec, ...],
    wiring: Wiring,
    target: Target,
    options: BuildOptions,
    machinery: Machinery,
    clock: Clock,
) -> tuple[Tuning, Files]:
    """The choice and the machine code of each kernel, and what a library holds beside them."""
    workers, store, counts = machinery.workers, machinery.store, machinery.counts
    policy = Policy(
        target=target,
        device=device_here(target) or options.device,
        mode=options.tune,
        frozen=options.frozen,
        record=_read_record(options.record),
        budget_seconds=options.tune_budget_seconds,
    )
    compiled, hits = counts.compiled, counts.cache_hits
    with clock.stage("tune"), ExitStack() as stack:
        beside = prelude(target.device, workers, store)
        measurer = None
        if options.tune != "off" and not options.frozen:
            measurer = measurer_for(target, beside)
        if measurer is not None:
            stack.callback(measurer.close)
        arguments = (workers, store, counts, clock.progress.advance)
        tuning = tune(_jobs(specs, wiring), policy, *arguments, measurer)
        clock.dump("tune", print_record({line.place: line for line in tuning.lines}))
        clock.detail = (
            f"{counts.compiled - compiled} compiled, {counts.cache_hits - hits} from the cache"
        )
        if tuning.measured or tuning.skipped:
            clock.detail += f", {tuning.measured} measured, {tuning.skipped} left for the budget"
        merged = with_lines(policy.record, tuning.lines)
        if options.record is not None and merged != policy.record:
            options.record.write_text(print_record(merged))
    return tuning, beside


def _jobs(specs: tuple[KernelSpec, ...], wiring: Wiring) -> list[Job]:
    """Each distinct kernel with the memory of its parameters."""
    counts = Counter(spec.digest for spec in specs)
    jobs: dict[str, Job] = {}
    for spec, launch in zip(specs, wiring.launches, strict=True):
        if spec.digest in jobs:
            continue
        first_stored = len(launch.operands) - launch.stored
        operands = tuple(
            Operand(row.nbytes, _role(row.space, place >= first_stored))
            for place, row in enumerate(launch.operands)
        )
        jobs[spec.digest] = Job(spec, operands, counts[spec.digest])
    return list(jobs.values())


def _role(space: str, is_stored: bool) -> Literal["weight", "read", "stored"]:
    if is_stored:
        return "stored"
    return "weight" if space == "weight" else "read"


def _read_record(path: Path | None) -> dict[Place, Line]:
    """The record's lines; none where there is no file yet."""
    if path is None or not path.exists():
        return {}
    return parse_record(path.read_text(), str(path))


def _plan(
    specs: tuple[KernelSpec, ...],
    wiring: Wiring,
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
                kernel.candidate.maps,
            )
            for spec, kernel in zip(specs, kernels, strict=True)
        ]
        # On a GPU each image names its own.
        lent = [0 if library.images else kernel.binary.scratch_bytes for kernel in kernels]
        planned = plan_wired(wiring, rows, max(lent, default=0))
        clock.dump("plan", contents.plan_text(planned))
        clock.detail = f"{len(planned.launches)} launches, {planned.arena_bytes} bytes of arena"
    return planned, library.data
