"""Runs the steps of a benchmark: one process a step, results as JSON files in a folder.

A step whose file is there is not run again, so that a run that was cut off goes on; the compiler
caches of all contenders lie in the same folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cores import Cores

ROOT = Path(__file__).resolve().parents[1]
POLL_SECONDS = 0.1

READY = ".ready"  # the suffix of the file by which a step says that it waits for its turn


@dataclass(frozen=True, slots=True)
class Step:
    """A process: where its result goes, what it is about, its arguments after `python`.

    niceness: how far it gives way to others that run at the same time, 0 to 19; settings: variables
    of its environment.
    """

    part: str
    name: str
    command: tuple[str, ...]
    has_own_file: bool = True  # else its standard output is the result
    niceness: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Running:
    """A step's process, since when it runs, and where its output goes."""

    step: Step
    process: subprocess.Popen[str]
    log: Path
    began_s: float


@dataclass(slots=True)
class Suite:
    """A folder of results and caches, and a time by which everything must have ended."""

    work: Path
    seconds: float
    tune: str = "quick"
    started_s: float = field(default_factory=time.monotonic)

    def result(self, part: str, name: str) -> Path:
        """The file of a step's result."""
        return self.work / f"{part}-{name}.json"

    def left_s(self) -> float:
        """Seconds until everything must have ended."""
        return self.seconds - (time.monotonic() - self.started_s)

    def read(self, part: str, name: str) -> dict[str, Any]:
        """A step's result; empty when there is none."""
        path = self.result(part, name)
        if not path.is_file():
            return {}
        record: dict[str, Any] = json.loads(path.read_text())
        return record

    def one_by_one(self, steps: Sequence[Step]) -> None:
        """Run each step that has no result yet, alone on the machine."""
        for step in self._open(steps):
            if self.left_s() < 5:
                print(f"{step.part} {step.name}: no time left", flush=True)
                return
            self._finish([self._begin(step)])

    def together(self, steps: Sequence[Step], reserve_s: float = 0.0) -> None:
        """Run the steps that have no result yet side by side.

        What still runs when only `reserve_s` are left is ended.
        """
        open_steps = self._open(steps)
        self._finish([self._begin(step) for step in open_steps], reserve_s)

    def on_cores(
        self,
        steps: Sequence[Step],
        groups: Sequence[Cores],
        reserve_s: float = 0.0,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """Run the steps that have no result yet, each on a group of cores that it has for itself.

        `ended` is called after each. When only `reserve_s` are left, what runs is ended and the
        rest is not begun.
        """
        waiting, free = deque(self._open(steps)), list(groups)
        taken: dict[int, Cores] = {}  # process → its cores
        running: list[Running] = []
        try:
            while (waiting or running) and self.left_s() > reserve_s:
                while waiting and free:
                    row = self._begin(waiting.popleft())
                    running.append(row)
                    taken[row.process.pid] = free.pop()
                    with contextlib.suppress(ProcessLookupError):
                        os.sched_setaffinity(row.process.pid, taken[row.process.pid])
                for row in [row for row in running if row.process.poll() is not None]:
                    running.remove(row)
                    free.append(taken.pop(row.process.pid))
                    _end(row)
                    self._keep(row, is_late=False)
                    ended()
                time.sleep(POLL_SECONDS)
        finally:
            for row in running:
                _end(row)
        for row in running:
            self._keep(row, is_late=True)
        for step in waiting:
            print(f"{step.part} {step.name}: no time left", flush=True)

    def in_turns(self, steps: Sequence[Step]) -> None:
        """Prepare the steps side by side; once all are ready or failed, let one after the other go.

        The processor and the device are then free for the one whose turn it is.
        """
        running = [self._begin(step) for step in self._open(steps)]
        try:
            while self.left_s() > 0 and any(map(self._prepares, running)):
                time.sleep(POLL_SECONDS)
            for row in running:
                assert row.process.stdin is not None
                row.process.stdin.close()
                self._finish([row])
        finally:
            for row in running:
                _end(row)

    def _open(self, steps: Sequence[Step]) -> list[Step]:
        return [step for step in steps if not self.result(step.part, step.name).is_file()]

    def _prepares(self, row: Running) -> bool:
        ready = self.result(row.step.part, row.step.name).with_suffix(READY)
        return row.process.poll() is None and not ready.exists()

    def _begin(self, step: Step) -> Running:
        log = self.work / f"{step.part}-{step.name}.log"
        self.result(step.part, step.name).with_suffix(READY).unlink(missing_ok=True)
        with log.open("w") as out, log.with_suffix(".err").open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, *step.command],
                env=self._environment(step),
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=errors,
                text=True,
                start_new_session=True,  # so that its compilers can be ended with it
            )
        with contextlib.suppress(ProcessLookupError):  # where it has ended already
            os.setpriority(os.PRIO_PROCESS, process.pid, step.niceness)
        return Running(step, process, log, time.monotonic())

    def _environment(self, step: Step) -> dict[str, str]:
        return {
            **os.environ,
            **step.settings,
            "AOTC_CACHE_DIR": str(self.work / "cache"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.work / "inductor"),
            "TRITON_CACHE_DIR": str(self.work / "triton"),
        }

    def _finish(self, running: Sequence[Running], reserve_s: float = 0.0) -> None:
        """Wait for the processes, end those that are still there when the time is up."""
        waiting = list(running)
        try:
            while waiting:
                is_late = self.left_s() <= reserve_s
                for row in list(waiting):
                    has_ended = row.process.poll() is not None
                    if is_late or has_ended:
                        _end(row)
                        self._keep(row, is_late and not has_ended)
                        waiting.remove(row)
                if waiting:
                    time.sleep(POLL_SECONDS)
        finally:  # ctrl-c does not reach them
            for row in waiting:
                _end(row)

    def _keep(self, row: Running, is_late: bool) -> None:
        """Say how a step ended, and write its result where it has not done so itself."""
        step, seconds, code = row.step, time.monotonic() - row.began_s, row.process.returncode
        path, out = self.result(step.part, step.name), row.log.read_text()
        status = "out of time" if is_late else f"status {code}"
        print(f"{step.part} {step.name}: {seconds:.1f} s, {status}", flush=True)
        path.with_suffix(READY).unlink(missing_ok=True)
        if code:
            errors = row.log.with_suffix(".err").read_text()
            print("\n".join([*out.splitlines()[-3:], *errors.splitlines()[-6:]]), flush=True)
        elif not step.has_own_file:
            start = out.find("{\n")
            record = json.loads(out[start:]) if start >= 0 else {"text": out}
            path.write_text(json.dumps({**record, "step_seconds": seconds}, indent=1) + "\n")


def _end(row: Running) -> None:
    """End a process, and with it the compilers that it has started."""
    if row.process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(row.process.pid, signal.SIGKILL)
    row.process.wait()
