"""Code generation in worker processes: parallel, and safe from a code generator that aborts.

LLVM ends the process on bad IR text. Here that costs one worker: the kernel that it had becomes a
typed error which names the kernel and keeps its IR in a file, and the other kernels go on.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from aotc.aot.errors import KernelFailed
from aotc.aot.folders import make_owned
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
    restore,
)
from aotc.aot.tasks.worker import BODY_FILE, BOOT, read_message, write_message
from aotc.runtime.errors import AotcError
from aotc.runtime.settings import environment_without

TIMEOUT_SECONDS = 300.0
STDERR_TAIL_BYTES = 2000


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
        self.keep = Path(tempfile.gettempdir()) if keep is None else keep
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
        self._errors = (self.folder / "stderr").open("wb")
        search = [entry or str(Path.cwd()) for entry in sys.path]
        self._process = subprocess.Popen(
            [sys.executable, "-c", BOOT, str(self.folder), "confined" * is_confined, *search],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(self.folder, is_confined),
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
            write_message(self._requests, (request.function, request.arguments))
        except BrokenPipeError:
            self.alive = False  # it died at start: `finish` meets the end of its replies

    def finish(self, keep: Path) -> Outcome:
        """Read the answer; a worker that died gives an error and is cleared away."""
        request = self._request
        assert request is not None
        value, error = None, None
        try:
            kind, content = read_message(self.replies)
        except EOFError:
            error = self._autopsy(request, keep)
        else:
            if kind == "value":
                value = content
            elif kind == "error":
                error = restore(content[0], self._rescue(content[1], request.name, keep))
            else:
                source = keep_text(keep, request.name, "txt", content[1].encode())
                error = KernelFailed(kernel=request.name, detail=content[0], source=source)
        return Outcome(request, value, error, time.monotonic() - self.started)

    def _autopsy(self, request: Request, keep: Path) -> AotcError:
        code = self._process.wait()
        tail = (self.folder / "stderr").read_bytes()[-STDERR_TAIL_BYTES:]
        texts = sorted(self.folder.rglob(BODY_FILE))
        suffix, data = ("ll", texts[0].read_bytes()) if texts else ("txt", tail)
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
        if not source.is_relative_to(self.folder):
            return fields
        kept = keep_text(keep, name, "ll", source.read_bytes())
        shutil.rmtree(source.parent, ignore_errors=True)
        return {**fields, "source": kept}

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
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def _environment(folder: Path, is_confined: bool) -> dict[str, str]:
    """What the user sets for Triton is for the user's own kernels; ours depend on the build alone.

    Triton's folder is the worker's own, so that nothing is written in the user's home.
    """
    own = {"TRITON_HOME": str(folder), **({"TMPDIR": str(folder)} if is_confined else {})}
    return {**environment_without("TRITON_"), **own}
