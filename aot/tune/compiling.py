"""Compiles kernels by an executor, each distinct one once, through the artifact cache."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aotc.aot.errors import FrozenMiss, KernelFailed, KernelTooLarge
from aotc.aot.ir.native import NativeCall
from aotc.aot.lower.spec import Candidate, Form, KernelSpec
from aotc.aot.targets.binary import KernelBinary
from aotc.aot.targets.digest import compiler_digest, triton_version
from aotc.aot.targets.families import FAMILIES
from aotc.aot.targets.target import Target
from aotc.aot.tasks.task import Executor, Outcome, Request, resolve
from aotc.aot.traits import FOLLOWED_EARLY
from aotc.aot.tune.job import Job
from aotc.cache import Entry, Key, Store
from aotc.runtime.bundle.native_plan import SYMBOL
from aotc.runtime.errors import AotcError

Report = Callable[[int, int, str], None]  # done, total, name of the last
Files = dict[str, bytes]
# What an entry of a kernel holds: one of these.
KERNEL_FILES = (
    frozenset({"facts.json", "kernel.code", "kernel.texts"}),
    frozenset({"too-large.json"}),
)


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel to compile: a spec with one of its candidates, for one target."""

    spec: KernelSpec
    candidate: Candidate
    target: Target
    is_smaller: bool = False  # compiled for the target's smaller architecture
    is_followed_early: bool = False  # see `Job`

    @property
    def form(self) -> Form:
        """The source to compile."""
        return self.spec.form(self.candidate)

    @property
    def plain(self) -> tuple[Any, ...]:
        """The arguments of a family's compiler, as plain values."""
        params = tuple((param.name, param.type) for param in self.spec.params_of(self.candidate))
        form = self.form
        return (form.source, form.function, params, self.config, self.architecture)

    @property
    def config(self) -> tuple[tuple[str, int], ...]:
        """The constexprs and the launch options; a candidate's own word on what follows it goes
        before the job's."""
        own = dict(self.candidate.config)
        is_followed = own.pop(FOLLOWED_EARLY, self.is_followed_early)
        is_asked = bool(is_followed and self.target.traits.is_gpu)
        return (*own.items(), *((FOLLOWED_EARLY, 1),) * is_asked)

    @property
    def architecture(self) -> str:
        """What it is compiled for."""
        return self.target.smaller_architecture if self.is_smaller else self.target.architecture

    @property
    def key(self) -> Key:
        """Every fact that the machine code depends on."""
        return Key.of(
            "binaries",
            architecture=self.architecture,
            compiler=compiler_digest(self.target.device),
            config=" ".join(f"{name}={value}" for name, value in self.config),
            function=self.form.function,
            params=" ".join(
                f"{row.name}:{row.type}" for row in self.spec.params_of(self.candidate)
            ),
            source=hashlib.sha256(self.form.source.encode()).hexdigest(),
            triton=triton_version(),
        )


def task_of(job: Job, candidate: Candidate, target: Target) -> Task:
    """A job's kernel with one of its candidates."""
    return Task(job.spec, candidate, target, is_followed_early=job.is_followed_early)


@dataclass(slots=True)
class Counts:
    """What became of the kernels of one build."""

    compiled: int = 0
    cache_hits: int = 0
    failed: int = 0  # candidates that did not compile


def _quiet(done: int, total: int, name: str) -> None:
    """Progress that nobody follows."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What compiles: the executor, the artifact cache, the build's counts and progress."""

    executor: Executor
    store: Store
    counts: Counts
    report: Report = _quiet


def compile_each(
    tasks: Sequence[Task],
    resources: Resources,
    may_compile: Callable[[Task], bool] = lambda task: True,
) -> dict[Task, KernelBinary | AotcError]:
    """The machine code of every task, or why there is none.

    A kernel whose code ends the compiler's process is compiled for the target's smaller
    architecture, with a warning. Hits come from the store without a lock. A worker of this machine
    compiles a miss while it holds the key's lock, so that of several builds at once one compiles
    each kernel; what is compiled elsewhere is put into the store here. A miss that `may_compile`
    refuses becomes a FrozenMiss.
    """
    executor, store = resources.executor, resources.store
    counts, report = resources.counts, resources.report
    distinct = list(dict.fromkeys(tasks))
    made: dict[Task, KernelBinary | AotcError] = {}
    made |= {task: _native(task) for task in distinct if task.form.function == SYMBOL}
    missing = [task for task in distinct if task not in made]
    store.fetch([task.key for task in missing], KERNEL_FILES)
    for task in missing:
        entry = store.get(task.key, KERNEL_FILES)
        if entry is not None:
            made[task] = unpack(entry.files)
            counts.cache_hits += 1
    report(len(made), len(distinct), "from the cache")
    refused = {task for task in distinct if task not in made and not may_compile(task)}
    made |= {task: FrozenMiss(missing=f"kernel {task.spec.name}") for task in refused}
    missing = [task for task in distinct if task not in made]
    root = _root(executor, store)
    requests = [_request(root, task) for task in missing]
    ended = len(made)

    def note(outcome: Outcome) -> None:
        nonlocal ended
        ended += 1
        report(ended, len(distinct), outcome.request.name)

    for task, outcome in zip(missing, executor.map(requests, note), strict=True):
        if outcome.error is not None:
            made[task] = outcome.error
            continue
        files, was_compiled = outcome.value
        if was_compiled and not root:
            store.put(task.key, files)
        made[task] = unpack(files)
        counts.compiled += was_compiled
        counts.cache_hits += not was_compiled
    again = _smaller(made)
    if again:
        found = compile_each(list(again.values()), resources, may_compile)
        for task, smaller in again.items():
            if not isinstance(found[smaller], AotcError):
                made[task] = found[smaller]
                warnings.warn(_compiled_smaller(task, smaller), stacklevel=2)
        counts.failed -= sum(isinstance(each, AotcError) for each in found.values())
    counts.failed += sum(isinstance(found, AotcError) for found in made.values())
    return made


