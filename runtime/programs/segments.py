"""Plans that call torch: native sessions of the launches between the calls, in one arena.

`SegmentedExecutable` stands in a driver's place, with the same names.
"""

from __future__ import annotations

import ctypes

from ..bundle.plan import LaunchPlan
from ..drivers.memory import Memory
from ..errors import DriverFault
from .fallback import Host, Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .fallback import Fallback


class SegmentedExecutable:
    """Loaded code of the CPU with the ops that torch runs between its launches."""

    __slots__ = ("_executable", "fallback", "inputs", "outputs", "plan", "threads", "weights")

    def __init__(self, executable: Any, fallback: Fallback) -> None:
        """`executable` is the driver's; it is closed with this one."""
        self._executable = executable
        self.fallback = fallback
        self.plan: LaunchPlan = executable.plan
        self.inputs: int = executable.inputs
        self.outputs: int = executable.outputs
        self.threads: int = executable.threads
        self.weights = executable.weights

    @property
    def copy_strided(self) -> Callable[..., None]:
        """The driver's."""
        return self._executable.copy_strided  # type: ignore[no-any-return]

    def session(self) -> SegmentedSession:
        """A session with memory of its own; raises DriverFault where the system has no room."""
        return SegmentedSession(self)

    def part(self, first: int, end: int) -> Any:
        """The driver's executable for the launches from `first` on, before `end`."""
        plan = self.plan
        natives = [
            each.at(each.launch.at(each.launch.launch - first))
            for each in self._executable.natives
            if first <= each.launch.launch < end
        ]
        return self._executable.at(
            LaunchPlan(
                plan.abi,
                plan.arena_bytes,
                plan.scratch_bytes,
                plan.buffers,
                plan.kernels,
                plan.launches[first:end],
                plan.zeroed_bytes,
                natives=tuple(each.launch for each in natives),
                checks=plan.checks,
            ),
            natives=natives,
        )

    def close(self) -> None:
        """Unload the code; its sessions must be closed."""
        self._executable.close()


class SegmentedSession:
    """The memory of one call at a time: one arena, and a native session for each segment.

    addresses: ctypes array, inputs first, then outputs; the caller fills it before `run`.
    """

    __slots__ = ("_arena", "_calls", "_inputs", "_sessions", "_steps", "addresses", "arena_address")

    def __init__(self, executable: SegmentedExecutable) -> None:
        plan = executable.plan
        try:
            self._arena = Memory(plan.arena_bytes)
        except (OSError, ValueError, OverflowError) as error:
            detail = f"no memory for a session of {plan.arena_bytes} bytes: {error}"
            raise DriverFault(driver="cpu", detail=detail) from error
        self.arena_address = self._arena.address
        self._inputs = executable.inputs
        self.addresses = (ctypes.c_int64 * (executable.inputs + executable.outputs))()
        self._sessions: list[Any] = []
        self._steps: list[Callable[[], None]] = []
        self._calls: set[int] = set()  # which of the steps are calls of torch
        try:
            self._fill(executable)
        except BaseException:
            self.close()
            raise

    def _fill(self, executable: SegmentedExecutable) -> None:
        """Cut the plan at its calls."""
        plan, done = executable.plan, 0
        host = Host(executable.fallback.torch)

        def place(space: str, value: int | str) -> int | None:
            if space == "arena":
                return self.arena_address + int(value)
            return int(executable.weights[str(value)]) if space == "weight" else None

        for call in plan.calls:
            self._add_launches(executable, done, call.after)
            done = call.after
            step = Step(executable.fallback, host, call, place)
            self._calls.add(len(self._steps))
            self._steps.append(lambda step=step: step(self._address_of))  # type: ignore[misc]
        self._add_launches(executable, done, len(plan.launches))

    def _add_launches(self, executable: SegmentedExecutable, first: int, end: int) -> None:
        if first < end:
            session = executable.part(first, end).session(self._arena)
            self._sessions.append(session)
            self._steps.append(session.run)

    def _address_of(self, space: str, index: int) -> int:
        """The address of this call's input or output."""
        return self.addresses[index if space == "input" else self._inputs + index]

    def run(self) -> None:
        """One call on these addresses: launches and ops in the plan's order."""
        self._pass_addresses()
        for step in self._steps:
            step()

    def run_timed(self, clock: Callable[[], float]) -> list[float]:
        """One call as `run` makes it; how long each call of torch took, by the clock."""
        self._pass_addresses()
        times = []
        for index, step in enumerate(self._steps):
            began = clock()
            step()
            if index in self._calls:
                times.append(clock() - began)
        return times

    def _pass_addresses(self) -> None:
        addresses = self.addresses[:]
        for session in self._sessions:
            session.addresses[:] = addresses

    def close(self) -> None:
        """Free the memory; idempotent."""
        self._steps.clear()
        for session in self._sessions:
            session.close()
        self._sessions.clear()
        self._arena.close()
