"""Pieces of a run over processes of their own: each has its share of the cores.

A process that dies, as one does whose kernel writes where it must not, costs the samples it had:
its piece is driven again record by record, so that one record answers for it. One that gave a
broken outcome is replaced too, since a device's context may be lost with it.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from benchmarks.operators.drive import BROKEN, Outcome, drive, interpreted, native
from benchmarks.operators.samples import Sample, samples_of

CONTEXT = multiprocessing.get_context("spawn")  # a device's context does not survive a fork
GRACE_SECONDS = 20.0  # for a process to end its own workers
ENDED = (EOFError, BrokenPipeError, ConnectionResetError)


@dataclass(frozen=True, slots=True)
class Piece:
    """The first samples (limit 0: all) of some records in one element type."""

    dtype: str
    records: tuple[str, ...]
    limit: int

    def __str__(self) -> str:
        return f"{self.dtype} {' '.join(self.records)}"

    def samples(self) -> list[Sample]:
        """Of every record, in order."""
        return [
            each
            for record in self.records
            for each in samples_of(record, self.dtype, self.limit or None)
        ]

    def parts(self) -> list[Piece]:
        """One piece a record."""
        return [Piece(self.dtype, (record,), self.limit) for record in self.records]


@dataclass(frozen=True, slots=True)
class Setting:
    """Where pieces run: a target, or where `target` is empty the interpreter in numpy."""

    target: str
    cache_dir: Path


def outcomes_of(
    pieces: Sequence[Piece], count: int, setting: Setting
) -> Iterator[tuple[Piece, list[Outcome]]]:
    """Each piece with its outcomes as it is done; at most `count` at a time."""
    waiting: queue.SimpleQueue[Piece] = queue.SimpleQueue()
    for piece in pieces:
        waiting.put(piece)
    done: queue.SimpleQueue[tuple[Piece, list[Outcome]] | BaseException] = queue.SimpleQueue()
    for cores in shares(sorted(os.sched_getaffinity(0)), min(count, len(pieces))):
        arguments = (waiting, done, cores, setting)
        threading.Thread(target=_drain, args=arguments, daemon=True).start()
    for _ in pieces:
        item = done.get()
        if isinstance(item, BaseException):
            raise item
        yield item


def shares(cores: Sequence[int], count: int) -> list[list[int]]:
    """The cores dealt out to `count` processes, which share them where there are too few."""
    return [list(cores[at::count]) or [cores[at % len(cores)]] for at in range(count)]


def _drain(
    waiting: queue.SimpleQueue[Piece], done: Any, cores: list[int], setting: Setting
) -> None:
    process = _Process(cores, setting)
    try:
        while True:
            piece = waiting.get_nowait()
            done.put((piece, process.outcomes(piece)))
    except queue.Empty:
        pass
    except BaseException as error:
        done.put(error)
    finally:
        process.end()


class _Process:
    """One process, started when there is a piece for it."""

    def __init__(self, cores: list[int], setting: Setting) -> None:
        self._given = (cores, setting)
        self._process: Any = None
        self._pipe: Any = None

    def outcomes(self, piece: Piece) -> list[Outcome]:
        """What became of the piece's samples; those that end the process are broken."""
        if self._process is None:
            self._pipe, theirs = CONTEXT.Pipe()
            self._process = CONTEXT.Process(target=_serve, args=(theirs, *self._given), daemon=True)
            self._process.start()
            theirs.close()
        try:
            self._pipe.send(piece)
            found: list[Outcome] = self._pipe.recv()
        except ENDED:
            code = self.end()
            if len(piece.records) > 1:
                return [each for part in piece.parts() for each in self.outcomes(part)]
            reason = f"the process that ran it ended with {code}"
            return [
                Outcome(each.operator, each.dtype, each.number, BROKEN, reason)
                for each in piece.samples()
            ]
        if any(outcome.verdict == BROKEN for outcome in found):
            self.end()
        return found

    def end(self) -> int | None:
        """Ends the process; its exit code, negative for a signal."""
        if self._process is None:
            return None
        self._pipe.close()
        self._process.join(GRACE_SECONDS)
        self._process.terminate()
        self._process.join()
        code: int | None = self._process.exitcode
        self._process = None
        return code


def _serve(pipe: Connection, cores: list[int], setting: Setting) -> None:
    """Drives the pieces that come until the pipe is closed."""
    warnings.simplefilter("ignore")
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(len(cores))
    with native(setting.cache_dir, setting.target or "cpu") as compiled:
        run = compiled if setting.target else interpreted
        while True:
            try:
                piece = pipe.recv()
            except ENDED:
                return
            pipe.send(drive(piece.samples(), run))
