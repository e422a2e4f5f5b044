"""The stage `tune`: which candidate each kernel gets, and its machine code.

Four ways, in this order: a line of a tuning record, measuring on this machine, a line of the record
in this package (`records/`, of common shapes), the cost model's choice (candidate 0). Without a
record and with `off` the result depends on the input alone.

Every measured kernel's line goes into the cache at once, so that a build that is interrupted or
runs out of its budget goes on where it stopped.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field, replace

from aotc.aot.errors import FrozenMiss, TuningDeviceMissing, TuningRecordMiss
from aotc.aot.lower.spec import Candidate, KernelSpec
from aotc.aot.measure.sampling import fastest
from aotc.aot.targets.binary import KernelBinary
from aotc.aot.targets.digest import compiler_digest, triton_version
from aotc.aot.targets.families import FAMILIES
from aotc.aot.targets.target import Target
from aotc.aot.targets.toolchain import KernelTextRefused
from aotc.aot.traits import FOLLOWED_EARLY
from aotc.aot.tune.compiling import Report, Resources, Task, compile_each, task_of
from aotc.aot.tune.job import SPILL_LIMIT_BYTES, Job, Mode, Option
from aotc.aot.tune.measuring import Measurer
from aotc.aot.tune.record import Choice, Line, LineKey, Record, merge, parse_record
from aotc.cache import Key, Store
from aotc.runtime.errors import AotcError

UNTUNED_CANDIDATES = 8  # how far the first that compiles is looked for without measuring


@dataclass(frozen=True, slots=True)
class Policy:
    """How candidates are chosen."""

    target: Target
    device: str  # `amd-epyc-9b14-x2`, `nvidia-h200`
    mode: Mode = "off"
    frozen: bool = False  # nothing is measured, and no kernel compiled that the record lacks
    record: Record = field(default_factory=dict)
    has_record: bool = False  # a record was given, though it may have no lines
    shipped: Record = field(default_factory=dict)  # the package's, for what is not measured
    budget_seconds: float | None = None  # no new kernel is measured after this long

    @property
    def needs_choices(self) -> bool:
        """Whether every kernel needs a known choice; else the cost model's choice is used."""
        return self.frozen and (self.mode != "off" or self.has_record or bool(self.record))

    def is_recorded(self, digest: str) -> bool:
        """Whether the given record has a line for the kernel on the target, of any device."""
        return any(place[:2] == (digest, self.target.name) for place in self.record)


@dataclass(frozen=True, slots=True)
class Tuned:
    """The outcome for one kernel."""

    candidate: Candidate
    binary: KernelBinary


@dataclass(frozen=True, slots=True)
class Timed:
    """A candidate that compiled, and microseconds of a launch of it by itself."""

    option: Option
    time_us: float


@dataclass(frozen=True, slots=True)
class CallTime:
    """Microseconds of a whole call with what each kernel was the fastest with by itself, and with
    what was chosen in the call; for how many kernels that is another candidate. reason: why the
    call was not measured."""

    first_us: float = 0.0
    last_us: float = 0.0
    changed: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Tuning:
    """The outcome for all kernels by spec digest, and the lines that were used or made."""

    kernels: Mapping[str, Tuned]
    lines: tuple[Line, ...]
    measured: int  # kernels measured in this build
    skipped: int = 0  # kernels left to the cost model's choice when the budget was spent
    shipped: int = 0  # kernels whose choice the package's record has
    # Of kernels measured in this build, the candidates that ran; first the one that was chosen,
    # then from the fastest on.
    timed: Mapping[str, tuple[Timed, ...]] = field(default_factory=dict)
    calls: tuple[CallTime, ...] = ()


def tune(
    jobs: Sequence[Job],
    policy: Policy,
    resources: Resources,
    measurer: Measurer | None = None,
) -> Tuning:
    """Choose and compile every distinct kernel; `measurer` is needed where one is to be measured.

    Raises TuningRecordMiss when frozen and a kernel has no choice, FrozenMiss when frozen and one
    would have to be compiled, TuningDeviceMissing without a measurer, CompileError when a kernel
    does not compile.
    """
    distinct = {job.spec.digest: job for job in jobs}
    known = {
        digest: line
        for digest, job in distinct.items()
        if (line := _line(digest, policy, resources.store)) and _chosen(job.spec, line)
    }
    if policy.needs_choices:
        _refuse_misses(distinct, known)
    chosen = {digest: _chosen(job.spec, known.get(digest)) for digest, job in distinct.items()}
    is_open = {
        digest: candidate is None and _is_measured(distinct[digest].spec, policy)
        for digest, candidate in chosen.items()
    }
    if any(is_open.values()) and measurer is None:
        raise TuningDeviceMissing(target=policy.target.name, count=sum(is_open.values()))
    made: dict[str, Line] = {}
    kernels: dict[str, Tuned] = {}
    timed: dict[str, tuple[Timed, ...]] = {}
    if measurer is not None and any(is_open.values()):
        to_measure = [job for digest, job in distinct.items() if is_open[digest]]
        kernels, made, timed = _measure_all(to_measure, policy, resources, measurer)
    rest = {digest: job for digest, job in distinct.items() if digest not in kernels}
    shipped = {
        digest: candidate
        for digest, job in rest.items()
        if not chosen[digest] and (candidate := _shipped(job.spec, policy))
    }
    kernels |= _without_measuring(rest, chosen, shipped, policy, resources)
    lines = sorted({**known, **made}.values(), key=lambda line: line.key)
    skipped = sum(is_open.values()) - len(made)
    return Tuning(kernels, tuple(lines), len(made), skipped, len(shipped), timed)


