"""Joins the runs of the parts of a plan into one run, with its branches and loops.

Every run takes the same arguments as the whole: nothing, or a stream. Branches and loops are made
in Python, so that Ctrl-C ends a loop that would not end by itself.
"""

from __future__ import annotations

from ..bundle.control_steps import ControlStep
from ..bundle.plan_parts import Launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Run = Callable[..., None]
    Test = Callable[..., bool]


def unrolled(steps: Sequence[Any], most: int) -> list[Any]:
    """The steps, with iterations of a `repeat` block unrolled: as many as have at most so many
    launches. The block is dropped if that is all of its iterations."""
    found: list[Any] = []
    begins: list[int] = []  # of blocks that are open, in what was found
    for step in steps:
        found.append(step)
        if type(step) is not ControlStep or step.word == "else":
            continue
        if step.word != "end":
            begins.append(len(found) - 1)
            continue
        begin = begins.pop()
        control, block = found[begin], found[begin + 1 : -1]
        if control.word == "repeat" and all(type(each) is Launch for each in block):
            found[begin:] = _together(control, block, step, most)
    return found


def _together(control: ControlStep, block: list[Any], end: ControlStep, most: int) -> list[Any]:
    """A `repeat` block of launches, unrolled as far as iterations have at most so many launches."""
    if not block or not control.count:
        return []
    turns = min(control.count, max(most // len(block), 1))
    count, rest = divmod(control.count, turns)
    if count == 1:
        return block * (turns + rest)
    return [control.replace(count=count), *block * turns, end, *block * rest]


def in_blocks(
    parts: Sequence[Run | ControlStep],
    in_turn: Callable[[Sequence[Run]], Run],
    is_set: Callable[[ControlStep], Test],
    checked: Callable[[Run], Run],
) -> Run:
    """One run of all parts, with nested branches and loops.

    in_turn: joins several runs into one; is_set: gives the test of a control step's condition;
    checked: wraps the run of a loop's body, so that it raises errors of the data that it has seen.
    """
    opened: list[tuple[ControlStep | None, list[list[Run]]]] = [(None, [[]])]
    for part in parts:
        if not isinstance(part, ControlStep):
            opened[-1][1][-1].append(part)
        elif part.word == "else":
            opened[-1][1].append([])
        elif part.word == "end":
            control, rows = opened.pop()
            assert control is not None  # the rules of a plan
            blocks = [in_turn(row) for row in rows]
            if control.word == "if":
                made = _chosen(is_set(control), *blocks)
            elif control.word == "while":
                made = _while(is_set(control), checked(blocks[0]))
            else:
                made = _repeated(control.count, checked(blocks[0]))
            opened[-1][1][-1].append(made)
        else:
            opened.append((part, [[]]))
    return in_turn(opened[0][1][0])


def _chosen(is_set: Test, first: Run, other: Run | None = None) -> Run:
    def run(*given: int) -> None:
        if is_set(*given):
            first(*given)
        elif other is not None:
            other(*given)

    return run


def _while(is_set: Test, block: Run) -> Run:
    def run(*given: int) -> None:
        while is_set(*given):
            block(*given)

    return run


def _repeated(count: int, block: Run) -> Run:
    def run(*given: int) -> None:
        for _ in range(count):
            block(*given)

    return run
