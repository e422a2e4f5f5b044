"""A compiled graph as data: its steps in order, each a program of ours or code of torch's.

A recipe is what torch's AOTAutograd cache keeps beside its own record, so that a second process
neither traces nor compiles: a step of ours names an entry of the artifact cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule

from aotc.aot.dynamo.calling import Boxed, Call
from aotc.aot.dynamo.fallback import load_inductor, run_eagerly
from aotc.aot.dynamo.interface import Interface
from aotc.aot.dynamo.options import Options
from aotc.aot.dynamo.programs import cached_program
from aotc.aot.dynamo.rng_steps import RandomStep
from aotc.cache import Key


class ProgramGone(Exception):
    """The artifact cache has lost the program of a recipe."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A region that a program of ours computes; no key where nothing is computed."""

    key: Key | None
    interface: Interface
    options: Options

    def opened(self) -> Boxed:
        """The callable, its program loaded from the cache; raises `ProgramGone`."""
        if self.key is None:
            return Call(self.interface, None)
        program = cached_program(self.key, self.options)
        if program is None:
            raise ProgramGone(self.key.digest)
        return Call(self.interface, program)


@dataclass(frozen=True, slots=True)
class LeftToTorch:
    """A region that torch computes: its graph, or Inductor's artifact of it."""

    content: GraphModule | bytes

    def opened(self) -> Boxed:
        """The callable."""
        if isinstance(self.content, bytes):
            return load_inductor(self.content)
        return run_eagerly(self.content)


@dataclass(frozen=True, slots=True)
class Step:
    """One region. Slots hold the graph's arguments first, then the results of the steps."""

    code: Compiled | LeftToTorch | RandomStep | None  # None for code that cannot be kept
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    freed: tuple[int, ...]  # slots that nothing reads afterwards


@dataclass(frozen=True, slots=True)
class Recipe:
    """A graph. `outputs`: (True, slot), or (False, number) for a result that is known now."""

    steps: tuple[Step, ...]
    slots: int
    outputs: tuple[tuple[bool, Any], ...]

    @property
    def is_whole(self) -> bool:
        """Whether one step takes the arguments and gives the results as they are."""
        if len(self.steps) != 1:
            return False
        (step,) = self.steps
        outputs = tuple((True, slot) for slot in step.results)
        return step.arguments == tuple(range(step.results[0] if step.results else self.slots)) and (
            outputs == self.outputs
        )

    @property
    def is_kept(self) -> bool:
        """Whether another process can open it."""
        return all(step.code is not None for step in self.steps)

    def after(self, drawn: RandomStep, first: int, stop: int) -> Recipe:
        """The recipe whose arguments from `first` to `stop` are drawn."""
        step = Step(drawn, tuple(range(first)), tuple(range(first, stop)), ())
        return Recipe((step, *self.steps), self.slots, self.outputs)

    def opened(self) -> Boxed:
        """The callable in a process that did not compile it; raises `ProgramGone`."""
        return self.bound([step.code.opened() for step in self.steps if step.code is not None])

    def bound(self, calls: Sequence[Boxed]) -> Boxed:
        """The callable of the whole from those of the steps."""
        if self.is_whole:
            return calls[0]
        rows = [
            (call, step.arguments, step.results, step.freed)
            for call, step in zip(calls, self.steps, strict=True)
        ]
        length, outputs = self.slots, self.outputs

        def run(arguments: list[Any]) -> list[Any]:
            slots = arguments + [None] * (length - len(arguments))
            arguments.clear()
            for call, taken, given, freed in rows:
                values = [slots[slot] for slot in taken]
                for slot in freed:
                    slots[slot] = None
                for slot, value in zip(given, call(values), strict=True):
                    slots[slot] = value
            return [slots[value] if is_slot else value for is_slot, value in outputs]

        return run
