"""Code generation in worker processes: parallel, and safe from a code generator that aborts.

LLVM ends the process on bad IR text. Here that costs one worker: the kernel that it had becomes a
typed error which names the kernel and keeps its IR in a file, and the other kernels go on.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aotc.aot.errors import KernelFailed
from aotc.aot.targets.toolchain import BODY_FILE
from aotc.aot.targets.worker import BOOT, read_message, resolve, write_message
from aotc.runtime.errors import AotcError
from aotc.runtime.settings import environment_without

TIMEOUT_SECONDS = 300.0
STDERR_TAIL_BYTES = 2000


@dataclass(frozen=True, slots=True)
class Request:
    """A function to run in a worker."""

    name: str  # of the kernel, for errors and progress
    function: str  # `package.module:function`, importable without torch
    arguments: tuple[Any, ...]  # plain values: numbers, strings, bytes, tuples, lists, dicts


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request: a value or an error."""

    request: Request
    value: Any  # plain values, as the function returned them
    error: AotcError | None
    seconds: float

    def unwrap(self) -> Any:
        """The value; raises the error."""
        if self.error is not None:
            raise self.error
        return self.value


class Workers:
    """A pool of processes; started when there is work, used again, ended by `close`."""

    def __init__(
        self,
        count: int | None = None,
        keep: Path | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """At most `count` processes (None: one a usable processor).

        `keep` is the folder that gets the IR of kernels that fail (None: the system's temporary
        folder). A request that takes longer than the timeout fails, and its worker is ended.
        """
        self.count = max(1, len(os.sched_getaffinity(0)) if count is None else count)
        self.keep = Path(tempfile.gettempdir()) if keep is None else keep
        self.timeout_seconds = timeout_seconds
        self._idle: list[_Worker] = []

    def map(
        self, requests: Sequence[Request], progress: Callable[[Outcome], None] | None = None
    ) -> list[Outcome]:
        """Run all requests and return their outcomes in the same order.

        `progress` is called in this process as each one ends. No error of a request is raised.
        """
        waiting, outcomes = deque(enumerate(requests)), {}
        busy: dict[_Worker, int] = {}
        with selectors.DefaultSelector() as selector:
            try:
                while waiting or busy:
                    while waiting and len(busy) < self.count:
                        number, request = waiting.popleft()
                        worker = self._idle.pop() if self._idle else _Worker()
                        worker.begin(request)
                        busy[worker] = number
                        selector.register(worker.replies, selectors.EVENT_READ, worker)
                    for worker in self._ready(selector, busy):
                        selector.unregister(worker.replies)
                        outcome = worker.finish(self.keep)
                        outcomes[busy.pop(worker)] = outcome
                        if worker.alive:
                            self._idle.append(worker)
                        if progress is not None:
                            progress(outcome)
            finally:
                for worker in busy:  # an exception here, ctrl-c among them
                    worker.end()
        return [outcomes[number] for number in range(len(requests))]

    def _ready(self, selector: selectors.BaseSelector, busy: dict[_Worker, int]) -> list[_Worker]:
        """Workers with an answer, dead ones and those over their time, which are killed first."""
        oldest = min(worker.started for worker in busy)
        left = oldest + self.timeout_seconds - time.monotonic()
        ready = [key.data for key, _ in selector.select(max(0.0, left))]
        if ready:
            return ready
        late = [w for w in busy if time.monotonic() - w.started >= self.timeout_seconds]
        for worker in late:
            worker.kill(f"took more than {self.timeout_seconds:g} s")
        return late

    def close(self) -> None:
        """End all processes; idempotent."""
        while self._idle:
            self._idle.pop().end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Worker:
    """One process, its pipes and its folder for temporary files."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="aotc-worker-"))
        self._errors = (self.folder / "stderr").open("wb")
        path = [entry or str(Path.cwd()) for entry in sys.path]
        self._process = subprocess.Popen(
            [sys.executable, "-c", BOOT, str(self.folder), *path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(self.folder),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin
        self.replies = self._process.stdout
        self.alive = True
        self.started = 0.0
        self._request: Request | None = None
        self._reason = ""

    def begin(self, request: Request) -> None:
        self._request = request
        self.started = time.monotonic()
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
                error = resolve(content[0])(**self._rescue(content[1], request.name, keep))
            else:
                source = _keep(keep, request.name, "txt", content[1].encode())
                error = KernelFailed(kernel=request.name, detail=content[0], source=source)
        return Outcome(request, value, error, time.monotonic() - self.started)

    def _autopsy(self, request: Request, keep: Path) -> AotcError:
        code = self._process.wait()
        tail = (self.folder / "stderr").read_bytes()[-STDERR_TAIL_BYTES:]
        texts = sorted(self.folder.rglob(BODY_FILE))
        suffix, data = ("ll", texts[0].read_bytes()) if texts else ("txt", tail)
        source = _keep(keep, request.name, suffix, data)
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
        kept = _keep(keep, name, "ll", source.read_bytes())
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


def _environment(folder: Path) -> dict[str, str]:
    """What the user sets for Triton is for the user's own kernels; ours depend on the build alone.

    Triton's folder is the worker's own, so that nothing is written in the user's home.
    """
    return {**environment_without("TRITON_"), "TRITON_HOME": str(folder)}


def _keep(folder: Path, name: str, suffix: str, data: bytes) -> str:
    """Write a failed kernel's text to a file of its own and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)
    path = folder / f"aotc-{stem}.{suffix}"
    path.write_bytes(data)
    return str(path)
