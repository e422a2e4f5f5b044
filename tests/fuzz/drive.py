"""Tasks over processes that live long: each draws, runs and judges one program after another.

A process that dies, or that is ended because a program took too long, is that program's outcome,
with the lines where it died; another takes its place. One whose memory grew, or that has served
many programs, is replaced too. The process that begins them draws and runs nothing itself: eager
torch ends a process, too.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fuzz.trial import BAD, INTERNAL, LATE, TORCH_DIES, UNJUDGEABLE, Outcome, Task

CONTEXT = multiprocessing.get_context("spawn")  # a device's context does not survive a fork
LIMIT_SECONDS = 60.0  # of processor time, its compiler's too
JUDGE_SECONDS = 240.0  # of processor time: eager torch, moved some thirty times
IDLE_SECONDS = 600.0  # on the clock, however busy the machine is
REDUCTION_SECONDS = 90.0
MOST_PROGRAMS = 400  # of one process
MOST_BYTES = 4 * 2**30
ENDED = (EOFError, BrokenPipeError, ConnectionResetError)


@dataclass(frozen=True, slots=True)
class Setting:
    """Where programs run and what becomes of those that fail."""

    target: str
    cache: Path
    found: Path  # folder that gets reduced programs
    is_reducing: bool = True


@dataclass(frozen=True, slots=True)
class Finished:
    """A task with its outcomes."""

    task: Task
    outcomes: tuple[Outcome, ...]


def run(tasks: Iterator[Task], jobs: int, setting: Setting, until: float) -> Iterator[Finished]:
    """Each task with its outcomes as it is done; no task begins after `until` (monotonic)."""
    idle = deque(_Process(setting) for _ in range(jobs))
    busy: dict[Any, _Process] = {}
    try:
        while True:
            while idle and time.monotonic() < until:
                task = next(tasks, None)
                if task is None:
                    break
                process = idle.popleft()
                process.begin(task)
                busy[process.pipe] = process
            if not busy:
                return
            ready = wait(list(busy), timeout=1.0)
            late = [pipe for pipe, process in busy.items() if process.is_late()]
            for pipe in {*ready, *late}:
                process = busy[pipe]
                finished = process.advance()
                if finished is not None:
                    del busy[pipe]
                    idle.append(process)
                    yield finished
    finally:
        for process in (*idle, *busy.values()):
            process.end()


class _Process:
    """One process, started when there is a task for it."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.pipe: Any = None
        self._process: Any = None
        self._task: Task | None = None
        self._outcomes: list[Outcome] = []
        self._limit = self._used = 0.0
        self._is_judging = False

    def begin(self, task: Task) -> None:
        """Give it a task."""
        if self._process is None or not self._process.is_alive():
            self.pipe, theirs = CONTEXT.Pipe()
            arguments = (theirs, self.setting)
            self._process = CONTEXT.Process(target=_serve, args=arguments, daemon=True)
            self._process.start()
            theirs.close()
        self._task, self._outcomes, self._is_judging = task, [], False
        self._allow(LIMIT_SECONDS)
        self.pipe.send(task)

    def _allow(self, seconds: float) -> None:
        """Begin to count the time of what it does now."""
        self._limit = time.monotonic() + IDLE_SECONDS + seconds
        self._used = _processor_seconds(self._process.pid) + seconds

    def is_late(self) -> bool:
        """Whether what it does now takes too long."""
        late = _processor_seconds(self._process.pid) > self._used
        return late or time.monotonic() > self._limit

    def advance(self) -> Finished | None:
        """Take in what it says; the task's outcomes where it has ended."""
        assert self._task is not None
        try:
            if not self.pipe.poll():
                if not self.is_late():
                    return None
                if self._is_judging:
                    return self._ended(UNJUDGEABLE, f"judging took more than {JUDGE_SECONDS:g} s")
                return self._ended(LATE, f"took more than {LIMIT_SECONDS:g} s")
            message = self.pipe.recv()
        except ENDED:
            self._process.join()
            return self._ended(INTERNAL, _death(self._process.exitcode, self._stack()))
        kind, value = message
        self._is_judging = kind == "judging"
        if self._is_judging:
            self._allow(JUDGE_SECONDS)
            return None
        if kind == "outcome":
            self._outcomes.append(value)
            more = REDUCTION_SECONDS if value.verdict in BAD else 0.0
            self._allow(LIMIT_SECONDS + more)
            return None
        finished = Finished(self._task, tuple(self._outcomes))
        if value:  # it wants to be replaced
            self.end()
        return finished

    def _stack(self) -> Path:
        """The file that a dying process writes its lines to."""
        return self.setting.cache.parent / f"stack-{self._process.pid}"

    def _ended(self, verdict: str, reason: str) -> Finished:
        """The outcome of a task whose process is no more."""
        task = self._task
        assert task is not None
        self.end()
        known = [each for each in self._outcomes if each.verdict in BAD]
        way = known[0].way if known else "?"
        arguments = task, self.setting.found, f"{verdict}: {reason}"
        is_drawn = _survives(_save, arguments)
        if not known and verdict == INTERNAL and not (is_drawn and _survives(_export, (task,))):
            verdict = TORCH_DIES
        if known and verdict in (LATE, UNJUDGEABLE):  # it took too long to make the program smaller
            return Finished(task, tuple(self._outcomes))
        if known:
            reason = f"{reason}, as the program was made smaller"
        outcome = Outcome(str(task), task.family, way, verdict, reason)
        return Finished(task, (*self._outcomes, outcome))

    def end(self) -> None:
        """End the process."""
        if self._process is None:
            return
        self.pipe.close()
        self._process.kill()
        self._process.join()
        self._process = None


