"""Compiles kernels in worker processes, each distinct one once, through the artifact cache."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotc.aot.lower.spec import Candidate, Form, KernelSpec
from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu.compile import KernelBinary, compile_kernel
from aotc.aot.targets.cpu.executor import executor_object
from aotc.aot.targets.workers import Outcome, Request, Workers
from aotc.cache import Entry, Key, Store
from aotc.runtime.drivers import executor_abi
from aotc.runtime.errors import AotcError

Report = Callable[[int, int, str], None]  # done, total, name of the last
Files = dict[str, bytes]
TARGETS_FOLDER = Path(toolchain.__file__).parent


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel to compile: a spec with one of its candidates, for one instruction set."""

    spec: KernelSpec
    candidate: Candidate
    isa: str

    @property
    def form(self) -> Form:
        """The source to compile."""
        return self.spec.form(self.candidate)

    @property
    def plain(self) -> tuple[Any, ...]:
        """The arguments of `compile_kernel`, as plain values."""
        params = tuple((param.name, param.type) for param in self.spec.params_of(self.candidate))
        form = self.form
        return (form.source, form.function, params, self.candidate.constexprs, self.isa)

    @property
    def key(self) -> Key:
        """Every fact that the machine code depends on."""
        return Key.of(
            "binaries",
            compiler=compiler_digest(),
            config=" ".join(f"{name}={value}" for name, value in self.candidate.config),
            function=self.form.function,
            isa=self.isa,
            params=" ".join(
                f"{row.name}:{row.type}" for row in self.spec.params_of(self.candidate)
            ),
            source=hashlib.sha256(self.form.source.encode()).hexdigest(),
            triton=triton_version(),
        )


@dataclass(slots=True)
class Counts:
    """What became of the kernels of one build."""

    compiled: int = 0
    cache_hits: int = 0


@functools.cache
def triton_version() -> str:
    """Version of the installed Triton, which brings LLVM and the linker."""
    return importlib.metadata.version("triton")


@functools.cache
def compiler_digest() -> str:
    """SHA-256 over the sources of the targets and of the ABI that the executor is generated from:
    a changed code generator misses the cache."""
    digest = hashlib.sha256()
    sources = {path.relative_to(TARGETS_FOLDER): path for path in TARGETS_FOLDER.rglob("*.py")}
    sources[Path("executor_abi.py")] = Path(executor_abi.__file__)
    for name, path in sorted(sources.items()):
        digest.update(name.as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def compile_all(
    tasks: Sequence[Task], workers: Workers, store: Store, counts: Counts, report: Report
) -> dict[Task, KernelBinary]:
    """The machine code of every task; raises the error of the first that fails."""
    made: dict[Task, KernelBinary] = {}
    for task, outcome in compile_each(tasks, workers, store, counts, report).items():
        if isinstance(outcome, AotcError):
            raise outcome
        made[task] = outcome
    return made


def compile_each(
    tasks: Sequence[Task], workers: Workers, store: Store, counts: Counts, report: Report
) -> dict[Task, KernelBinary | AotcError]:
    """The machine code of every task, or why there is none.

    Hits come from the store without a lock. A worker compiles a miss while it holds the key's
    lock, so that of several builds at once one compiles each kernel.
    """
    distinct = list(dict.fromkeys(tasks))
    made: dict[Task, KernelBinary | AotcError] = {}
    for task in distinct:
        entry = store.get(task.key)
        if entry is not None:
            made[task] = unpack(entry.files)
    counts.cache_hits += len(made)
    report(len(made), len(distinct), "from the cache")
    missing = [task for task in distinct if task not in made]
    requests = [_request(store, task) for task in missing]
    ended = len(made)

    def tell(outcome: Outcome) -> None:
        nonlocal ended
        ended += 1
        report(ended, len(distinct), outcome.request.name)

    for task, outcome in zip(missing, workers.map(requests, tell), strict=True):
        if outcome.error is not None:
            made[task] = outcome.error
            continue
        files, was_compiled = outcome.value
        made[task] = unpack(files)
        counts.compiled += was_compiled
        counts.cache_hits += not was_compiled
    return made


def warm_up(workers: Workers, store: Store) -> None:
    """Start the workers and load the compiler in them, where it is certain that they will be used.

    A cache without this compiler's executor has none of its kernels either. A build calls this in
    a thread while it captures the model, and waits for it before it uses the workers.
    """
    if store.path(executor_key()).exists():
        return
    executor = _executor_request(store)
    rest = Request("warm-up", f"{__name__}:load_compiler", ())
    workers.map([executor, *[rest] * (workers.count - 1)])


def load_compiler() -> None:
    """In a worker: compile something, so that everything it takes is in memory."""
    executor_object()


def executor_code(workers: Workers, store: Store) -> bytes:
    """The object of the CPU executor, from the cache or compiled in a worker."""
    key = executor_key()
    entry = store.get(key)
    if entry is not None:
        return entry.files["executor.o"]
    (outcome,) = workers.map([_executor_request(store)])
    code: bytes = outcome.unwrap()
    return code


def _executor_request(store: Store) -> Request:
    arguments = (str(store.root), executor_key().fields)
    return Request("executor", f"{__name__}:make_executor", arguments)


def executor_key() -> Key:
    """The executor depends on the compiler alone."""
    return Key.of(
        "binaries", compiler=compiler_digest(), function="executor", triton=triton_version()
    )


def _request(store: Store, task: Task) -> Request:
    arguments = (str(store.root), task.key.fields, task.plain)
    return Request(task.spec.name, f"{__name__}:compile_or_get", arguments)


def compile_or_get(root: str, fields: Any, plain: tuple[Any, ...]) -> tuple[Files, bool]:
    """In a worker: the files that another build has put meanwhile, else compiled and put.

    The second value tells whether this call compiled.
    """
    return _get_or_make(root, fields, lambda: files_of(compile_kernel(*plain)))


def make_executor(root: str, fields: Any) -> bytes:
    """In a worker: the executor's object, put into the cache."""
    made, _ = _get_or_make(root, fields, lambda: {"executor.o": executor_object().data})
    return made["executor.o"]


def _get_or_make(root: str, fields: Any, make: Callable[[], Files]) -> tuple[Files, bool]:
    store, key = Store(root), Key("binaries", fields)
    with store.lock(key):
        entry: Entry | None = store.get(key)
        if entry is not None:
            return dict(entry.files), False
        files = make()
        store.put(key, files)
        return files, True


def files_of(binary: KernelBinary) -> Files:
    """The files of a cache entry: the object, the texts it came through, and the small facts."""
    facts = {"symbol": binary.symbol, "scratch_bytes": binary.scratch_bytes}
    return {
        "facts.json": json.dumps(facts, sort_keys=True).encode(),
        "kernel.o": binary.object,
        "kernel.s": binary.assembly.encode(),
        "kernel.ll": binary.llvm_ir.encode(),
        "kernel.ttir": binary.ttir.encode(),
    }


def unpack(files: Mapping[str, bytes]) -> KernelBinary:
    """The files of a cache entry as the kernel that they hold."""
    facts = json.loads(files["facts.json"])
    return KernelBinary(
        symbol=facts["symbol"],
        object=files["kernel.o"],
        scratch_bytes=facts["scratch_bytes"],
        ttir=files["kernel.ttir"].decode(),
        llvm_ir=files["kernel.ll"].decode(),
        assembly=files["kernel.s"].decode(),
    )
