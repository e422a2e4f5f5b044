"""Measuring by files, for any scheduler: tasks are written, `aotc measure` runs them.

A task's file is named by its digest, so that results find their tasks whoever wrote them, and what
was measured once is not measured again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from aotc.aot.tasks.errors import ResultsMissing, TasksWritten
from aotc.aot.tasks.task import (
    Batch,
    Devices,
    Executor,
    Outcome,
    Queue,
    device_word,
    resolve,
)
from aotc.aot.tasks.workers import Workers

TASK, RESULT = ".measurement", ".times"


class TaskFiles(Workers):
    """Workers of this machine that compile; what is to be measured goes through files."""

    def __init__(
        self,
        count: int | None,
        device: str,
        tasks: Path | None,
        results: Path | None,
        is_confined: bool = False,
    ) -> None:
        """`device`: what the tasks are for; `tasks`: folder that gets those without a result."""
        super().__init__(count, is_confined=is_confined)
        self._device, self._tasks, self._results = device, tasks, results

    def devices(self, family: str, needs: Sequence[str], is_apart: bool) -> Devices | None:
        """The device that was named, which this machine needs not have."""
        folder = _Folder(self._tasks, self._results)
        return Devices(device_word(self._device), folder, is_elsewhere=True)


class _Folder(Executor):
    count = 1 << 20  # all at once: nothing runs here
    runs_functions = False

    def __init__(self, tasks: Path | None, results: Path | None) -> None:
        self.tasks, self.results = tasks, results

    def begin(self) -> Batch:
        return _Batch(self)


class _Batch(Queue):
    def __init__(self, folder: _Folder) -> None:
        super().__init__()
        self._folder = folder

    def results(self) -> Iterator[tuple[int, Outcome]]:
        """Those that there are; then raises TasksWritten or ResultsMissing where some are not."""
        folder, missing = self._folder, []
        read = resolve("aotc.aot.measure.program:read_times")
        while self.waiting:
            number, request = self.waiting.popleft()
            (data,) = request.arguments
            name = task_name(data)
            path = None if folder.results is None else folder.results / (name + RESULT)
            if path is not None and path.is_file():
                yield number, Outcome(request, read(path.read_bytes(), str(path)), None, 0.0)
                continue
            missing.append(name)
            if folder.tasks is not None:
                write_whole(folder.tasks / (name + TASK), data)
        if missing and folder.tasks is not None:
            raise TasksWritten(count=len(missing), folder=str(folder.tasks))
        if missing:
            raise ResultsMissing(
                folder=str(folder.results), count=len(missing), first=missing[0] + RESULT
            )


def task_name(data: bytes) -> str:
    """The name of a task's files without their suffix."""
    return hashlib.sha256(data).hexdigest()[:32]


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
