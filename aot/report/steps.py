"""What one call of an entry runs, step by step, with all that the bundle's files say of it."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotc.aot.facts.bundle_facts import BundleFacts, VariantPlan, as_map, as_rows
from aotc.aot.facts.graph_file import Group, Line, TargetGraphs, Variant
from aotc.runtime.bundle.control_steps import ControlStep
from aotc.runtime.bundle.plan import Buffer, Launch, LaunchPlan
from aotc.runtime.bundle.torch_calls import TorchCall

# Where a time comes from, the best first.
MEASURED, TUNED, ESTIMATED, UNKNOWN = "profile", "tuning", "cost model", ""
LIMITS_MEASURED = "limits of the device, measured"
LARGEST = 1e18  # more than any time or rate
PRODUCER = re.compile(r"(\d+)\.")  # of a buffer's name: the launch that stores it


@dataclass(frozen=True, slots=True)
class Step:
    """One step: a kernel's launch, or what torch or a native function runs.

    lines: the nodes that it computes. time_us: None where nothing is known; `time_from` says which
    of the above it is.
    """

    number: int
    kind: str
    name: str
    symbol: str
    grid: tuple[int, ...]
    arguments: tuple[tuple[str, Any], ...]
    group: Group | None
    lines: tuple[Line, ...]
    bytes: int | None
    operations: int | None
    time_us: float | None
    time_from: str
    source: str  # digest of its row in the bundle's sources; empty where there is none

    @property
    def places(self) -> tuple[str, ...]:
        """The lines of the model that it computes, each once."""
        return tuple(dict.fromkeys(line.source for line in self.lines if line.source))


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer of the arena and the steps in which it is in use, both included."""

    buffer: Buffer
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Subject:
    """An entry of a target for a range of sizes: its steps, its graph where the bundle has one,
    and the rates of the roofline: bytes and operations a second, and where they come from."""

    each: VariantPlan
    steps: tuple[Step, ...]
    graph: Variant | None
    lifetimes: tuple[Lifetime, ...]
    rates: tuple[float, float] | None
    rates_from: str
    lines: Mapping[int, Line]  # all nodes of the graph

    @property
    def time_us(self) -> float:
        """The sum over all steps whose time is known."""
        return sum(step.time_us or 0.0 for step in self.steps)

    @property
    def time_from(self) -> str:
        """Where the times come from; several are named."""
        return ", ".join(dict.fromkeys(filter(None, (step.time_from for step in self.steps))))


def subject_of(
    facts: BundleFacts, each: VariantPlan, profiles: Sequence[Mapping[str, Any]] = ()
) -> Subject:
    """Everything of one variant. profiles: records of `aotc profile --json`, of which the first
    that is of this variant counts."""
    target = facts.graphs.target(each.target) if facts.graphs is not None else None
    graph = _graph(target, each)
    plan, groups = each.plan, list(graph.groups) if graph is not None else []
    groups = groups if len(groups) == len(plan.steps) else []
    lines = list(facts.graphs.lines(graph)) if facts.graphs is not None and graph else []
    rows = _source_rows(facts, each)
    tuned = _tuned(facts, each.target)
    profile = next((row for row in profiles if is_profile_of(row, each)), {})
    measured = _measured(profile)
    steps, launches = [], 0
    for number, step in enumerate(plan.steps):
        group = groups[number] if groups else None
        source = ""
        if isinstance(step, Launch):
            kernel = plan.kernels[step.kernel]
            kind, name, symbol, grid = "kernel", kernel.name, kernel.symbol, tuple(step.grid)
        elif isinstance(step, TorchCall):
            kind, name, symbol, grid = "torch", f"torch {step.op}", step.op, ()
        elif isinstance(step, ControlStep):
            kind, name, symbol, grid = "control", step.text, step.word, ()
        else:
            name = f"{step.backend}.{step.function}"
            kind, symbol, grid = "native", name, (step.tiles,)
        if kind not in ("torch", "control"):
            source = rows[launches] if launches < len(rows) else ""
            launches += 1
        time_us, time_from = _time(measured.get(number), tuned.get(source), group)
        steps.append(
            Step(
                number,
                kind,
                name,
                symbol,
                grid,
                tuple(step.memory),
                group,
                tuple(lines[node] for node in group.nodes) if group and lines else (),
                group.bytes if group else None,
                group.operations if group else None,
                time_us,
                time_from,
                source,
            )
        )
    numbered = {line.number: line for line in lines}
    limits = profile or next((row for row in profiles if row.get("target") == each.target), {})
    rates = _rates(target, limits, each)
    return Subject(each, tuple(steps), graph, tuple(lifetimes(plan)), *rates, numbered)


def lifetimes(plan: LaunchPlan) -> list[Lifetime]:
    """When each buffer is in use, read off the steps: from the launch that its name says, where it
    says one, to the last step that names memory in it before the next buffer is stored there."""
    begins = sorted((_producer(buffer), number) for number, buffer in enumerate(plan.buffers))
    arena = _Stored()
    ends: dict[int, tuple[int, int]] = {}
    stored = 0
    for at, step in enumerate(plan.steps):
        while stored < len(begins) and begins[stored][0] <= at:
            number = begins[stored][1]
            buffer = plan.buffers[number]
            arena.store(buffer.offset, buffer.offset + max(buffer.nbytes, 1), number)
            stored += 1
        for space, value in step.memory:
            held = arena.at(int(value)) if space == "arena" else None
            if held is not None:
                first, _ = ends.get(held, (at, at))
                ends[held] = (first, at)
    return [Lifetime(plan.buffers[number], *steps) for number, steps in sorted(ends.items())]