def _death(code: int, stack: Path) -> str:
    """How a process died, and where its Python was, the innermost line first."""
    name = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit status {code}"
    lines = stack.read_text(errors="replace").splitlines() if stack.exists() else []
    at = next((number for number, each in enumerate(lines) if "Current thread" in each), len(lines))
    frames = [each.split('"')[1:] for each in lines[at + 1 :] if each.startswith("  File ")]
    places = [
        name if name.startswith("<") else f"{name.rpartition('/')[2]}:{rest.split()[2]}"
        for name, rest in frames[:8]
    ]
    return f"the process died by {name}" + (f" in {' < '.join(places)}" if places else "")


def _survives(function: Callable[..., None], arguments: tuple[Any, ...]) -> bool:
    """Whether a process of its own in which eager torch runs, and no kernel of ours, is not ended
    by a signal."""
    process = CONTEXT.Process(target=function, args=arguments, daemon=True)
    process.start()
    process.join(LIMIT_SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        return True
    return process.exitcode >= 0


def _export(task: Task) -> None:
    """Export a program and run it with torch, at other sizes too where some vary."""
    from aotc.aot.capture.capture import capture
    from aotc.aot.capture.spec import load_spec

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(task.program().source(), encoding="utf-8")
        capture(load_spec(str(path)))


def _save(task: Task, folder: Path, title: str) -> None:
    from fuzz.save import saved_whole

    saved_whole(task, folder, title)


def _serve(pipe: Connection, setting: Setting) -> None:
    """In a process: run the tasks that come until the pipe is closed."""
    import faulthandler
    import logging
    import warnings

    import torch

    from fuzz.save import saved
    from fuzz.trial import outcomes
    from fuzz.ways import Bench

    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False  # the judge's answers are of f32
    faulthandler.enable((setting.cache.parent / f"stack-{os.getpid()}").open("w"))
    count = 0
    with Bench.opened(setting.cache) as bench:
        bench.judging = lambda: pipe.send(("judging", None))
        while True:
            try:
                task = pipe.recv()
            except ENDED:
                return
            for outcome in outcomes(task, bench, setting.target):
                pipe.send(("outcome", outcome))
                if outcome.verdict in BAD and setting.is_reducing:
                    saved(task, outcome, bench, setting.found, REDUCTION_SECONDS)
            count += 1
            pipe.send(("done", count >= MOST_PROGRAMS or _bytes_in_use() > MOST_BYTES))


def _bytes_in_use() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _processor_seconds(pid: int) -> float:
    """What a process and its children have used so far."""
    total = 0.0
    for each in (pid, *_children(pid)):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, path.read_text().split())
        except OSError:
            continue
    return found
