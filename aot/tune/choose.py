"""The stage `tune`: which candidate each kernel gets, and its machine code.

Three ways, in this order: a line of a tuning record, measuring on this machine, the model's pick
(candidate 0). Without a record and with `off` the result depends on the input alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from aotc.aot.errors import TuningRecordMiss
from aotc.aot.lower.spec import Candidate, KernelSpec
from aotc.aot.targets.cpu.compile import KernelBinary
from aotc.aot.targets.workers import Workers
from aotc.aot.tune.compiling import (
    Counts,
    Report,
    Task,
    compile_all,
    compiler_digest,
    executor_code,
    triton_version,
)
from aotc.aot.tune.measure import measure
from aotc.aot.tune.record import Config, Line, Place, Record, merge, parse_record
from aotc.cache import Key, Store

Mode = Literal["off", "quick", "full"]
CANDIDATE_LIMITS: Mapping[Mode, int | None] = {"off": 1, "quick": 4, "full": None}


@dataclass(frozen=True, slots=True)
class Job:
    """A kernel and the sizes in bytes of its pointer parameters, in their order."""

    spec: KernelSpec
    sizes_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """How candidates are chosen."""

    target: str  # `cpu-x86-64-v4`
    isa: str
    device: str  # `amd-epyc-9b14-x2`
    mode: Mode = "off"
    frozen: bool = False  # every kernel with a choice must be in the record
    record: Record = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tuned:
    """The outcome for one kernel."""

    candidate: Candidate
    binary: KernelBinary


@dataclass(frozen=True, slots=True)
class Tuning:
    """The outcome for all kernels by spec digest, and the lines that were used or made."""

    kernels: Mapping[str, Tuned]
    lines: tuple[Line, ...]
    measured: int  # kernels measured in this build


def tune(
    jobs: Sequence[Job],
    policy: Policy,
    workers: Workers,
    store: Store,
    counts: Counts,
    report: Report,
) -> Tuning:
    """Choose and compile every distinct kernel.

    Raises TuningRecordMiss when frozen and a kernel has no line, CompileError when one does not
    compile.
    """
    distinct = {job.spec.digest: job for job in jobs}
    known = {digest: line for digest in distinct if (line := _line(digest, policy, store))}
    if policy.frozen:
        _refuse_misses(distinct, known)
    choices = {
        digest: _choices(job.spec, known.get(digest), policy) for digest, job in distinct.items()
    }
    tasks = {
        digest: [Task(distinct[digest].spec, choice, policy.isa) for choice in row]
        for digest, row in choices.items()
    }
    compiled = compile_all(
        [task for row in tasks.values() for task in row], workers, store, counts, report
    )
    kernels: dict[str, Tuned] = {}
    lines = list(known.values())
    open_digests = [digest for digest, row in tasks.items() if len(row) > 1]
    for place, digest in enumerate(open_digests):
        report(place, len(open_digests), f"measuring {distinct[digest].spec.name}")
        options = [(task.candidate, compiled[task]) for task in tasks[digest]]
        times_us = measure(options, distinct[digest].sizes_bytes, executor_code(workers, store))
        line = _fastest(digest, options, times_us, policy)
        kernels[digest] = Tuned(*_of_config(options, line.config))
        lines.append(line)
        store.put(_key(digest, policy), {"line.txt": str(line).encode()})
    for digest, row in tasks.items():
        if digest not in kernels:
            kernels[digest] = Tuned(row[0].candidate, compiled[row[0]])
    return Tuning(kernels, tuple(sorted(lines, key=lambda line: line.place)), len(open_digests))


def _line(digest: str, policy: Policy, store: Store) -> Line | None:
    """The record's line for a kernel: the given record first, then, when measuring, the cache's.

    A line for this very device goes first, then the first by name of another one: a build machine
    without the serving machine's CPU uses what was measured there.
    """
    own = policy.record.get((digest, policy.target, policy.device))
    if own is not None:
        return own
    others = [line for place, line in policy.record.items() if place[:2] == (digest, policy.target)]
    if others:
        return min(others, key=lambda line: line.place)
    if policy.mode == "off" or policy.frozen:
        return None
    entry = store.get(_key(digest, policy))
    if entry is None:
        return None
    text = entry.files["line.txt"].decode()
    lines: dict[Place, Line] = parse_record(f"# aotc tuning record 1\n{text}\n", "the cache")
    return next(iter(lines.values()), None)


def _key(digest: str, policy: Policy) -> Key:
    """A measured choice holds for the kernel, the machine, the space searched and the compiler."""
    return Key.of(
        "tuning",
        compiler=compiler_digest(),
        device=policy.device,
        mode=policy.mode,
        spec=digest,
        target=policy.target,
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


def _choices(spec: KernelSpec, line: Line | None, policy: Policy) -> tuple[Candidate, ...]:
    """The candidates to compile. A line whose config is no candidate any more is not used."""
    if line is not None:
        chosen = [candidate for candidate in spec.candidates if candidate.config == line.config]
        if chosen:
            return (chosen[0],)
    return spec.candidates[: CANDIDATE_LIMITS[policy.mode]]


def _fastest(
    digest: str,
    options: Sequence[tuple[Candidate, KernelBinary]],
    times_us: Sequence[float],
    policy: Policy,
) -> Line:
    order = sorted(range(len(options)), key=lambda index: times_us[index])
    best, second = order[0], order[1]
    return Line(
        digest,
        policy.target,
        policy.device,
        options[best][0].config,
        round(times_us[best], 2),
        options[second][0].config,
        round(times_us[second], 2),
    )


def _of_config(
    options: Sequence[tuple[Candidate, KernelBinary]], config: Config
) -> tuple[Candidate, KernelBinary]:
    return next(option for option in options if option[0].config == config)


def with_lines(record: Record, lines: Sequence[Line]) -> dict[Place, Line]:
    """A record with new lines merged in."""
    return merge(record.values(), lines)
