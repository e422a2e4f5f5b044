"""How the arguments and results of a graph belong to a program's inputs and outputs, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aotc.aot.capture.aten_signature import Fixed, Given, Made, Passed, Shown, Taken, Viewed
from aotc.runtime.bundle.extent import Row


@dataclass(frozen=True, slots=True)
class Numbered:
    """A size of the call: value `index` of the interface's rows."""

    index: int


@dataclass(frozen=True, slots=True)
class Interface:
    """One graph's. Plain data: it is stored beside torch's own record of a compiled function.

    taken, made: one an input and an output of the program. dims: where each size of a call is read:
    (argument, axis), or (argument, None) where the argument is the number itself. rows: what is
    computed of them, as `runtime/bundle/extent.py` has it.
    """

    taken: tuple[Taken | Shown, ...]
    made: tuple[Made, ...]
    results: tuple[Given | Passed | Viewed | Fixed | Numbered, ...]
    dims: tuple[tuple[int, int | None], ...] = ()
    rows: tuple[Row, ...] = ()

    @property
    def has_program(self) -> bool:
        """Whether anything is computed."""
        return bool(self.made)


def number_of(value: Any, values: list[int]) -> int:
    """A number of the interface at a call's sizes."""
    return values[value.index] if isinstance(value, Numbered) else value
