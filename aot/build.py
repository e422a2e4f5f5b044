"""`build`: the seven stages from top to bottom, from a SPEC to a bundle."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from aotc.aot import contents, rehearsal
from aotc.aot.capture.capture import Captured, capture
from aotc.aot.capture.spec import load_spec
from aotc.aot.errors import GoldenMismatch, UnknownTarget
from aotc.aot.ir.graph import Graph
from aotc.aot.ir.text import print_graph
from aotc.aot.lower import KernelSpec, lower
from aotc.aot.pack import BundleContents, TargetContents, pack
from aotc.aot.pack.staging import check_free
from aotc.aot.plan import ChosenKernel, plan
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.schedule import CPU, Schedule, schedule
from aotc.aot.stages import Clock, Progress, Quiet, StageTime, write_texts
from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu.isa import ISAS, isa
from aotc.aot.targets.workers import Workers
from aotc.aot.tune.choose import Policy, Tuning, tune, with_lines
from aotc.aot.tune.compiling import Counts, executor_code, warm_up
from aotc.aot.tune.job import Job, Mode, Operand
from aotc.aot.tune.measure import CpuMeasurer
from aotc.aot.tune.record import Line, Place, parse_record, print_record
from aotc.cache import Store
from aotc.cache.collect import collect, note_misses
from aotc.runtime.comparison import Comparison
from aotc.runtime.drivers.cpu import ISA_FEATURES, best_isa, features
from aotc.runtime.plan import LaunchPlan


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Everything about a build that is not its input; the defaults are the command line's."""

    cache_folder: Path
    device: str = "any"  # this kind of machine, as tuning records name it
    tune: Mode = "off"
    record: Path | None = None  # tuning record, read and, after measuring, written
    frozen: bool = False
    force: bool = False
    debug: bool = False
    dump: Path | None = None  # folder that gets every stage's text, also of a build that fails
    jobs: int | None = None
    allow_mismatch: bool = False
    skip: frozenset[str] = frozenset()  # rewrite steps and rules to leave out


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build made and what it cost."""

    path: str
    identity: str
    target: str
    kernels: int  # distinct ones
    launches: int  # a call
    compiled: int
    cache_hits: int
    measured: int
    bundle_bytes: int
    arena_bytes: int
    checks: tuple[Comparison, ...]
    stages: tuple[StageTime, ...]
    seconds: float

    def record(self) -> dict[str, Any]:
        """The report as plain data, for `--json`."""
        rows = asdict(self)
        rows["checks"] = [check.as_map() for check in self.checks]
        return rows


@dataclass(frozen=True, slots=True)
class Chosen:
    """The target of a build."""

    name: str  # `cpu-x86-64-v4`
    isa: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """Everything between the model and the bundle."""

    captured: Captured
    scheduled: Schedule
    specs: tuple[KernelSpec, ...]  # one a group
    tuning: Tuning
    plan: LaunchPlan
    library: bytes


def build(
    spec: str,
    out: str | os.PathLike[str],
    target: str,
    options: BuildOptions,
    progress: Progress | None = None,
) -> BuildReport:
    """Compile the model that `spec` names into a bundle at `out`.

    Nothing is written at `out` unless every stage ends well and the code gives the exported
    model's numbers on the golden input. Raises the families of `aot/errors.py`, and
    EnvironmentFault for a full disk or a missing permission.
    """
    started_s, clock = time.time(), Clock(progress or Quiet())
    check_free(os.fspath(out), options.force)
    chosen = find_target(target)
    store, counts = Store(options.cache_folder), Counts()
    try:
        compiled = _compile(spec, chosen, options, (store, counts), clock)
        checks = _rehearse(compiled, chosen, options)
        with clock.stage("pack"):
            packed = pack(_contents(compiled, chosen, options, clock), out, options.force)
            clock.detail = f"{len(packed.files)} files, identity {packed.identity[:12]}"
    finally:
        if options.dump is not None:
            write_texts(options.dump, clock.texts)
        note_misses(store, started_s)
    if store.counters.misses:
        collect(store)
    return BuildReport(
        path=packed.path,
        identity=packed.identity,
        target=chosen.name,
        kernels=len(compiled.tuning.kernels),
        launches=len(compiled.plan.launches),
        compiled=counts.compiled,
        cache_hits=counts.cache_hits,
        measured=compiled.tuning.measured,
        bundle_bytes=packed.nbytes,
        arena_bytes=compiled.plan.arena_bytes,
        checks=checks,
        stages=tuple(clock.rows),
        seconds=time.time() - started_s,
    )


def _compile(
    spec: str, chosen: Chosen, options: BuildOptions, cache: tuple[Store, Counts], clock: Clock
) -> Compiled:
    """The stages from capture to plan, in order."""
    store, _ = cache
    with Workers(options.jobs) as workers:
        warming = threading.Thread(target=warm_up, args=(workers, store))
        warming.start()
        try:
            captured = _capture(spec, clock)
            graph = _rewrite(captured.graph, options, clock)
            scheduled = _schedule(graph, chosen, clock)
            specs = _lower(scheduled, chosen, clock)
        finally:
            warming.join()
        machinery = (workers, *cache)
        tuning, executor = _tune(scheduled, specs, chosen, options, machinery, clock)
    plan, library = _plan(scheduled, specs, tuning, executor, clock)
    return Compiled(captured, scheduled, specs, tuning, plan, library)


def find_target(text: str) -> Chosen:
    """`cpu` is the best instruction set that this machine has; `cpu-x86-64-v3` names one.

    Raises UnknownTarget, which lists the known ones.
    """
    name = text.removeprefix("cpu-")
    if name in ("cpu", "native"):
        name = best_isa(features()) or text
    if name not in ISAS:
        raise UnknownTarget(target=text, known=", ".join(["cpu", *(f"cpu-{row}" for row in ISAS)]))
    return Chosen(f"cpu-{name}", name)


def _capture(spec: str, clock: Clock) -> Captured:
    with clock.stage("capture"):
        captured = capture(load_spec(spec))
        clock.dump("capture", print_graph(captured.graph, with_sources=True))
        clock.detail = f"{len(captured.graph.nodes())} nodes"
    return captured


def _rewrite(graph: Graph, options: BuildOptions, clock: Clock) -> Graph:
    with clock.stage("rewrite"):
        graph, log = rewrite(graph, skip=options.skip)
        rules = "".join(f"# {name} ×{count}\n" for name, count in log.counts().items())
        clock.dump("rewrite", rules + print_graph(graph))
        clock.detail = f"{len(graph.nodes())} nodes, {sum(log.counts().values())} rules applied"
    return graph


def _schedule(graph: Graph, chosen: Chosen, clock: Clock) -> Schedule:
    with clock.stage("schedule"):
        scheduled = schedule(graph, replace(CPU, lanes=isa(chosen.isa).lanes))
        clock.dump("schedule", str(scheduled))
        clock.detail = f"{len(scheduled.groups)} groups"
    return scheduled


def _lower(scheduled: Schedule, chosen: Chosen, clock: Clock) -> tuple[KernelSpec, ...]:
    with clock.stage("lower"):
        specs = lower(scheduled, replace(CPU, lanes=isa(chosen.isa).lanes))
        clock.dump("lower", contents.specs_text(specs))
        clock.detail = f"{len({spec.digest for spec in specs})} distinct kernels"
    return specs


def _tune(
    scheduled: Schedule,
    specs: tuple[KernelSpec, ...],
    chosen: Chosen,
    options: BuildOptions,
    machinery: tuple[Workers, Store, Counts],
    clock: Clock,
) -> tuple[Tuning, bytes]:
    """The choice and the machine code of each kernel, and the executor's object."""
    workers, store, counts = machinery
    policy = Policy(
        target=chosen.name,
        isa=chosen.isa,
        device=options.device,
        mode=options.tune,
        frozen=options.frozen,
        record=_read_record(options.record),
    )
    jobs = _jobs(scheduled, specs)
    with clock.stage("tune"):
        executor = executor_code(workers, store)
        arguments = (workers, store, counts, clock.progress.advance)
        tuning = tune(jobs, policy, *arguments, CpuMeasurer(executor))
        clock.dump("tune", print_record({line.place: line for line in tuning.lines}))
        clock.detail = f"{counts.compiled} compiled, {counts.cache_hits} from the cache"
        if options.record is not None and tuning.measured:
            merged = with_lines(policy.record, tuning.lines)
            options.record.write_text(print_record(merged))
    return tuning, executor


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
    executor: bytes,
    clock: Clock,
) -> tuple[LaunchPlan, bytes]:
    """The launch plan, and the library that holds its kernels and the executor."""
    with clock.stage("plan"):
        kernels = [tuning.kernels[spec.digest] for spec in specs]
        rows = [
            ChosenKernel(kernel.binary.symbol, spec.name, kernel.candidate.grid)
            for spec, kernel in zip(specs, kernels, strict=True)
        ]
        scratch_bytes = max((kernel.binary.scratch_bytes for kernel in kernels), default=0)
        planned = plan(scheduled, rows, scratch_bytes)
        objects = {kernel.binary.symbol: kernel.binary.object for kernel in kernels}
        library = toolchain.link({"executor": executor, **objects})
        clock.dump("plan", contents.plan_text(planned))
        clock.detail = f"{len(planned.launches)} launches, {planned.arena_bytes} bytes of arena"
    return planned, library


