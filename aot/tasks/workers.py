"""Code generation in worker processes: parallel, and safe from a code generator that aborts.

LLVM ends the process on bad IR text. Here that costs one worker: the kernel that it had becomes a
typed error which names the kernel and keeps its IR in a file, and the other kernels go on.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from aotc.aot.errors import KernelFailed
from aotc.aot.folders import make_owned, remove, temporary_folder
from aotc.aot.tasks.task import (
    Batch,
    Devices,
    Executor,
    Here,
    Outcome,
    Queue,
    Request,
    keep_text,
    local_devices,
    pack,
    restore,
)
from aotc.aot.tasks.worker import BODY_FILE, BOOT, read_message, write_message
from aotc.runtime.errors import AotcError
from aotc.runtime.settings import environment_without

TIMEOUT_SECONDS = 300.0
STDERR_TAIL_BYTES = 2000
TEXT_DEPTH = 3  # where `make_owned` puts it: aotc-UID/compile-…/BODY_FILE
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
TEXT_BYTES = 1 << 26  # of a failed kernel's text, as much is kept


class Workers(Executor):
    """A pool of processes; started when there is work, used again, ended by `close`."""

    def __init__(
        self,
        count: int | None = None,
        keep: Path | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        is_confined: bool = False,
    ) -> None:
        """At most `count` processes (None: one a usable processor).

        `keep` is the folder that gets the IR of kernels that fail (None: the system's temporary
        folder). A request that takes longer than the timeout fails, and its worker is ended.
        `is_confined`: the processes have no network and write into folders of their own only, not
        into the cache either, as far as the system can do that (`confine.py`).
        """
        self.count = max(1, len(os.sched_getaffinity(0)) if count is None else count)
        self.keep = Path(temporary_folder()) if keep is None else keep
        self.timeout_seconds = timeout_seconds
        self.is_confined = is_confined
        self.shares_files = not is_confined
        self.is_cancelled = threading.Event()
        self.idle: list[_Worker] = []
        self.busy: dict[_Worker, int] = {}  # the number of the request in its batch

    def begin(self) -> Batch:
        """A batch; one at a time."""
        return _Batch(self)

    def devices(self, family: str, needs: Sequence[str], is_apart: bool) -> Devices | None:
        """This machine's own, measured in this process or, apart, in one worker."""
        return local_devices(family, needs, lambda: Workers(1) if is_apart else Here())

    def cancel(self) -> None:
        """End the workers that are at work, from any thread."""
        self.is_cancelled.set()
        for worker in list(self.busy):
            worker.kill("cancelled")

    def close(self) -> None:
        """End all processes; idempotent."""
        while self.idle:
            self.idle.pop().end()


class _Batch(Queue):
    def __init__(self, pool: Workers) -> None:
        super().__init__()
        self._pool = pool

    def results(self) -> Iterator[tuple[int, Outcome]]:
        pool = self._pool
        while self.waiting or pool.busy:
            if pool.is_cancelled.is_set():
                raise CancelledError
            while self.waiting and len(pool.busy) < pool.count:
                number, request = self.waiting.popleft()
                worker = pool.idle.pop() if pool.idle else _Worker(pool.is_confined)
                worker.begin(request, pool.timeout_seconds)
                pool.busy[worker] = number
            for worker in _ready(list(pool.busy)):
                outcome = worker.finish(pool.keep)
                number = pool.busy.pop(worker)
                if worker.alive:
                    pool.idle.append(worker)
                yield number, outcome

    def close(self) -> None:
        """End the workers of what has not ended, after an exception, ctrl-c among them."""
        super().close()
        while self._pool.busy:
            self._pool.busy.popitem()[0].end()


def _ready(busy: Sequence[_Worker]) -> list[_Worker]:
    """Workers with an answer, dead ones and those over their time, which are killed first."""
    with selectors.DefaultSelector() as selector:
        for worker in busy:
            selector.register(worker.replies, selectors.EVENT_READ, worker)
        left = min(worker.deadline for worker in busy) - time.monotonic()
        ready = [key.data for key, _ in selector.select(max(0.0, left))]
    if ready:
        return ready
    late = [worker for worker in busy if time.monotonic() >= worker.deadline]
    for worker in late:
        worker.kill(f"took more than {worker.timeout_seconds:g} s")
    return late


