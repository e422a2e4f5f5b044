"""Writes failing programs: reduced where that is possible, named by family and seed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from fuzz.program import Program
from fuzz.reduce import Reducer
from fuzz.trial import WRONG, Outcome, Task, tried
from fuzz.ways import Bench


def saved(task: Task, outcome: Outcome, bench: Bench, folder: Path, seconds: float) -> Path:
    """Make the program of an outcome small, and write it with what differed."""
    way, target = outcome.way.split()
    program = task.program()
    last = outcome.reason

    def fails(candidate: Program) -> bool:
        nonlocal last
        verdict, reason, _ = tried(candidate, way, target, bench)
        if verdict != outcome.verdict or kind(verdict, reason) != kind(verdict, outcome.reason):
            return False
        last = reason
        return True

    small = Reducer(program, fails, seconds * 0.8).reduced()
    title = f"{task}, {outcome.way}, {outcome.verdict}: {last}"
    return _write(small, folder, task, title)


def saved_whole(task: Task, folder: Path, title: str) -> Path:
    """Write a program as it is."""
    return _write(task.program(), folder, task, title)


def kind(verdict: str, reason: str) -> str:
    """What failures must share to be one: the error without its numbers and names."""
    if verdict == WRONG:
        return ""
    return re.sub(r"[\d_.x]+", "", reason.splitlines()[0])[:60]


def _write(program: Program, folder: Path, task: Task, title: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{str(task).replace(' ', '_')}.py"
    text = title.replace("\\", "/").replace('"""', "'''")
    path.write_text(replace(program, label=text).source(), encoding="utf-8")
    return path
