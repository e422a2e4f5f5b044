"""`compile_for`: from a rewritten graph to the launch plan and the machine code of one target."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from aotc.aot import contents
from aotc.aot.calls import Examples, calls_of
from aotc.aot.entries import joined_dims, joined_states
from aotc.aot.ir.control import nodes_within
from aotc.aot.ir.graph import Constant, Graph, reads_nothing
from aotc.aot.ir.narrow import (
    dims_of,
    large_sizes,
    narrowed,
    with_possible_sizes,
)
from aotc.aot.ir.native import NativeCall
from aotc.aot.ir.size import Dim, size_of, typical
from aotc.aot.ir.storage import Array
from aotc.aot.lower import KernelSpec, lower
from aotc.aot.lower.spec import Candidate
from aotc.aot.options import BuildOptions
from aotc.aot.plan import ChosenKernel, Variant, assign_buffers, plan_variants
from aotc.aot.plan.blocks import Block, Scratch, in_blocks
from aotc.aot.plan.plan import GPU_ALIGNMENT_BYTES
from aotc.aot.schedule import Schedule, schedule
from aotc.aot.schedule.buckets import buckets
from aotc.aot.schedule.group import Group
from aotc.aot.sources import Lowered, Sources
from aotc.aot.stages import Clock
from aotc.aot.targets.binary import Library
from aotc.aot.targets.families import FAMILIES
from aotc.aot.targets.target import Target
from aotc.aot.tasks.task import Here, local_devices
from aotc.aot.tune.compiling import Files, require_support_code, support_code
from aotc.aot.tune.compiling import Resources as Resources
from aotc.aot.tune.job import Job, Operand
from aotc.aot.tune.measuring import measurer_for
from aotc.aot.tune.record import print_record, read_record, shipped_record, write_record
from aotc.aot.tune.tune import CallTime, Policy, Tuning, tune, with_lines
from aotc.aot.tune.whole_call import tune_calls
from aotc.runtime.bundle.native_plan import SYMBOL
from aotc.runtime.bundle.plan import ALIGNMENT_BYTES, Plan
from aotc.runtime.bundle.plan_parts import RANK_MARK

FOLLOWED_EARLY_BYTES = 4 << 20  # as much as an H200 moves in a microsecond


@dataclass(frozen=True, slots=True)
class Compiled:
    """Everything of one target between the rewritten graph and the bundle."""

    target: Target
    scheduled: tuple[Schedule, ...]  # one a variant
    sources: Sources
    tuning: Tuning
    plan: Plan
    library: bytes
    needs: tuple[str, ...]  # what a machine must have to run it: what the target needs, or less
    computed: Mapping[str, Array] = field(default_factory=dict)  # constants by the weights program
    scratch: tuple[Scratch, ...] = ()  # outputs beside the graph's, parts of the caller's blocks

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups of all variants, one a kernel of `specs`."""
        return tuple(group for each in self.scheduled for group in each.launched)

    @property
    def constants(self) -> dict[str, Constant]:
        """The constants that some variant reads."""
        found: dict[str, Constant] = {}
        for each in self.scheduled:
            found |= each.graph.constants
            initial = (state.initial for state in each.graph.states)
            found |= {constant.name: constant for constant in initial if constant is not None}
        for name, values in self.computed.items():
            own = found.get(name.partition(RANK_MARK)[0])
            if own is not None:  # of this rank, or of another one of a split program
                found[name] = replace(own, name=name, values=values)
        return found