class _Worker:
    """One process, its pipes and its folder for temporary files."""

    def __init__(self, is_confined: bool) -> None:
        path, self._lock = make_owned("worker")
        self.folder = Path(path)
        self._errors = (self.folder / "stderr").open("w+b")
        search = list(dict.fromkeys(entry or str(Path.cwd()) for entry in sys.path))
        self._process = subprocess.Popen(
            [sys.executable, "-c", BOOT, str(self.folder), "confined" * is_confined, *search],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(self.folder, is_confined),
            start_new_session=is_confined,  # without the terminal, into which it could type
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin
        self.replies = self._process.stdout
        self.alive = True
        self.started = self.deadline = self.timeout_seconds = 0.0
        self._request: Request | None = None
        self._reason = ""

    def begin(self, request: Request, timeout_seconds: float) -> None:
        self._request = request
        self.timeout_seconds = request.timeout_seconds or timeout_seconds
        self.started = time.monotonic()
        self.deadline = self.started + self.timeout_seconds
        try:
            write_message(self._requests, pack((request.function, request.arguments)))
        except BrokenPipeError:
            self.alive = False  # it died at start: `finish` meets the end of its replies

    def finish(self, keep: Path) -> Outcome:
        """Read the answer; a worker that died gives an error and is cleared away."""
        request = self._request
        assert request is not None
        value, error = None, None
        try:
            value, error = self._answer(request, keep)
        except EOFError:
            error = self._autopsy(request, keep)
        except Exception as fault:  # what a confined process sends may be anything
            self.kill(f"its worker process sent no answer ({type(fault).__name__}: {fault})")
            error = self._autopsy(request, keep)
        return Outcome(request, value, error, time.monotonic() - self.started)

    def _answer(self, request: Request, keep: Path) -> tuple[Any, AotcError | None]:
        """What the process sends, as a value or an error."""
        kind, content = read_message(self._read)
        if kind == "value":
            return content, None
        if kind == "error":
            name, fields = content
            return None, restore(name, self._rescue(fields, request.name, keep))
        detail, trace = content
        source = keep_text(keep, request.name, "txt", trace.encode())
        return None, KernelFailed(kernel=request.name, detail=detail, source=source)

    def _read(self, nbytes: int) -> bytes:
        """At most so many bytes of the answer; raises EOFError after the request's time."""
        descriptor = self.replies.fileno()
        left = self.deadline - time.monotonic()
        if not select.select([descriptor], [], [], max(0.0, left))[0]:
            self.kill(f"took more than {self.timeout_seconds:g} s")
            raise EOFError
        return os.read(descriptor, nbytes)

    def _autopsy(self, request: Request, keep: Path) -> AotcError:
        code = self._process.wait()
        nbytes = self._errors.seek(0, os.SEEK_END)
        tail = os.pread(
            self._errors.fileno(), STDERR_TAIL_BYTES, max(0, nbytes - STDERR_TAIL_BYTES)
        )
        paths = sorted(self.folder.glob("*/" * (TEXT_DEPTH - 1) + BODY_FILE))
        texts = [text for path in paths if (text := self._text(path))]
        suffix, data = ("ll", texts[0]) if texts else ("txt", tail)
        source = keep_text(keep, request.name, suffix, data)
        lines = tail.decode(errors="replace").strip().splitlines()
        said = next((line for line in lines if "LLVM ERROR" in line), lines[-1] if lines else "")
        ending = self._reason or f"its worker process ended with status {code}"
        detail = f"{ending}: {said}" if said else ending
        self.end()
        return KernelFailed(kernel=request.name, detail=detail, source=source)

    def _rescue(self, fields: dict[str, Any], name: str, keep: Path) -> dict[str, Any]:
        """Move the text that an error names out of this worker's folder."""
        source = Path(str(fields.get("source", "")))
        parts = source.parts[len(self.folder.parts) :]
        if not source.is_relative_to(self.folder) or len(parts) != TEXT_DEPTH or ".." in parts:
            return fields
        kept = keep_text(keep, name, "ll", self._text(source))
        with contextlib.suppress(OSError):  # a link in the place of the outer folder
            outer = os.open(self.folder / parts[0], FOLDER_FLAGS)
            try:
                shutil.rmtree(parts[1], ignore_errors=True, dir_fd=outer)
            finally:
                os.close(outer)
        return {**fields, "source": kept}

    def _text(self, path: Path) -> bytes:
        """A file of the process's, b"" where it is none of its folder: others' files are not read
        for a confined process, and it may have put a link or a pipe in the place."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags)
        except OSError:
            return b""
        with open(descriptor, "rb") as file:  # noqa: PTH123  a descriptor
            found = Path(f"/proc/self/fd/{descriptor}").readlink()
            is_inside = found.is_relative_to(self.folder.resolve())
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            return file.read(TEXT_BYTES) if is_inside and is_file else b""

    def kill(self, reason: str) -> None:
        self._reason = reason
        self._process.kill()

    def end(self) -> None:
        """End the process, whatever it does, and remove its folder."""
        self.alive = False
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        self.replies.close()
        self._errors.close()
        remove(str(self.folder))
        os.close(self._lock)


def _environment(folder: Path, is_confined: bool) -> dict[str, str]:
    """What the user sets for Triton is for the user's own kernels; ours depend on the build alone.

    Triton's folder is the worker's own, so that nothing is written in the user's home.
    """
    own = {"TRITON_HOME": str(folder), **({"TMPDIR": str(folder)} if is_confined else {})}
    return {**environment_without("TRITON_"), **own}