def _smaller(made: Mapping[Task, KernelBinary | AotcError]) -> dict[Task, Task]:
    """What failed for its architecture, or may not be compiled → the same for the smaller one."""
    return {
        task: replace(task, is_smaller=True)
        for task, found in made.items()
        if isinstance(found, KernelFailed | FrozenMiss) and task.target.smaller_architecture
        if not task.is_smaller
    }


def _compiled_smaller(task: Task, smaller: Task) -> str:
    name, own = task.spec.name, task.architecture
    return f"kernel `{name}` is compiled for {smaller.architecture}: LLVM fails for {own}"


def _native(task: Task) -> KernelBinary:
    """A native function has no code of ours: the executor's own kernel calls it."""
    call = NativeCall.parse(task.form.source)
    is_scratch = not task.target.traits.is_gpu  # there the workspace is in the arena
    scratch_bytes = (call.workspace_bytes or 0) if is_scratch else 0
    return KernelBinary(SYMBOL, b"", scratch_bytes=scratch_bytes)


def warm_up(device: str, executor: Executor, store: Store) -> None:
    """Have the workers load the compiler, where it is certain that they will be used.

    A cache without this compiler's support code has none of its kernels either. A build calls this
    in a thread while it captures the model, and waits for it before it uses the workers.
    """
    store.fetch([support_code_key(device)])
    if store.holds(support_code_key(device)):
        return
    own = _support_code_request(_root(executor, store), device)
    rest = Request("warm-up", f"{__name__}:load_compiler", (device,))
    executor.map([own, *[rest] * (executor.count - 1)])


def load_compiler(device: str) -> None:
    """In a worker: make the support code, so that everything a compilation takes is in memory."""
    resolve(FAMILIES[device].support_code)()


def support_code(device: str, executor: Executor, store: Store) -> Files:
    """What a family's libraries hold beside kernels, from the cache or made in a worker."""
    entry = store.get(support_code_key(device))
    if entry is not None:
        return dict(entry.files)
    root = _root(executor, store)
    (outcome,) = executor.map([_support_code_request(root, device)])
    files: Files = outcome.unwrap()
    if not root:
        store.put(support_code_key(device), files)
    return files


def require_support_code(device: str, store: Store) -> None:
    """Raise FrozenMiss unless the cache has the family's support code."""
    if not store.holds(support_code_key(device)):
        raise FrozenMiss(missing=f"the support code of {device}")


def _root(executor: Executor, store: Store) -> str:
    """The cache that the executor's tasks use themselves; empty where they do not see it."""
    return str(store.root) if executor.shares_files else ""


def _support_code_request(root: str, device: str) -> Request:
    arguments = (root, support_code_key(device).fields, device)
    return Request(f"support_code of {device}", f"{__name__}:make_support_code", arguments)


def support_code_key(device: str) -> Key:
    """The support code depends on the compiler alone."""
    return Key.of(
        "binaries",
        compiler=compiler_digest(device),
        function=f"{device} support_code",
        triton=triton_version(),
    )


def _request(root: str, task: Task) -> Request:
    arguments = (root, task.key.fields, task.target.device, task.plain)
    return Request(task.spec.name, f"{__name__}:compile_or_get", arguments)


def compile_or_get(
    root: str, fields: Any, device: str, plain: tuple[Any, ...]
) -> tuple[Files, bool]:
    """In a worker: the files that another build has put meanwhile, else compiled, and put into the
    cache at `root`, where there is one.

    The second value says whether this call compiled.
    """
    return _get_or_make(root, fields, lambda: _compile(device, plain), KERNEL_FILES)


def make_support_code(root: str, fields: Any, device: str) -> Files:
    """In a worker: the family's support code, put into the cache."""
    make: Callable[[], Files] = resolve(FAMILIES[device].support_code)
    return _get_or_make(root, fields, make, ())[0]


def _compile(device: str, plain: tuple[Any, ...]) -> Files:
    """The files of an entry. That a kernel is too large is known for good, and so is kept."""
    try:
        return files_of(resolve(FAMILIES[device].compiler)(*plain))
    except KernelTooLarge as error:
        return {"too-large.json": json.dumps(error.fields, sort_keys=True).encode()}


def _get_or_make(
    root: str, fields: Any, make: Callable[[], Files], required: tuple[frozenset[str], ...]
) -> tuple[Files, bool]:
    if not root:
        return make(), True
    store, key = Store(root), Key("binaries", fields)
    with store.lock(key):
        entry: Entry | None = store.get(key, required)
        if entry is not None:
            return dict(entry.files), False
        files = make()
        store.put(key, files)
        return files, True


def files_of(binary: KernelBinary) -> Files:
    """The files of a cache entry: the code, its small facts, the texts it came through."""
    facts = {"symbol": binary.symbol, **binary.facts}
    return {
        "facts.json": json.dumps(facts, sort_keys=True).encode(),
        "kernel.code": binary.code,
        "kernel.texts": binary.packed_texts,
    }


def unpack(files: Mapping[str, bytes]) -> KernelBinary | KernelTooLarge:
    """The files of a cache entry as the kernel that they hold, or why there is none."""
    if "too-large.json" in files:
        return KernelTooLarge(**json.loads(files["too-large.json"]))
    facts = json.loads(files["facts.json"])
    return KernelBinary(code=files["kernel.code"], packed_texts=files["kernel.texts"], **facts)