def compile_for(
    target: Target,
    graphs: Sequence[Graph],
    options: BuildOptions,
    resources: Resources,
    clock: Clock,
    has_example: bool = True,
    examples: Examples = (),
    blocks: Sequence[Block] | None = None,
    has_few_ranges: bool = False,
) -> Compiled:
    """The stages from schedule to plan, in order; one graph an entry.

    has_example: whether the typical sizes get kernels of their own, of fixed shapes;
    has_few_ranges: of sizes, where a first call waits for the kernels; examples: see `calls_of`;
    blocks: the caller's memory in which a program of one graph of fixed shapes has its large
    buffers, None where these are the arena's.
    """
    is_fine = target.traits.is_gpu and not has_few_ranges
    scheduled, sources = schedule_and_lower(target, graphs, clock, has_example, is_fine)
    tuning, beside = _tune(sources, target, options, resources, clock, examples)
    placed, scratch = _in_blocks(sources, blocks, len(graphs[0].returned), target)
    planned, library = _plan(placed, tuning, beside, target, clock)
    needs = library.needs or target.needs
    parts = (scheduled, sources, tuning, planned, library.data, needs)
    return Compiled(target, *parts, scratch=scratch)


def _in_blocks(
    sources: Sources, blocks: Sequence[Block] | None, outputs: int, target: Target
) -> tuple[Sources, tuple[Scratch, ...]]:
    """The sources with buffers in the caller's blocks, and which parts of these they take."""
    if blocks is None:
        return sources, ()
    (variant,) = sources.variants
    step = GPU_ALIGNMENT_BYTES if target.traits.is_gpu else ALIGNMENT_BYTES
    assignment, scratch = in_blocks(variant.assignment, blocks, outputs, step)
    return replace(sources, variants=(replace(variant, assignment=assignment),)), scratch


def schedule_and_lower(
    target: Target,
    graphs: Sequence[Graph],
    clock: Clock,
    has_example: bool = True,
    is_fine: bool = False,
) -> tuple[tuple[Schedule, ...], Sources]:
    """The stages schedule and lower: groups, kernels, buffers of each entry and range of sizes;
    for `has_example` and `is_fine` see `buckets`."""
    dims = joined_dims([dims_of(graph) for graph in graphs])
    numbered = enumerate(graphs)
    is_gpu = target.traits.is_gpu
    rows = [
        row for number, graph in numbered for row in _ranges(number, graph, is_gpu, has_example)
    ]
    scheduled = _schedule([row.graph for row in rows], target, clock)
    states = joined_states(graphs)
    variants = []
    for row, each, specs in zip(rows, scheduled, _lower(scheduled, target, clock), strict=True):
        whole = graphs[row.entry]
        numbers = [states.names.index(state.name) for state in whole.states]
        assignment = assign_buffers(each, whole).with_states(numbers, states.slots)
        own = {dim.name: dim for dim in row.dims}
        narrow = tuple(own.get(dim.name, dim) for dim in dims)
        variants.append(Lowered(specs, assignment, narrow, row.entry))
    precision = target.traits.dot_precision
    limits = tuple(dict.fromkeys(size for graph in graphs for size in large_sizes(graph)))
    return scheduled, Sources(target.name, precision, tuple(variants), dims, limits)


@dataclass(frozen=True, slots=True)
class _Range:
    """An entry's graph for a range of each of its dims."""

    entry: int
    graph: Graph
    dims: tuple[Dim, ...]


def _ranges(entry: int, graph: Graph, is_fine: bool, has_example: bool) -> Iterator[_Range]:
    dims = dims_of(graph)
    rows = buckets(graph, is_fine, has_example)
    for each in rows:
        possible = with_possible_sizes(graph, each)
        if possible is None:
            continue
        narrow = narrowed(graph, dict(zip(dims, possible, strict=True))) if dims else graph
        # Loops of fixed sizes turn at least once; the next ranges hold the example's sizes too.
        is_example = has_example and each is rows[0] is not rows[-1]
        if is_example and any(map(reads_nothing, nodes_within(narrow))):
            continue
        yield _Range(entry, narrow, possible)


def tune_and_plan(
    target: Target,
    sources: Sources,
    options: BuildOptions,
    resources: Resources,
    clock: Clock,
    examples: Examples = (),
) -> tuple[Tuning, Plan, Library]:
    """The stages tune and plan: the choices, the launch plan and the library of the kernels.

    Needs neither the model nor its graph; examples: see `calls_of`.
    """
    tuning, beside = _tune(sources, target, options, resources, clock, examples)
    return tuning, *_plan(sources, tuning, beside, target, clock)


