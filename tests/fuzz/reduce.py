"""Makes a failing program small: fewer outputs, steps, elements; plainer values and types.

Every candidate is a legal program: eager torch runs it in all environments before it is tried.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from aotc.aot.reduce.search import shrink
from fuzz import values
from fuzz.generate import without_unused
from fuzz.program import DTYPES, FLOATS, NAMES, Input, Program, Ref
from fuzz.run import EAGER, Session

Fails = Callable[[Program], bool]
LITERAL_NUMEL = 64
TRIES = 150


class Reducer:
    """The search for one program; `fails` says whether a candidate fails as the whole does."""

    def __init__(self, program: Program, fails: Fails, seconds: float) -> None:
        self.program, self._fails = program, fails
        self.until = time.monotonic() + seconds
        self.tries = 0

    def reduced(self) -> Program:
        """The smallest program found."""
        try:
            while True:
                before = self.program
                self._outputs()
                self._environments()
                self._steps()
                self._bypasses()
                self._extents()
                self._kinds()
                if self.program == before:
                    return self.program
        except TimeoutError:
            return self.program

    def accepts(self, candidate: Program | None) -> bool:
        """Whether a candidate fails too; it is then the program."""
        if candidate is None or candidate == self.program:
            return False
        if self.tries >= TRIES or time.monotonic() > self.until:
            raise TimeoutError
        try:
            for environment in range(candidate.environments):
                Session(candidate, environment, EAGER).outputs()
        except Exception:  # not legal
            return False
        self.tries += 1
        if not self._fails(candidate):
            return False
        self.program = candidate
        return True

    def _outputs(self) -> None:
        for name in self.program.outputs:
            if len(self.program.outputs) > 1:
                self.accepts(without_unused(replace(self.program, outputs=(name,))))
        for name in reversed(self.program.outputs):
            rest = tuple(each for each in self.program.outputs if each != name)
            if rest:
                self.accepts(without_unused(replace(self.program, outputs=rest)))

    def _environments(self) -> None:
        dims = self.program.dims
        if not dims:
            return
        fixed = {name: sizes[0] for name, sizes in dims.items()}
        shapes = tuple(_at_sizes(each, fixed) for each in self.program.inputs)
        self.accepts(replace(self.program, inputs=shapes, dims={}))
        for place in range(1, self.program.environments):
            pair = {name: (sizes[0], sizes[place]) for name, sizes in self.program.dims.items()}
            if self.program.environments > 2 and self.accepts(replace(self.program, dims=pair)):
                return

    def _steps(self) -> None:
        """Leave steps out; what others read of them becomes inputs."""
        whole = self.program

        def fails(places: Sequence[int]) -> bool:
            return any(self.accepts(each) for each in _parts(whole, set(places)))

        if len(whole.steps) > 1:
            shrink(len(whole.steps), fails, TRIES, lambda *_: None)

    def _bypasses(self) -> None:
        """Read a step's operand in its place, where that has the same type."""
        for step in reversed(self.program.steps):
            known = _values(self.program)
            own = known.get(step.name)
            for name in dict.fromkeys(step.refs()):
                other = known.get(name)
                if own is None or other is None or own.dtype != other.dtype:
                    continue
                if own.shape == other.shape and self.accepts(
                    _renamed(self.program, step.name, name)
                ):
                    break

    def _extents(self) -> None:
        """Make extents smaller, everywhere at once or of one input."""
        for _ in range(2):
            found = {e for each in self.program.inputs for e in each.shape if isinstance(e, int)}
            for extent in sorted(found, reverse=True):
                for smaller in (1, 2, 3, extent // 2, extent - 1):
                    if 0 < smaller < extent and self.accepts(
                        _resized(self.program, extent, smaller)
                    ):
                        break
        for place, given in enumerate(self.program.inputs):
            for axis, extent in enumerate(given.shape):
                for smaller in (1, 2, 3):
                    if isinstance(extent, int) and smaller < extent:
                        shape = (*given.shape[:axis], smaller, *given.shape[axis + 1 :])
                        self._replaced(place, shape=shape)

    def _kinds(self) -> None:
        for place, given in enumerate(self.program.inputs):
            numel = _numel(given)
            if given.dtype in FLOATS:
                self._replaced(place, text=values.text(given.dtype, "normal"))
                self._replaced(place, dtype="f32", text=values.text("f32", "normal"))
            if (
                numel <= LITERAL_NUMEL
                and "arange" not in given.text
                and "tensor([" not in given.text
            ):
                count = f"torch.arange({numel}).reshape({{shape}}).to({{dtype}})"
                if not given.text.startswith("torch.randint(0"):
                    self._replaced(place, text=count)

    def _replaced(self, place: int, **changes: Any) -> bool:
        inputs = list(self.program.inputs)
        if place >= len(inputs):
            return False
        inputs[place] = replace(inputs[place], **changes)
        return self.accepts(replace(self.program, inputs=tuple(inputs)))


def _values(program: Program) -> dict[str, torch.Tensor]:
    return Session(program, 0, EAGER).values()


def _parts(program: Program, places: set[int]) -> Iterator[Program]:
    """The program with these steps only: with drawn values in place of the others, or theirs."""
    known = _values(program)
    kept = tuple(step for place, step in enumerate(program.steps) if place in places)
    made = {step.name for step in kept}
    read = {name for step in kept for name in step.refs()}
    given = {each.name for each in (*program.inputs, *program.states)}
    left_out = sorted(read - made - given)
    if program.dims and left_out:
        return
    users = {name for step in kept for name in step.refs()}
    outputs = tuple(name for name in program.outputs if name in made)
    outputs = outputs or tuple(step.name for step in kept if step.name and step.name not in users)
    if not outputs:
        return
    for is_literal in (False, True):
        inputs = [_input(name, known[name], is_literal) for name in left_out]
        if all(inputs):
            yield without_unused(
                replace(program, inputs=(*program.inputs, *inputs), steps=kept, outputs=outputs)
            )
        if not left_out:
            return


def _input(name: str, value: torch.Tensor, is_literal: bool) -> Input | None:
    dtype = NAMES[value.dtype]
    if not is_literal:
        kind = "flags" if dtype == "bool" else "normal" if dtype in FLOATS else "small"
        return Input(name, dtype, tuple(value.shape), values.text(dtype, kind), 1)
    if value.numel() > LITERAL_NUMEL:
        return None
    numbers = [float(each) if dtype in FLOATS else each for each in value.flatten().tolist()]
    shown = ", ".join(
        repr(each) if each == each and abs(each) != float("inf") else f'float("{each}")'
        for each in numbers
    )
    text = f"torch.tensor([{shown}], dtype={DTYPES[dtype]}).reshape({{shape}})"
    return Input(name, dtype, tuple(value.shape), text, 0)


def _renamed(program: Program, old: str, new: str) -> Program:
    steps = tuple(
        replace(
            step, arguments={key: _swap(value, old, new) for key, value in step.arguments.items()}
        )
        for step in program.steps
        if step.name != old
    )
    outputs = tuple(dict.fromkeys(new if name == old else name for name in program.outputs))
    if any(name.startswith(("x", "s")) for name in outputs):
        outputs = tuple(name for name in outputs if name.startswith("v")) or outputs
    return without_unused(replace(program, steps=steps, outputs=outputs))


def _swap(value: Any, old: str, new: str) -> Any:
    if isinstance(value, Ref) and value.name == old:
        return Ref(new)
    if hasattr(value, "axis") and value.name == old:
        return replace(value, name=new)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_swap(each, old, new) for each in value)
    return value


def _resized(program: Program, extent: int, smaller: int) -> Program:
    """Every extent of this size made smaller, in inputs and in arguments."""

    def changed(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | list | tuple):
            return value
        if isinstance(value, int):
            return smaller if value == extent else value
        return type(value)(changed(each) for each in value)

    inputs = tuple(
        replace(
            each, shape=tuple(map(changed, each.shape)), text=_bounded(each.text, extent, smaller)
        )
        for each in program.inputs
    )
    steps = tuple(
        replace(step, arguments={key: changed(value) for key, value in step.arguments.items()})
        for step in program.steps
    )
    return replace(program, inputs=inputs, steps=steps)


def _bounded(text: str, extent: int, smaller: int) -> str:
    """Places below `extent` as places below `smaller`."""
    return re.sub(rf"^torch.randint\(0, {extent},", f"torch.randint(0, {smaller},", text)


def _at_sizes(given: Input, sizes: dict[str, int]) -> Input:
    shape = tuple(sizes[each] if isinstance(each, str) else each for each in given.shape)
    return replace(given, shape=shape)


def _numel(given: Input) -> int:
    count = 1
    for extent in given.shape:
        count *= extent if isinstance(extent, int) else LITERAL_NUMEL + 1
    return count
