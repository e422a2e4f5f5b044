"""The stages: their names, their clock, their dump and what becomes of their errors.

One word names a stage everywhere: its function, its folder, its numbered dump, its row in the table
of times, the `stage` of an internal error and the word of `AOTC_SKIP`.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from aotc.aot.errors import InternalError, SizeUnsupported, UndecidedSize
from aotc.aot.folders import machine_fault

STAGES = ("capture", "rewrite", "schedule", "lower", "tune", "plan", "weights", "validate", "pack")


@dataclass(frozen=True, slots=True)
class StageTime:
    """One row of the table of times."""

    stage: str
    seconds: float
    detail: str  # what came out: `41 nodes`, `6 kernels, 2 compiled`
    target: str = ""  # where a build has several and the stage runs for each


class Progress(Protocol):
    """Who wants to see a build move; the command line has a bar and a plain form of it."""

    def begin(self, stage: str) -> None:
        """A stage begins."""

    def advance(self, done: int, total: int, what: str) -> None:
        """`done` of `total` items of the running stage are finished; `what` names the last."""

    def end(self, row: StageTime) -> None:
        """The running stage ended well."""

    def stop(self) -> None:
        """The build is over, well or not; may be called again."""


class Quiet:
    """Progress that nobody sees."""

    def begin(self, stage: str) -> None:
        """Nothing."""

    def advance(self, done: int, total: int, what: str) -> None:
        """Nothing."""

    def end(self, row: StageTime) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""


@dataclass(slots=True)
class Clock:
    """Runs stages one after the other and keeps their times and texts."""

    progress: Progress = field(default_factory=Quiet)
    rows: list[StageTime] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)  # dump name → text
    detail: str = ""
    has_targets: bool = (
        False  # whether there are several, so that rows and texts have to name theirs
    )
    target: str = ""  # the one at work; empty in stages that run once

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[Clock]:
        """Time the block as stage `name`; set `detail` inside it for the table.

        A dynamic size that was asked for leaves as SizeUnsupported, an error that is not ours as
        InternalError: a bug of the stage.
        """
        self.detail = ""
        self.progress.begin(name)
        started_s = time.perf_counter()
        try:
            with heap_set_aside():
                yield self
        except Exception as error:
            if isinstance(error, UndecidedSize):
                raise SizeUnsupported(kernel=name, detail=str(error), source="") from None
            if hasattr(error, "exit_code"):
                raise
            fault = machine_fault(error)
            if fault is not None:
                raise fault from error
            raise InternalError(stage=name, detail=_first_line(error)) from error
        target = self.target if self.has_targets else ""
        row = StageTime(name, time.perf_counter() - started_s, self.detail, target)
        self.rows.append(row)
        self.progress.end(row)

    def dump(self, stage: str, text: str) -> None:
        """Keep a stage's text under its numbered name: `1-rewrite.txt`, `1-rewrite.cuda.txt`."""
        target = f".{self.target}" if self.target and self.has_targets else ""
        self.texts[f"{STAGES.index(stage)}-{stage}{target}.txt"] = text


@dataclass(slots=True)
class Heap:
    """What is known of the objects that Python's collector leaves alone."""

    is_frozen: bool = False  # a caller had frozen some
    stages: int = 0  # those that have set the heap aside and still run

    def is_left_alone(self) -> bool:
        """Whether a stage has nothing to set aside: a caller did, or a stage that it is part of.

        Python counts frozen objects by walking them, 0.1 s a million: a caller's are counted once.
        """
        if not self.stages:
            self.is_frozen = self.is_frozen or gc.get_freeze_count() > 0
        return self.is_frozen or self.stages > 0


_heap = Heap()


@contextlib.contextmanager
def heap_set_aside() -> Iterator[None]:
    """Inside, Python's collector looks at objects made inside only.

    A full collection walks every object that is alive: after torch.export that is some thousand for
    each node, so that a stage would pay for the model and for whatever else the process holds. A
    caller who has frozen objects (`gc.freeze`) keeps them so, and nothing is done here.
    """
    if _heap.is_left_alone():
        yield
        return
    gc.freeze()
    _heap.stages += 1
    try:
        yield
    finally:
        _heap.stages -= 1
        gc.unfreeze()


def write_texts(folder: Path, texts: dict[str, str]) -> None:
    """Write dumped texts below `folder`, making folders as names ask for them."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
