"""The launch plan of a call: all steps in order, at given sizes; and a variant of a plan, whose
numbers may be formulas."""

from __future__ import annotations

from ..record import Record, field
from .native_plan import NativeLaunch
from .plan_parts import (
    ARENA_LIMIT_BYTES,
    BYTES,
    CHECKS_LIMIT,
    ENTRIES_LIMIT,
    RANGES,
    STEPS_LIMIT,
    Buffer,
    Check,
    Launch,
)
from .schema import Integer, List, Union
from .torch_calls import TorchCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .plan_parts import Kernel, Parameter, StateSlot

    Step = Launch | TorchCall | NativeLaunch

STEP = Union(Launch, TorchCall, NativeLaunch)


class Variant(Record):
    """What an entry runs for a range of each dim, both ends included; numbers may be formulas."""

    arena_bytes: int = field(BYTES)
    buffers: tuple[Buffer, ...] = field(List(Buffer, limit=1 << 16))
    checks: tuple[Check, ...] = field(List(Check, limit=CHECKS_LIMIT))
    ranges: tuple[tuple[int, int], ...] = field(RANGES)
    steps: tuple[Step, ...] = field(List(STEP, limit=STEPS_LIMIT))
    zeroed_bytes: int = field(Integer(0, ARENA_LIMIT_BYTES))
    entry: int = field(Integer(0, ENTRIES_LIMIT - 1), default=0)  # which of the bundle's


class LaunchPlan(Record):
    """All steps of one call at given sizes, in order, for one target.

    arena_bytes: size of the block that holds every intermediate tensor; scratch_bytes: size of the
    block that each thread gives to the kernel it runs; zeroed_bytes: the arena's first bytes, zero
    when a session opens and left zero by every launch; states: mutable state; checks: of the data
    of a call, one word of the session each; parameters: for each launch those of its use, where
    they are known.
    """

    arena_bytes: int
    scratch_bytes: int
    buffers: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    steps: tuple[Step, ...]
    zeroed_bytes: int = 0
    states: tuple[StateSlot, ...] = ()
    checks: tuple[Check, ...] = ()
    parameters: tuple[tuple[Parameter, ...], ...] = ()

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
        return named_memory(self.steps, self.states)


def named_memory(
    steps: Iterable[Step], states: Iterable[StateSlot]
) -> Iterator[tuple[str, int | str]]:
    """(space, value) of all that steps name, in order, then the weights that states start with."""
    for step in steps:
        yield from step.memory
    for state in states:
        if state.initial is not None:
            yield "weight", state.initial