def _rehearse(compiled: Compiled, chosen: Chosen, options: BuildOptions) -> tuple[Comparison, ...]:
    """Run the code on the golden input, where this machine can; raises GoldenMismatch."""
    if not ISA_FEATURES[chosen.isa] <= features():
        return ()
    constants = compiled.scheduled.graph.constants
    checks = rehearsal.rehearse(compiled.captured, constants, compiled.plan, compiled.library)
    for check in checks:
        if not check.is_ok and not options.allow_mismatch:
            raise GoldenMismatch(
                name=check.name, difference=check.difference, tolerance=check.tolerance
            )
    return checks


def _contents(
    compiled: Compiled, chosen: Chosen, options: BuildOptions, clock: Clock
) -> BundleContents:
    graph, specs = compiled.scheduled.graph, compiled.specs
    needs = tuple(sorted(ISA_FEATURES[chosen.isa]))
    inputs, outputs = contents.signature(graph)
    facts = {
        **contents.provenance(compiled.captured.name, chosen.name, compiled.scheduled, specs),
        "tuning": [str(line) for line in compiled.tuning.lines],
        "seconds": {row.stage: round(row.seconds, 3) for row in clock.rows},
    }
    extras = {**contents.sources(specs), **contents.json_file("provenance.json", facts)}
    if options.debug:
        extras |= contents.debug(clock.texts, specs, compiled.tuning)
    return BundleContents(
        inputs=inputs,
        outputs=outputs,
        targets=(TargetContents(chosen.name, "cpu", needs, compiled.plan, compiled.library),),
        weights=contents.weights(graph.constants, compiled.plan),
        golden=contents.golden(compiled.captured, inputs, outputs),
        extras=extras,
    )
