"""Models over processes with a limit of time each: one that hangs or dies costs itself only."""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch

from aotc.aot.tasks.workers import Workers
from benchmarks.breadth import timm_models, transformers_models
from benchmarks.breadth.judge import BROKEN, Outcome, judged

CONTEXT = multiprocessing.get_context("spawn")
LIBRARIES = {"transformers": transformers_models, "timm": timm_models}
MODELS_LIMIT = 25  # of one process, since libraries keep what they made
GRACE_SECONDS = 5.0


def outcomes_of(
    names: Sequence[str], jobs: int, limit_seconds: float, setting: Mapping[str, Any]
) -> Iterator[Outcome]:
    """One outcome a name as it is found, by `jobs` processes that share the cores."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        waiting.put(name)
    done: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()
    cores = sorted(os.sched_getaffinity(0))
    for at in range(min(jobs, len(names))):
        own = list(cores[at::jobs]) or [cores[at % len(cores)]]
        process = _Process({**setting, "cores": own}, limit_seconds)
        threading.Thread(target=_drain, args=(waiting, done, process), daemon=True).start()
    for _ in names:
        item = done.get()
        if isinstance(item, BaseException):
            raise item
        yield item


def _drain(waiting: queue.SimpleQueue[str], done: Any, process: _Process) -> None:
    try:
        while True:
            done.put(process.outcome(waiting.get_nowait()))
    except queue.Empty:
        pass
    except BaseException as error:
        done.put(error)
    finally:
        process.end()


class _Process:
    """One process, started when there is a model for it."""

    def __init__(self, setting: Mapping[str, Any], limit_seconds: float) -> None:
        self._setting, self._limit_seconds = setting, limit_seconds
        self._process: Any = None
        self._pipe: Any = None
        self._count = 0

    def outcome(self, name: str) -> Outcome:
        """What became of one model; one that ends the process or takes too long is broken."""
        if self._count >= MODELS_LIMIT:
            self.end()
        if self._process is None:
            self._pipe, theirs = CONTEXT.Pipe()
            arguments = (theirs, self._setting)
            self._process, self._count = CONTEXT.Process(target=_serve, args=arguments), 0
            self._process.start()
            theirs.close()
        self._count += 1
        try:
            self._pipe.send(name)
            if not self._pipe.poll(self._limit_seconds):
                self.end()
                reason = f"longer than {self._limit_seconds:.0f} s"
                return Outcome(name, "", BROKEN, reason, seconds=self._limit_seconds)
            found: Outcome = self._pipe.recv()
        except (EOFError, OSError):
            return Outcome(name, "", BROKEN, f"its process ended with {self.end()}")
        return found

    def end(self) -> int | None:
        """Ends the process; its exit code."""
        if self._process is None:
            return None
        self._pipe.close()
        self._process.join(GRACE_SECONDS)
        self._process.kill()
        self._process.join()
        code: int | None = self._process.exitcode
        self._process = None
        return code


def _serve(pipe: Connection, setting: Mapping[str, Any]) -> None:
    """Judges the models that come until the pipe is closed."""
    warnings.simplefilter("ignore")
    os.sched_setaffinity(0, setting["cores"])
    torch.set_num_threads(len(setting["cores"]))
    torch.backends.cudnn.allow_tf32 = False  # a model in f64 judges, so convolutions are of f32
    library = LIBRARIES[setting["library"]]
    with Workers(len(setting["cores"])) as staff:
        while True:
            try:
                name = pipe.recv()
            except (EOFError, OSError):
                return
            pipe.send(judged(name, library.make, setting, staff))
            torch._dynamo.reset()
