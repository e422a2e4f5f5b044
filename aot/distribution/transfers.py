"""Transfers side by side: a few threads, one place that counts bytes, and an end for all of them
when one fails."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

from aotc.aot.stages import Progress, Quiet
from aotc.runtime.errors import EnvironmentFault

JOBS = max(4, min(16, len(os.sched_getaffinity(0))))  # each digests what it receives


class Cancelled(Exception):
    """Another transfer failed, and this one need not go on."""


def submit(pool: ThreadPoolExecutor, task: Callable[..., None], *given: object) -> Future[None]:
    """A call by a thread of the pool. Raises `EnvironmentFault` where none can be started."""
    try:
        return pool.submit(task, *given)
    except RuntimeError as error:
        raise EnvironmentFault(action="start", path="a thread", detail=str(error)) from error


class Transfers:
    """Bytes transferred so far, for one push or pull."""

    def __init__(self, total_bytes: int, progress: Progress | None = None) -> None:
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._progress = progress or Quiet()
        self._total_bytes = total_bytes
        self.nbytes = 0

    def count(self, nbytes: int) -> None:
        """Add bytes that went over the network; raises `Cancelled` where another one failed."""
        if self._is_over.is_set():
            raise Cancelled
        with self._lock:
            self.nbytes += nbytes
            done, total = (each // 1_000_000 for each in (self.nbytes, self._total_bytes))
            self._progress.advance(done, total, "MB")

    def run(self, tasks: Iterable[Callable[[], None]], jobs: int) -> None:
        """Call all tasks, `jobs` at a time; raises what the first that fails does, after the others
        have ended."""
        with ThreadPoolExecutor(max(1, jobs)) as pool:
            try:
                futures = [submit(pool, task) for task in tasks]
                done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                errors = [error for each in done if (error := each.exception()) is not None]
            except BaseException:
                self._end(pool)
                raise
            if errors:
                self._end(pool)
        for error in errors:
            if not isinstance(error, Cancelled):
                raise error

    def _end(self, pool: ThreadPoolExecutor) -> None:
        self._is_over.set()
        pool.shutdown(wait=False, cancel_futures=True)
