"""Machine code that tests of one run, and of later runs, take from each other: a build with a
cache of its own compiles the same small kernels as the build before it, and LLVM is most of its
work.

What a kernel's code depends on is its key, as in the artifact cache. A key that the same sources of
all that compiles (`COMPILES`) have compiled before is answered at once, with the same files: it
counts as compiled, and the build's cache gets the entry. What fails is asked again each time, and a
changed compiler compiles every kernel, each once in a run. Only what this process asks its compiler
processes for is answered: programs that tests start compile by themselves, and so does every test
that calls the compiler, as those of `tests/targets_cpu` and `tests/goldens`.

The folder lies in pytest's own cache, which `--cache-clear` empties; without that (`-p
no:cacheprovider`) it is the run's. With `AOTC_TESTS_COMPILE=1` nothing is kept or answered; a test
that is about compiling takes the fixture `compiled_anew`. So, and by builds of processes of their
own, `tests/build` tests that what is kept is what would be compiled.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from aotc.aot.tasks import workers
from aotc.aot.tasks.task import Batch, Outcome, Request
from aotc.aot.tune import compiling
from aotc.aot.tune.compiling import (
    KERNEL_FILES,
    compile_or_get,
    load_compiler,
    make_support_code,
)
from aotc.aot.version import ROOT, sources_digest
from aotc.cache import Key, Store

KERNEL, SUPPORT, WARM_UP = (
    f"{compiling.__name__}:{asked.__name__}"
    for asked in (compile_or_get, make_support_code, load_compiler)
)
COMPILES = ("aot/targets", "aot/tasks", "aot/tune", "aot/ir/native.py", "runtime/drivers", "cache")
SWITCHES = ("AOTC_TESTS_WITHOUT", "AOTC_TESTS_TILES")  # they change what is compiled
KEPT_AT_MOST = 3  # folders, of the last compilers that were tested


class KeepingBatch(workers._Batch):
    """A batch that answers what was compiled before, and keeps what it compiles."""

    kept: Store
    answers: ClassVar[bool] = True

    def __init__(self, pool: workers.Workers) -> None:
        super().__init__(pool)
        self._known: deque[tuple[int, Outcome]] = deque()

    def submit(self, request: Request) -> int:
        """Have it run, unless its answer is known."""
        number = super().submit(request)
        if not self.answers:
            return number
        known = self._known_files(request)
        # No warm-up: a process that has nothing to compile need not even be started.
        if known is not None or request.function == WARM_UP:
            self.waiting.pop()
            self._known.append((number, Outcome(request, known, None, 0.0)))
        return number

    def results(self) -> Iterator[tuple[int, Outcome]]:
        """What is known, then what runs."""
        while self._known or self.waiting or self._pool.busy:
            while self._known:
                if self._pool.is_cancelled.is_set():
                    raise CancelledError
                yield self._known.popleft()
            for number, outcome in super().results():
                self._keep(outcome)
                yield number, outcome
                if self._known:
                    break

    def _known_files(self, request: Request) -> Any:
        """The answer to a request, whose own cache gets the entry; None where it must run."""
        if request.function not in (KERNEL, SUPPORT):
            return None
        root, key = request.arguments[0], Key("binaries", request.arguments[1])
        is_kernel = request.function == KERNEL
        entry = self.kept.get(key, KERNEL_FILES if is_kernel else ())
        if entry is None:
            return None
        files = dict(entry.files)
        is_first = bool(not root or Store(root).put(key, files))
        return (files, is_first) if is_kernel else files

    def _keep(self, outcome: Outcome) -> None:
        asked = outcome.request.function
        if asked in (KERNEL, SUPPORT) and outcome.error is None:
            files = outcome.value[0] if asked == KERNEL else outcome.value
            self.kept.put(Key("binaries", outcome.request.arguments[1]), files)


@contextmanager
def kept_kernels(folder: Path) -> Iterator[None]:
    """Inside, compiler processes of this process are asked for what `folder` has not."""
    own: Any = workers.Workers.begin
    KeepingBatch.kept = Store(folder)

    def begin(pool: workers.Workers) -> Batch:
        return KeepingBatch(pool)

    workers.Workers.begin = begin
    try:
        yield
    finally:
        workers.Workers.begin = own


def folder_of_this_compiler(kept: Path) -> Path:
    """A folder in `kept` for the compiler as it is now; those of older ones are deleted."""
    digest = sources_digest(ROOT / name for name in COMPILES)[:16]
    folder = kept / "-".join([digest, *(os.environ.get(name, "") for name in SWITCHES)])
    folder.mkdir(mode=0o700, exist_ok=True)  # whatever the umask: a store that others write is none
    os.utime(folder)
    others = [each for each in kept.iterdir() if each != folder]
    for old in sorted(others, key=lambda each: -each.stat().st_mtime)[KEPT_AT_MOST - 1 :]:
        shutil.rmtree(old, ignore_errors=True)
    return folder