def _schedule(graphs: Sequence[Graph], target: Target, clock: Clock) -> tuple[Schedule, ...]:
    with clock.stage("schedule"):
        scheduled = tuple(schedule(graph, target.traits) for graph in graphs)
        clock.dump("schedule", "\n".join(map(str, scheduled)))
        clock.detail = f"{sum(len(each.groups) for each in scheduled)} groups"
    return scheduled


def _lower(
    scheduled: Sequence[Schedule], target: Target, clock: Clock
) -> list[tuple[KernelSpec, ...]]:
    with clock.stage("lower"):
        rows = [lower(each, target.traits) for each in scheduled]
        specs = [spec for row in rows for spec in row]
        clock.dump("lower", contents.specs_text(specs))
        clock.detail = f"{len({spec.digest for spec in specs})} distinct kernels"
    return rows


def _tune(
    sources: Sources,
    target: Target,
    options: BuildOptions,
    resources: Resources,
    clock: Clock,
    examples: Examples,
) -> tuple[Tuning, Files]:
    """The choice and the machine code of each kernel, and what a library holds beside them."""
    executor, store, counts = resources.executor, resources.store, resources.counts
    compiled, hits = counts.compiled, counts.cache_hits
    with clock.stage("tune"), ExitStack() as stack:
        beside = None if options.frozen else support_code(target.device, executor, store)
        measurer = None
        if options.tune != "off" and beside is not None:
            measurer = measurer_for(target, beside, executor)
        if measurer is not None:
            stack.callback(measurer.close)
        here = local_devices(target.device, target.needs, Here)
        devices = here if measurer is None else measurer.devices
        policy = Policy(
            target=target,
            device=(devices.name if devices else "") or options.device,
            mode=options.tune,
            frozen=options.frozen,
            record=read_record(options.record),
            has_record=options.record is not None,
            shipped={} if "shipped-record" in options.skip else shipped_record(target.name),
            budget_seconds=options.tune_budget_seconds,
        )
        reported = replace(resources, report=clock.progress.advance)
        jobs, began_s, budget_s = jobs_of(sources.variants), time.monotonic(), policy.budget_seconds
        tuning = tune(jobs, policy, reported, measurer)
        if measurer is not None:
            parts = (calls_of(sources, tuning, examples), jobs, tuning, policy, reported, measurer)
            over_s = float("inf") if budget_s is None else began_s + budget_s
            tuning = tune_calls(*parts, is_over=lambda: time.monotonic() >= over_s)
        if beside is None:
            if options.record is None:
                require_support_code(target.device, store)
            beside = support_code(target.device, executor, store)
        clock.dump("tune", print_record({line.key: line for line in tuning.lines}))
        clock.detail = (
            f"{counts.compiled - compiled} compiled, {counts.cache_hits - hits} from the cache"
        )
        if tuning.measured or tuning.skipped:
            clock.detail += f", {tuning.measured} measured, {tuning.skipped} left for the budget"
        clock.detail += _said(tuning.calls)
        if tuning.shipped:
            clock.detail += f", {tuning.shipped} choices from the package's record"
        merged = with_lines(policy.record, tuning.lines)
        if options.record is not None and merged != policy.record:
            write_record(options.record, merged)
    return tuning, beside


def _said(calls: Sequence[CallTime]) -> str:
    """What measuring whole calls has changed, and what of it failed; nothing where neither."""
    changed = [each for each in calls if each.changed]
    times = (f"{each.first_us:.1f} → {each.last_us:.1f} µs" for each in changed)
    count = sum(each.changed for each in changed)
    found = f", {count} changed in the whole call: {', '.join(times)}" if changed else ""
    reasons = dict.fromkeys(each.reason for each in calls if each.reason)
    return found + "".join(f", a whole call was not measured: {reason}" for reason in reasons)


