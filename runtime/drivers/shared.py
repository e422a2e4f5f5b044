"""What the sessions of all shapes of one caller share in host memory: arena, scratch, states."""

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
    """One caller's arena, which grows with the shapes, its threads' scratch and its states."""

    __slots__ = ("arena", "scratch", "states")

    def __init__(
        self,
        arena_bytes: int,
        slots: Sequence[StateSlot],
        weights: Mapping[str, int],
        scratch_bytes: int = 0,
    ) -> None:
        """scratch_bytes: of all threads together.

        Raises OSError, ValueError or OverflowError where the system has no room.
        """
        blocks: list[Memory] = []
        try:
            blocks = [Memory(nbytes) for nbytes in (arena_bytes, scratch_bytes)]
            self.states = HostStates(tuple(slots), weights)
        except BaseException:
            for block in blocks:
                block.close()
            raise
        self.arena, self.scratch = blocks

    def fits(self, executable: Any) -> bool:
        """Whether the arena is large enough for the executable's plan."""
        return bool(executable.plan.arena_bytes <= self.arena.nbytes)

    def grow(self, executable: Any) -> None:
        """Have an arena that the plan fits in; sessions that use the old one are closed before.

        It is twice the old one where there is room, so that shapes that grow in small steps make it
        grow seldom; pages that no shape uses are never there. Raises `DriverFault` where the system
        has no room for the plan.
        """
        nbytes, twice_bytes = executable.plan.arena_bytes, 2 * self.arena.nbytes
        self.arena.close()
        self.arena = Memory(0)  # also where there is no room for the larger one
        for wanted_bytes in sorted({nbytes, max(nbytes, twice_bytes)}, reverse=True):
            try:
                self.arena = Memory(wanted_bytes)
                return
            except (OSError, ValueError, OverflowError) as error:
                if wanted_bytes == nbytes:
                    detail = f"no memory for a session of {nbytes} bytes: {error}"
                    raise DriverFault(driver="cpu", detail=detail) from error

    def close(self) -> None:
        """Free the memory; idempotent."""
        self.arena.close()
        self.scratch.close()
        self.states.close()