def _chosen(spec: KernelSpec, line: Line | None) -> Candidate | None:
    """The candidate of the record's line; None where it names none, as after a change of ours."""
    if line is None:
        return None
    config = dict(line.choice.config)
    has_word = config.pop(FOLLOWED_EARLY, None) is not None
    plain = Choice(tuple(config.items()), line.choice.form)
    found = next((each for each in spec.candidates if Choice.of(each) == plain), None)
    return replace(found, config=line.choice.config) if found and has_word else found


def _is_measured(spec: KernelSpec, policy: Policy) -> bool:
    return len(spec.candidates) > 1 and policy.mode != "off" and not policy.frozen


def _line(digest: str, policy: Policy, store: Store) -> Line | None:
    """The record's line for a kernel: the given record first, then, when tuning, the cache's."""
    given = _line_of(policy.record, digest, policy)
    if given is not None or policy.mode == "off":
        return given
    entry = store.get(key_of(digest, policy), (frozenset({"line.txt"}),))
    if entry is None:
        return None
    text = entry.files["line.txt"].decode()
    lines: dict[LineKey, Line] = parse_record(f"# aotc tuning record 1\n{text}\n", "the cache")
    return next(iter(lines.values()), None)


def _line_of(record: Record, digest: str, policy: Policy) -> Line | None:
    """A line for this very device goes first, then the first by name of another one: a build
    machine without the serving machine's processor uses what was measured there."""
    own = record.get((digest, policy.target.name, policy.device))
    if own is not None:
        return own
    here = (digest, policy.target.name)
    others = [line for place, line in record.items() if place[:2] == here]
    return min(others, key=lambda line: line.key, default=None)


def _shipped(spec: KernelSpec, policy: Policy) -> Candidate | None:
    """The choice in the package's record, if nothing is measured and no record line is required."""
    if policy.mode != "off" or policy.needs_choices:
        return None
    return _chosen(spec, _line_of(policy.shipped, spec.digest, policy))


def key_of(digest: str, policy: Policy) -> Key:
    """A measured choice holds for the kernel, the machine, the space searched and the compiler."""
    return Key.of(
        "tuning",
        compiler=compiler_digest(policy.target.device),
        device=policy.device,
        mode=policy.mode,
        spec=digest,
        target=policy.target.name,
        triton=triton_version(),
    )


def _refuse_misses(distinct: Mapping[str, Job], known: Mapping[str, Line]) -> None:
    missing = [
        job.spec.name
        for digest, job in distinct.items()
        if digest not in known and len(job.spec.candidates) > 1
    ]
    if missing:
        raise TuningRecordMiss(count=len(missing), kernels=", ".join(missing[:8]))


def _without_measuring(
    jobs: Mapping[str, Job],
    chosen: Mapping[str, Candidate | None],
    shipped: Mapping[str, Candidate],
    policy: Policy,
    resources: Resources,
) -> dict[str, Tuned]:
    """The choice of the given record, of the package's or of the cost model, compiled.

    One of the package's record or of the cost model that does not compile, for want of registers or
    shared memory, gives way to the next that does; one that has too few registers to the next that
    has enough.
    """
    untuned = {
        digest: tuple(dict.fromkeys((shipped.get(digest, row[0]), *row)))
        for digest, row in ((digest, job.spec.candidates) for digest, job in jobs.items())
    }
    tasks = {
        digest: task_of(job, chosen[digest] or untuned[digest][0], policy.target)
        for digest, job in jobs.items()
    }
    outcomes = _compiled_or_refused(list(tasks.values()), policy, resources)
    spares: dict[str, list[Task]] = {}
    for digest, task in tasks.items():
        outcome, others = outcomes[task], untuned[digest][1:]
        if isinstance(outcome, AotcError):
            if chosen[digest] or not others:
                raise outcome
            # The last candidate of a kernel is the one that is the surest to fit, and slow.
            others = tuple(dict.fromkeys((*others[: UNTUNED_CANDIDATES - 1], others[-1])))
        elif outcome.spill_bytes <= SPILL_LIMIT_BYTES or chosen[digest]:
            continue
        spares[digest] = [replace(task, candidate=each) for each in others[:UNTUNED_CANDIDATES]]
    if spares:
        rows = [task for row in spares.values() for task in row]
        outcomes |= compile_each(rows, resources, lambda _: not policy.frozen)
    for digest, row in spares.items():
        # The first of the least: those within the limit are equal, and all that compile are where
        # the choice does not.
        is_error = isinstance(outcomes[tasks[digest]], AotcError)
        _warn_of_refused([tasks[digest], *row], outcomes)
        spilled = [_spilled_bytes(outcomes[task]) for task in (tasks[digest], *row)]
        least = [max(each, SPILL_LIMIT_BYTES) for each in spilled]
        place = next((at for at, each in enumerate(spilled) if each < float("inf")), 0)
        tasks[digest] = (tasks[digest], *row)[place if is_error else least.index(min(least))]
    return {
        digest: Tuned(task.candidate, _binary(outcomes[task])) for digest, task in tasks.items()
    }


