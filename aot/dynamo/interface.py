"""How the arguments and results of a graph belong to a program's inputs and outputs, as data."""

from __future__ import annotations

from dataclasses import dataclass

from aotc.aot.capture.aten_ends import Fixed, Made, Passed, Shown, Taken, Viewed
from aotc.runtime.extent import Row


@dataclass(frozen=True, slots=True)
class Numbered:
    """A result that is a size of the call: value `index` of the interface's rows."""

    index: int


@dataclass(frozen=True, slots=True)
class Interface:
    """One graph's. Plain data: it is stored beside torch's own record of a compiled function.

    dims: where each size of a call is read: (argument, axis), or (argument, None) where the
    argument is the number itself. rows: what is computed of them, as `runtime/extent.py` has it.
    """

    taken: tuple[Taken | Shown, ...]
    results: tuple[Made | Passed | Viewed | Fixed | Numbered, ...]
    dims: tuple[tuple[int, int | None], ...] = ()
    rows: tuple[Row, ...] = ()

    @property
    def has_program(self) -> bool:
        """Whether anything is computed."""
        return any(isinstance(row, Made) for row in self.results)