class _Stored:
    """Which buffer was stored last at each byte of the arena."""

    def __init__(self) -> None:
        self._starts: list[int] = [0]
        self._numbers: list[int | None] = [None]  # from each start to the next

    def at(self, offset: int) -> int | None:
        """The number of the buffer at a byte; None where none was stored."""
        return self._numbers[bisect_right(self._starts, offset) - 1]

    def store(self, low: int, high: int, number: int) -> None:
        """Store a buffer at bytes `low` … `high - 1`."""
        first, last = bisect_left(self._starts, low), bisect_left(self._starts, high)
        starts: list[int] = [low]
        numbers: list[int | None] = [number]
        if last == len(self._starts) or self._starts[last] != high:
            starts.append(high)
            numbers.append(self._numbers[last - 1])
        self._starts[first:last] = starts
        self._numbers[first:last] = numbers


def _producer(buffer: Buffer) -> int:
    """The launch that its name says; -1 where it says none."""
    match = PRODUCER.match(buffer.name)
    return int(match[1]) if match and len(match[1]) < 8 else -1


def _graph(target: TargetGraphs | None, each: VariantPlan) -> Variant | None:
    """The graph of the variant: they are in the order of the plan's."""
    if target is None or each.number >= len(target.variants):
        return None
    return target.variants[each.number]


def _source_rows(facts: BundleFacts, each: VariantPlan) -> list[str]:
    """For each launch the digest of its kernel's row in the sources."""
    found = as_rows(facts.sources[each.target].get("variants"))
    row = as_map(found[each.number]) if each.number < len(found) else {}
    return [str(as_map(launch).get("kernel", "")) for launch in as_rows(row.get("launches"))]


def _tuned(facts: BundleFacts, target: str) -> dict[str, float]:
    """Digest of a kernel's row → microseconds that tuning measured."""
    times = {line.digest: number_of(line.time_us) for line in facts.tuned(target)}
    return {digest: time_us for digest, time_us in times.items() if time_us is not None}


def is_profile_of(profile: Mapping[str, Any], each: VariantPlan) -> bool:
    """Whether a profile is of the target, the entry and the steps of a variant."""
    names = [as_map(row).get("name") for row in as_rows(profile.get("launches"))]
    is_there = profile.get("target") == each.target and profile.get("entry") in (None, each.entry)
    return is_there and names == _step_names(each)


def _measured(profile: Mapping[str, Any]) -> dict[int, float]:
    """Number of a step → microseconds."""
    rows = map(as_map, as_rows(profile.get("launches")))
    times = {at: number_of(row.get("time_us")) for at, row in enumerate(rows)}
    return {at: time for at, time in times.items() if time is not None}


def _step_names(each: VariantPlan) -> list[str]:
    names = []
    for step in each.plan.steps:
        if isinstance(step, Launch):
            names.append(each.plan.kernels[step.kernel].name)
        elif isinstance(step, TorchCall):
            names.append(f"torch {step.op}")
        elif isinstance(step, ControlStep):
            names.append(step.text)
        else:
            names.append(f"{step.backend}.{step.function}")
    return names


def _time(
    measured: float | None, tuned: float | None, group: Group | None
) -> tuple[float | None, str]:
    if measured is not None:
        return measured, MEASURED
    if tuned is not None:
        return tuned, TUNED
    if group is not None:
        return group.estimate_ns / 1e3, ESTIMATED
    return None, UNKNOWN


def _rates(
    target: TargetGraphs | None, profile: Mapping[str, Any], each: VariantPlan
) -> tuple[tuple[float, float] | None, str]:
    limits = as_map(profile.get("limits"))
    rates = [number_of(limits.get(name)) for name in ("bytes_per_s", "operations_per_s")]
    if rates[0] and rates[1]:
        return (rates[0], rates[1]), LIMITS_MEASURED
    is_gpu = any(kernel.image is not None for kernel in each.plan.kernels)
    if target is None or not target.byte_fs or not target.operation_fs:
        return None, ""
    return (
        1e15 / target.byte_fs,
        1e15 / target.operation_fs,
    ), "the cost model's figures" + ("" if is_gpu else ", of one core")


def number_of(value: Any) -> float | None:
    """A number from 0 up to LARGEST, sums of which are finite; None for anything else."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if 0 <= found <= LARGEST else None


def by_kernel(steps: Sequence[Step]) -> list[tuple[str, list[Step]]]:
    """The steps of each kernel, those that take longest together first."""
    found: dict[str, list[Step]] = {}
    for step in steps:
        found.setdefault(step.symbol, []).append(step)
    return sorted(found.items(), key=lambda row: (-sum(s.time_us or 0.0 for s in row[1]), row[0]))