def _spilled_bytes(outcome: KernelBinary | AotcError) -> float:
    """Bytes of a thread that stand in memory for want of registers; what does not compile has any
    number of them."""
    return float("inf") if isinstance(outcome, AotcError) else outcome.spill_bytes


def _compiled_or_refused(
    tasks: Sequence[Task], policy: Policy, resources: Resources
) -> dict[Task, KernelBinary | AotcError]:
    """The code of each task; raises FrozenMiss for all that a frozen build may not compile."""
    if not policy.frozen:
        return compile_each(tasks, resources)
    outcomes = compile_each(tasks, resources, lambda task: policy.is_recorded(task.spec.digest))
    missing = [task.spec.name for task in tasks if isinstance(outcomes[task], FrozenMiss)]
    if missing:
        names = ", ".join(missing[:8])
        raise FrozenMiss(missing=f"{len(missing)} of {len(tasks)} kernels ({names})")
    return outcomes


def _binary(outcome: KernelBinary | AotcError) -> KernelBinary:
    if isinstance(outcome, AotcError):
        raise outcome
    return outcome


def _measure_all(
    jobs: Sequence[Job], policy: Policy, resources: Resources, measurer: Measurer
) -> tuple[dict[str, Tuned], dict[str, Line], dict[str, tuple[Timed, ...]]]:
    """Measure the kernels, those with the most work first, until the budget is spent."""
    started_s = time.monotonic()
    order = sorted(jobs, key=lambda job: -job.weight)
    kernels: dict[str, Tuned] = {}
    lines: dict[str, Line] = {}
    timed: dict[str, tuple[Timed, ...]] = {}
    resources.report(0, len(order), "compiling candidates")
    ahead = _Ahead(resources.report, sum(len(_candidates(job, policy)) for job in order))

    def to_measure() -> Iterator[tuple[Job, list[Option]]]:
        for number, (job, options) in enumerate(compiled):
            spent_s = time.monotonic() - started_s
            if number and policy.budget_seconds is not None and spent_s >= policy.budget_seconds:
                return
            ahead.is_reported = True
            if len(options) > 1:
                yield job, options
            else:
                kernels[job.spec.digest] = Tuned(options[0].candidate, options[0].binary)

    def report(job: Job, text: str) -> None:
        resources.report(len(kernels), len(order), f"{job.spec.name}: {text}")

    with closing(_compiled_ahead(order, policy, resources, measurer.is_apart, ahead)) as compiled:
        try:
            for job, options, times_us in measurer.measure_each(to_measure(), report):
                digest = job.spec.digest
                if min(times_us) < float("inf"):
                    lines[digest] = line = _fastest(digest, options, times_us, policy)
                    resources.store.put(key_of(digest, policy), {"line.txt": str(line).encode()})
                    timed[digest] = _timed(options, times_us)
                    options = [each for each in options if Choice.of(each.candidate) == line.choice]
                kernels[digest] = Tuned(options[0].candidate, options[0].binary)
        except BaseException:
            resources.executor.cancel()  # else leaving would wait for what compiles ahead
            raise
    return kernels, lines, timed


def _timed(options: Sequence[Option], times_us: Sequence[float]) -> tuple[Timed, ...]:
    """The candidates that ran, the fastest first."""
    order = [at for at in fastest(times_us) if times_us[at] < float("inf")]
    return tuple(Timed(options[at], times_us[at]) for at in order)


@dataclass(slots=True)
class _Ahead:
    """Reports how many candidates are compiled, until measuring takes over the progress line."""

    report: Report
    total: int
    done: int = 0
    is_reported: bool = False  # by the measuring

    def advance(self, name: str) -> None:
        """One more is there, compiled or from the cache, or has failed."""
        self.done += 1
        if not self.is_reported:
            self.report(self.done, self.total, f"candidates compiled: {name}")