def jobs_of(variants: Sequence[Lowered]) -> list[Job]:
    """Each distinct kernel with the memory of its parameters, at typical sizes."""
    early = _followed_early(variants)
    pairs = [
        (spec, launch)
        for each in variants
        for spec, launch in zip(each.specs, each.assignment.launches, strict=True)
    ]
    counts = Counter(spec.digest for spec, _ in pairs)
    jobs: dict[str, Job] = {}
    for spec, launch in pairs:
        if spec.digest in jobs:
            continue
        first_stored = len(launch.operands) - launch.stored
        operands = tuple(
            Operand(typical(row.nbytes), _role(row.space, place >= first_stored))
            for place, row in enumerate(launch.operands)
        )
        jobs[spec.digest] = Job(spec, operands, counts[spec.digest], spec.digest in early)
    return list(jobs.values())


def _followed_early(variants: Sequence[Lowered]) -> set[str]:
    """The digests of kernels whose followers come while they run: where most of these load
    something before they wait, and else where all of them are small, as is the kernel.

    The time of small kernels is mostly that of a launch, which then overlaps. Programs of other
    large kernels that come early would only be spread unevenly: onto those multiprocessors that
    the small ones leave free.
    """
    specs = {spec.digest: spec for each in variants for spec in each.specs}
    small = {name for name, spec in specs.items() if spec.bytes <= FOLLOWED_EARLY_BYTES}
    ahead = {name for name, spec in specs.items() if _loads_before_it_waits(spec)}
    followers: dict[str, list[str]] = {name: [] for name in specs}
    for each in variants:
        for own, after in pairwise(each.specs):
            followers[own.digest].append(after.digest)

    def is_followed_early(name: str) -> bool:
        after = followers[name]
        count = sum(each in ahead for each in after)
        return 2 * count > len(after) or (name in small and small.union(ahead).issuperset(after))

    return {name for name in specs if is_followed_early(name)}


def _loads_before_it_waits(spec: KernelSpec) -> bool:
    """Whether the form that the cost model chooses does."""
    return bool(spec.candidates) and spec.form(spec.candidates[0]).waits


def _role(space: str, is_stored: bool) -> Literal["weight", "read", "stored"]:
    if is_stored:
        return "stored"
    return "weight" if space == "weight" else "read"


def _plan(
    sources: Sources, tuning: Tuning, beside: Files, target: Target, clock: Clock
) -> tuple[Plan, Library]:
    """The launch plan, and the library that holds its kernels."""
    variants, dims = sources.variants, sources.dims
    with clock.stage("plan"):
        used = [tuning.kernels[spec.digest] for spec in sources.specs]
        family = FAMILIES[target.device]
        library = family.library([kernel.binary for kernel in used], beside)
        # On a GPU each image names its own.
        scratches = [0 if library.images else kernel.binary.scratch_bytes for kernel in used]
        scratch_bytes = max(scratches, default=0)
        rows = [[_chosen(spec, tuning, library) for spec in each.specs] for each in variants]
        parts = [
            Variant(each.dims, each.assignment, tuple(row), each.entry)
            for each, row in zip(variants, rows, strict=True)
        ]
        planned = plan_variants(dims, parts, scratch_bytes, sources.limits)
        clock.detail = f"{sum(map(len, rows))} launches in {len(rows)} variants"
        if planned.fixed is not None:
            arena_bytes = planned.fixed.arena_bytes
            clock.detail = f"{len(rows[0])} launches, {arena_bytes} bytes of arena"
        clock.dump("plan", contents.plan_text(planned))
    return planned, library


def _chosen(spec: KernelSpec, tuning: Tuning, library: Library) -> ChosenKernel:
    kernel = tuning.kernels[spec.digest]
    return ChosenKernel(
        kernel.binary.symbol,
        spec.name,
        kernel.candidate.grid,
        library.images.get(kernel.binary.symbol),
        kernel.candidate.scratch,
        kernel.candidate.maps,
        tuple(map(size_of, spec.sizes)),
        kernel.candidate.ranks,
        _native(spec, kernel.candidate),
    )


def _native(spec: KernelSpec, candidate: Candidate) -> NativeCall | None:
    """The native function that a candidate is; None for kernels of ours."""
    form = spec.form(candidate)
    return NativeCall.parse(form.source) if form.function == SYMBOL else None
