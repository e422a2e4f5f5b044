"""Control steps of a plan: branches and loops over the steps between them.

    if condition     the steps up to `else` run if the condition is not 0, else those behind it
    else
    while condition  the steps up to `end` run again and again while the condition is not 0
    repeat count     the steps up to `end` run `count` times
    end              of the block that began last

A condition is one byte of a buffer, or all of a weight, an input, an output or a state. Blocks may
be nested. All of their steps address the memory of the whole plan, so the rules for other steps
hold for steps in a block too.
"""

from __future__ import annotations

from ..record import Record, field
from .extent import Number
from .plan_parts import ELEMENTS_LIMIT, MEMORY, NUMBERS
from .schema import Choice, Optional

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .plan_parts import Spans
    from .schema import Broken

CONDITIONAL = ("if", "while")
WORDS = (*CONDITIONAL, "repeat", "else", "end")
DEPTH_LIMIT = 64  # of blocks within each other
CONDITION_BYTES = 1


class ControlStep(Record):
    """The beginning, the `else` or the end of a block of steps; see above. condition: (space,
    value) of `if` and `while`; count: of `repeat`, 0 elsewhere."""

    kind = "control"
    word: str = field(Choice(*WORDS))
    condition: tuple[str, int | str] | None = field(Optional(MEMORY), default=None)
    count: int = field(Number(0, ELEMENTS_LIMIT), default=0)

    @property
    def memory(self) -> tuple[tuple[str, int | str], ...]:
        """(space, value) of all that it names."""
        return () if self.condition is None else (self.condition,)

    @property
    def text(self) -> str:
        """What it is in lists of steps: `repeat 8`."""
        return f"{self.word} {self.count}" if self.word == "repeat" else self.word

    def moved(self, to: Callable[[str, int | str], tuple[str, Any]]) -> ControlStep:
        """The same step with its condition in the memory that `to` gives."""
        return self if self.condition is None else self.replace(condition=to(*self.condition))


def broken_control_step(mark: ControlStep, field: str, buffers: Spans) -> Broken:
    """What is wrong with a control step at given sizes."""
    for space, value in mark.memory:
        if space == "check" or space in NUMBERS:
            yield f"{field}.condition", f"`{space}`", "memory"
        elif space == "arena" and not buffers.holds(int(value), CONDITION_BYTES):
            expected = "a byte inside one buffer of the arena"
            yield f"{field}.condition", f"arena offset {value}", expected


def broken_blocks(steps: Iterable[Any], field: str) -> Broken:
    """Control steps that do not form nested blocks, at any sizes."""
    opened: list[str] = []
    for number, step in enumerate(steps):
        if type(step) is not ControlStep:
            continue
        word, where = step.word, f"{field}[{number}]"
        if (step.condition is not None) != (word in CONDITIONAL):
            expected = "a condition" if word in CONDITIONAL else "nil"
            yield f"{where}.condition", step.condition, f"{expected}, as of `{word}`"
        if word != "repeat" and step.count != 0:
            yield f"{where}.count", "a number", f"0, as of `{word}`"
        if word == "end" and opened:
            opened.pop()
        elif word == "else" and opened[-1:] == ["if"]:
            opened[-1] = word
        elif word in ("else", "end"):
            yield where, f"`{word}`", "a block that it belongs to"
        else:
            opened.append(word)
            if len(opened) > DEPTH_LIMIT:
                yield where, f"{len(opened)} blocks", f"at most {DEPTH_LIMIT} within each other"
    if opened:
        yield field, f"no end of `{opened[-1]}`", "an `end` for each block"