def _candidates(job: Job, policy: Policy) -> tuple[Candidate, ...]:
    """The candidates of a kernel that are compiled to be measured."""
    return job.spec.candidates[: FAMILIES[policy.target.device].candidates[policy.mode]]


def _compiled_ahead(
    jobs: Sequence[Job], policy: Policy, resources: Resources, is_apart: bool, ahead: _Ahead
) -> Generator[tuple[Job, list[Option]], None, None]:
    """Each job with those of its candidates that compile, in order.

    `is_apart`: compiling does not disturb measuring, so that it goes on meanwhile.
    """
    with ThreadPoolExecutor(1, "aotc-compile") as compiler:
        batches = [
            (batch, compiler.submit(_compile_batch, batch, policy, resources, ahead))
            for batch in _batches(jobs, policy, resources.executor.count)
        ]
        if not is_apart:
            wait(made for _, made in batches)
        try:
            for batch, made in batches:
                yield from zip(batch, made.result(), strict=True)
        finally:
            compiler.shutdown(cancel_futures=True)


def _batches(jobs: Sequence[Job], policy: Policy, workers: int) -> list[list[Job]]:
    """Consecutive jobs whose candidates keep all workers busy for a while."""
    batches: list[list[Job]] = []
    count = 0
    for job in jobs:
        if not batches or count >= 2 * workers:
            batches.append([])
            count = 0
        batches[-1].append(job)
        count += len(_candidates(job, policy))
    return batches


def _compile_batch(
    jobs: Sequence[Job], policy: Policy, resources: Resources, ahead: _Ahead
) -> list[list[Option]]:
    """For each job those of its candidates that compile; raises the error when none does.

    Where none of those to be measured compiles, the last one, the surest, stands in for them.
    """
    rows = [
        [task_of(job, each, policy.target) for each in _candidates(job, policy)] for job in jobs
    ]
    found = _compiled([task for row in rows for task in row], resources, ahead)
    failed = [row for row in rows if all(isinstance(found[task], AotcError) for task in row)]
    spares = {row[0]: replace(row[0], candidate=row[0].spec.candidates[-1]) for row in failed}
    found |= _compiled([task for task in spares.values() if task not in found], resources, ahead)
    return [
        _options([*row, *([spares[row[0]]] if row[0] in spares else [])], found) for row in rows
    ]


def _compiled(
    tasks: Sequence[Task], resources: Resources, ahead: _Ahead
) -> dict[Task, KernelBinary | AotcError]:
    """The code of each task, or why there is none; each is reported as it ends."""
    reported = 0

    def report(done: int, total: int, name: str) -> None:
        nonlocal reported
        while reported < done:
            reported += 1
            ahead.advance(name)

    return compile_each(tasks, replace(resources, report=report))


def _options(tasks: Sequence[Task], found: Mapping[Task, KernelBinary | AotcError]) -> list[Option]:
    options = [
        Option(task.candidate, outcome)
        for task in tasks
        if not isinstance(outcome := found[task], AotcError)
    ]
    if not options:
        _binary(found[tasks[0]])  # raises
    _warn_of_refused(tasks, found)
    return options


class RefusedFormWarning(UserWarning):
    """Triton does not take the text of a kernel's form, and another form takes its place."""


def _warn_of_refused(
    tasks: Sequence[Task], outcomes: Mapping[Task, KernelBinary | AotcError]
) -> None:
    """Warn of a kernel some of whose candidates are no programs, though others are."""
    refused = [row for task in tasks if isinstance(row := outcomes[task], KernelTextRefused)]
    if 0 < len(refused) < len(tasks):
        text = f"{len(refused)} of {len(tasks)} candidates are left out: {refused[0]}"
        warnings.warn(text, RefusedFormWarning, stacklevel=2)


def _fastest(
    digest: str, options: Sequence[Option], times_us: Sequence[float], policy: Policy
) -> Line:
    best, second = fastest(times_us)[:2]
    return Line(
        digest,
        policy.target.name,
        policy.device,
        Choice.of(options[best].candidate),
        round(times_us[best], 2),
        *_runner_up(options[second].candidate, times_us[second]),
    )


def _runner_up(candidate: Candidate, time_us: float) -> tuple[Choice | None, float | None]:
    """The second best as the line has it; nothing where all others were refused."""
    if time_us == float("inf"):
        return None, None
    return Choice.of(candidate), round(time_us, 2)


def with_lines(record: Record, lines: Sequence[Line]) -> dict[LineKey, Line]:
    """A record with the lines of a tuning, which take the place of those that it had."""
    return {**record, **merge(lines)}
