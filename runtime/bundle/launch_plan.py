"""The launch plan of a call: all steps in order, at given sizes. `plan.py` has the grammar."""

from __future__ import annotations

from ..record import Record
from .native_plan import NativeLaunch
from .plan_parts import Launch
from .torch_calls import TorchCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from .plan_parts import Buffer, Check, Kernel, StateSlot

    Step = Launch | TorchCall | NativeLaunch


class LaunchPlan(Record):
    """All steps of one call at given sizes, in order, for one target.

    arena_bytes: size of the block that holds every intermediate tensor; scratch_bytes: size of the
    block that each thread gives to the kernel it runs; zeroed_bytes: the arena's first bytes, zero
    when a session opens and left zero by every launch; states: what a call leaves to the next one;
    checks: of the data of a call, one word of the session each.
    """

    __slots__ = (
        "arena_bytes",
        "buffers",
        "checks",
        "kernels",
        "scratch_bytes",
        "states",
        "steps",
        "zeroed_bytes",
    )
    arena_bytes: int
    scratch_bytes: int
    buffers: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    steps: tuple[Step, ...]
    zeroed_bytes: int
    states: tuple[StateSlot, ...]
    checks: tuple[Check, ...]

    def __init__(
        self,
        arena_bytes: int,
        scratch_bytes: int,
        buffers: Sequence[Buffer],
        kernels: Sequence[Kernel],
        steps: Sequence[Step],
        zeroed_bytes: int = 0,
        states: Sequence[StateSlot] = (),
        checks: Sequence[Check] = (),
    ) -> None:
        self._set(
            arena_bytes=arena_bytes,
            scratch_bytes=scratch_bytes,
            buffers=tuple(buffers),
            kernels=tuple(kernels),
            steps=tuple(steps),
            zeroed_bytes=zeroed_bytes,
            states=tuple(states),
            checks=tuple(checks),
        )

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The steps that are kernels of the target's library."""
        return tuple(step for step in self.steps if isinstance(step, Launch))

    @property
    def calls(self) -> tuple[TorchCall, ...]:
        """The steps that torch runs."""
        return tuple(step for step in self.steps if isinstance(step, TorchCall))

    @property
    def natives(self) -> tuple[NativeLaunch, ...]:
        """The steps that call native functions."""
        return tuple(step for step in self.steps if isinstance(step, NativeLaunch))

    def arguments(self) -> Iterator[tuple[str, int | str]]:
        """(space, value) of all that the steps name, in order, then the weights that states start
        with."""
        for step in self.steps:
            yield from memory_of(step)
        for state in self.states:
            if state.initial is not None:
                yield "weight", state.initial

    def only(self, steps: Sequence[Step]) -> LaunchPlan:
        """The plan with these steps in place of its own."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return LaunchPlan(**{**fields, "steps": steps})

    def variant(self) -> dict[str, Any]:
        """The plan as the one variant of a plan of fixed shapes."""
        return {
            "arena_bytes": self.arena_bytes,
            "buffers": [each.to_map() for each in self.buffers],
            "checks": [each.to_map() for each in self.checks],
            "ranges": [],
            "steps": [each.to_map() for each in self.steps],
            "zeroed_bytes": self.zeroed_bytes,
        }


def memory_of(step: Step) -> tuple[tuple[str, int | str], ...]:
    """(space, value) of all that a step names."""
    if isinstance(step, TorchCall):
        return tuple(each.memory for each in step.tensors())
    return step.memory if isinstance(step, NativeLaunch) else step.args
