"""What the sessions of all shapes of one caller share in host memory: the arena, and the states."""

from __future__ import annotations

from ..errors import DriverFault
from .memory import Memory
from .states import HostStates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ..bundle.plan import StateSlot
    from .protocol import Missing


def missing_on_host(
    features: frozenset[str], needs: Sequence[str], device: str, ordinal: int
) -> list[Missing]:
    """What a target that runs in this process lacks: a device without a number, features."""
    rows: list[Missing] = []
    if ordinal:
        hint = "the host has no number: use the name alone"
        rows.append(("device-absent", "device", f"`{device}:{ordinal}`", f"`{device}`", hint))
    absent = sorted(set(needs) - features)
    if absent:
        found = "this CPU without " + ", ".join(f"`{name}`" for name in absent)
        expected = "a CPU with " + ", ".join(f"`{name}`" for name in needs)
        hint = "rebuild with `aotc build --target` for the instruction set of this machine"
        rows.append(("instruction-set", "instruction set", found, expected, hint))
    return rows


class HostShared:
    """One caller's arena, which grows with the shapes, and its states, which stay."""

    __slots__ = ("arena", "states")

    def __init__(
        self, arena_bytes: int, slots: Sequence[StateSlot], weights: Mapping[str, int]
    ) -> None:
        """Raises OSError, ValueError or OverflowError where the system has no room."""
        self.arena = Memory(arena_bytes)
        try:
            self.states = HostStates(tuple(slots), weights)
        except BaseException:
            self.arena.close()
            raise

    def fits(self, executable: Any) -> bool:
        """Whether the arena is large enough for the executable's plan."""
        return bool(executable.plan.arena_bytes <= self.arena.nbytes)

    def grow(self, executable: Any) -> None:
        """Have an arena that the plan fits in; sessions that use the old one are closed before.

        Raises `DriverFault` where the system has no room.
        """
        self.arena.close()
        self.arena = Memory(0)  # also where there is no room for the larger one
        nbytes = executable.plan.arena_bytes
        try:
            self.arena = Memory(nbytes)
        except (OSError, ValueError, OverflowError) as error:
            detail = f"no memory for a session of {nbytes} bytes: {error}"
            raise DriverFault(driver="cpu", detail=detail) from error

    def close(self) -> None:
        """Free the memory; idempotent."""
        self.arena.close()
        self.states.close()
