"""The last part of the stage `tune`: the best candidates are measured again within a whole call.

A kernel that is measured by itself follows launches of its own kind. In a call other kernels
precede and follow it, whose beginnings and ends overlap with its own. So the best few candidates
are measured once more in the whole call, and the best one also with the opposite choice of
programmatic dependent launch (`Job.is_followed_early`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from aotc.aot.measure.call import TIMEOUT_SECONDS, CallMeasurement, Kernel, Launch
from aotc.aot.measure.program import Buffer
from aotc.aot.targets.binary import KernelBinary
from aotc.aot.targets.families import FAMILIES
from aotc.aot.tasks.task import Request
from aotc.aot.traits import FOLLOWED_EARLY
from aotc.aot.tune.compiling import Resources, Task, compile_each, task_of
from aotc.aot.tune.job import Job, Option
from aotc.aot.tune.measuring import Measurer, program_of
from aotc.aot.tune.record import Choice, Line
from aotc.aot.tune.tune import CallTime, Policy, Timed, Tuned, Tuning, key_of

NEAR = 1.5  # by itself a candidate takes at most so many times as long as the fastest
TRIED = 5  # of these, beside the fastest
SHARE = 0.01  # of a call that a group takes at least, as far as the times by themselves tell
GROUPS_LIMIT = 24  # of one call

Group = tuple[str, ...]  # digests of kernels that are alike


@dataclass(frozen=True, slots=True)
class CallLaunch:
    """A launch of a call: the digest of its kernel, and for each pointer the number of a block and
    the bytes before it."""

    digest: str
    operands: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Call:
    """The launches of an entry point at typical sizes, and the blocks of memory they name."""

    name: str  # for people
    blocks: tuple[Buffer, ...]
    launches: tuple[CallLaunch, ...]


def tune_calls(
    calls: Iterable[Call],
    jobs: Sequence[Job],
    tuning: Tuning,
    policy: Policy,
    resources: Resources,
    measurer: Measurer,
    is_over: Callable[[], bool] = lambda: False,
) -> Tuning:
    """The tuning with the candidates with which whole calls are fastest, for the kernels that it
    has measured.

    A kernel that occurs in several calls is tried in the first in which it takes a share. is_over:
    whether the time for tuning is spent, asked before each call. Where a call cannot be measured,
    for want of memory for example, its kernels stay as they are, and `calls` of the result says
    why.
    """
    if not FAMILIES[policy.target.device].measure_call or not measurer.runs_functions:
        return tuning
    found = {job.spec.digest: job for job in jobs}
    tried: set[str] = set()
    for call in calls:
        if is_over():
            break
        groups = _groups(call, found, tuning, tried)
        if groups:
            tried.update(digest for group in groups for digest in group)
            resources.report(len(tried), len(tuning.timed), f"{call.name}: the whole call")
            tuning = _tuned(call, groups, found, tuning, policy, resources, measurer)
    return tuning


def _groups(
    call: Call, jobs: Mapping[str, Job], tuning: Tuning, tried: AbstractSet[str]
) -> list[Group]:
    """The measured kernels that take most of a call and were not tried yet, the largest share
    first; those that differ in constants alone, as layers do, together."""
    counts = Counter(launch.digest for launch in call.launches)
    alike: dict[object, list[str]] = {}
    for digest in counts:
        if digest in tuning.timed:
            spec = jobs[digest].spec
            key = spec.name, tuple(map(Choice.of, spec.candidates))
            alike.setdefault(key, []).append(digest)
    times_us = {
        tuple(row): sum(counts[digest] * tuning.timed[digest][0].time_us for digest in row)
        for row in alike.values()
    }
    least_us = SHARE * sum(times_us.values())
    order = sorted(times_us, key=lambda group: -times_us[group])
    fresh = [group for group in order if times_us[group] >= least_us and tried.isdisjoint(group)]
    return fresh[:GROUPS_LIMIT]


def _tuned(
    call: Call,
    groups: Sequence[Group],
    jobs: Mapping[str, Job],
    tuning: Tuning,
    policy: Policy,
    resources: Resources,
    measurer: Measurer,
) -> Tuning:
    """What comes of one call."""
    options = _options(groups, jobs, tuning, policy, resources)
    task = _task(call, groups, options, jobs, tuning, measurer)
    function = FAMILIES[policy.target.device].measure_call
    request = Request(call.name, function, (task.to_bytes(),), TIMEOUT_SECONDS)
    outcome = measurer.devices.executor.map([request])[0]
    if outcome.error is not None:
        reason = str(outcome.error).partition("\n")[0]
        return replace(tuning, calls=(*tuning.calls, CallTime(reason=reason)))
    first_us, last_us, chosen = outcome.value
    kernels, lines = dict(tuning.kernels), {line.spec_digest: line for line in tuning.lines}
    changed = 0
    for group, place in zip(groups, chosen, strict=False):  # behind them are the other kernels
        for digest in group if place else ():
            before, now = options[digest][0], options[digest][place]
            if now.option.binary.symbol == before.option.binary.symbol:
                continue
            changed += 1
            kernels[digest] = Tuned(now.option.candidate, now.option.binary)
            lines[digest] = line = _line(digest, now, before, policy)
            resources.store.put(key_of(digest, policy), {"line.txt": str(line).encode()})
    return replace(
        tuning,
        kernels=kernels,
        lines=tuple(sorted(lines.values(), key=lambda line: line.key)),
        calls=(*tuning.calls, CallTime(first_us, last_us, changed)),
    )


def _line(digest: str, now: Timed, before: Timed, policy: Policy) -> Line:
    """The line of a record for what was chosen, with what was the fastest by itself behind it."""
    return Line(
        digest,
        policy.target.name,
        policy.device,
        Choice.of(now.option.candidate),
        round(now.time_us, 2),
        Choice.of(before.option.candidate),
        round(before.time_us, 2),
    )


def _options(
    groups: Sequence[Group],
    jobs: Mapping[str, Job],
    tuning: Tuning,
    policy: Policy,
    resources: Resources,
) -> dict[str, list[Timed]]:
    """What each kernel is tried with: first what it has. Those of a group have as many, one choice
    at one place."""
    found: dict[str, list[Timed]] = {}
    for group in groups:
        own = {digest: _by_choice(tuning.timed[digest]) for digest in group}
        totals_us = {
            choice: sum(rows[choice].time_us for rows in own.values())
            for choice in next(iter(own.values()))
            if all(choice in rows for rows in own.values())
        }
        first_us = sum(tuning.timed[digest][0].time_us for digest in group)
        has = {Choice.of(tuning.timed[digest][0].option.candidate) for digest in group}
        others = [
            choice
            for choice in sorted(totals_us, key=totals_us.__getitem__)
            if has != {choice} and totals_us[choice] <= NEAR * first_us
        ]
        for digest in group:
            rows = [own[digest][choice] for choice in others[:TRIED]]
            found[digest] = [tuning.timed[digest][0], *rows]
    if policy.target.traits.is_gpu:
        _add_reordered(found, groups, jobs, policy, resources)
    return found


def _by_choice(rows: Sequence[Timed]) -> dict[Choice, Timed]:
    return {Choice.of(row.option.candidate): row for row in rows}


def _add_reordered(
    found: dict[str, list[Timed]],
    groups: Sequence[Group],
    jobs: Mapping[str, Job],
    policy: Policy,
    resources: Resources,
) -> None:
    """Add the current candidate of each kernel with the opposite choice of `is_followed_early`."""
    tasks = {
        digest: _reordered(jobs[digest], found[digest][0].option, policy)
        for group in groups
        for digest in group
    }
    quiet = replace(resources, report=lambda done, total, name: None)
    made = compile_each(list(tasks.values()), quiet)
    for group in groups:
        binaries = {digest: made[tasks[digest]] for digest in group}
        if all(isinstance(binary, KernelBinary) for binary in binaries.values()):
            for digest, binary in binaries.items():
                option = Option(tasks[digest].candidate, binary)
                found[digest].append(Timed(option, found[digest][0].time_us))


def _reordered(job: Job, option: Option, policy: Policy) -> Task:
    """The task that compiles a candidate with the opposite choice."""
    other = int(not job.is_followed_early)
    config = (*option.candidate.config, (FOLLOWED_EARLY, other))
    return task_of(job, replace(option.candidate, config=config), policy.target)


def _task(
    call: Call,
    groups: Sequence[Group],
    options: Mapping[str, Sequence[Timed]],
    jobs: Mapping[str, Job],
    tuning: Tuning,
    measurer: Measurer,
) -> CallMeasurement:
    """Groups that are tried come first; each other kernel is one by itself."""
    others = dict.fromkeys(row.digest for row in call.launches if row.digest not in options)
    numbered = enumerate((*groups, *((digest,) for digest in others)))
    group_of = {digest: number for number, group in numbered for digest in group}
    numbers = {digest: number for number, digest in enumerate(group_of)}
    kernels = []
    for digest in numbers:
        spec, tuned = jobs[digest].spec, tuning.kernels[digest]
        own = [row.option for row in options.get(digest, ())]
        own = own or [Option(tuned.candidate, tuned.binary)]
        programs = tuple(program_of(spec, option) for option in own)
        kernels.append(Kernel(spec.name, group_of[digest], programs))
    return CallMeasurement(
        format="aotc.call-measurement/1",
        device=measurer.devices.name if measurer.devices.is_elsewhere else "",
        blocks=call.blocks,
        kernels=tuple(kernels),
        launches=tuple(Launch(numbers[row.digest], row.operands) for row in call.launches),
    )
