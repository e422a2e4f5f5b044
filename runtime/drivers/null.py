"""The null driver: records launches in place of running them; for tests and for reading plans.

It knows one kernel, `null_copy(to, from, nbytes)`, so that bytes can be followed through a program
without native code.
"""

from __future__ import annotations

import ctypes

from .states import HostStates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..bundle.plan import LaunchPlan
    from .memory import Memory
    from .native import BoundNative

COPY_SYMBOL = "null_copy"


def features() -> frozenset[str]:
    """No instruction sets: only targets that need none are accepted."""
    return frozenset()


class Executable:
    """A plan whose launches are written down; `log` has one row a launch of every run."""

    def __init__(
        self,
        library: bytes,
        plan: LaunchPlan,
        weights: Mapping[str, int],
        inputs: int,
        outputs: int,
        threads: int = 0,
        natives: Sequence[BoundNative] = (),
    ) -> None:
        """See `drivers/__init__.py`; the library is kept for tests to look at."""
        self.library = library
        self.plan = plan
        self.weights = weights
        self.inputs = inputs
        self.outputs = outputs
        self.threads = threads or 1
        self.natives = tuple(natives)
        self.log: list[tuple[str, tuple[int, int, int], tuple[int, ...]]] = []
        self.sessions_open = 0
        self.closed = False

    def at(
        self,
        plan: LaunchPlan,
        inputs: tuple[int, ...] = (),
        outputs: tuple[int, ...] = (),
        natives: Sequence[BoundNative] = (),
    ) -> Executable:
        """The same code with a plan for given sizes, or a part of one."""
        found = Executable.__new__(Executable)
        found.__dict__ = {**self.__dict__, "plan": plan, "natives": tuple(natives)}
        return found

    def session(self, arena: Memory | None = None) -> NativeSession:
        """A session with an arena of its own, but for a lent one."""
        self.sessions_open += 1
        return NativeSession(self, arena)

    def copy_strided(
        self, to: int, source: int, itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        """Copy a strided array into contiguous memory, element by element."""
        _copy_dims(to, source, itemsize, list(zip(shape, strides, strict=True)))

    def close(self) -> None:
        """Mark as closed."""
        self.closed = True


class NativeSession:
    """The addresses and the arena of one caller."""

    def __init__(self, executable: Executable, lent: Memory | None = None) -> None:
        self.executable = executable
        self.addresses = (ctypes.c_int64 * (executable.inputs + executable.outputs))()
        self._arena = ctypes.create_string_buffer(executable.plan.arena_bytes + 64)
        own_address = -(-ctypes.addressof(self._arena) // 64) * 64
        self.arena_address = own_address if lent is None else lent.address
        self._words = (ctypes.c_int64 * len(executable.plan.checks))()
        self.states = HostStates(executable.plan.states, executable.weights)

    def run(self) -> None:
        """Resolve every argument, write the launch down, and copy where the kernel is a copy."""
        plan = self.executable.plan
        for launch in plan.launches:
            symbol = plan.kernels[launch.kernel].symbol
            values = tuple(self._resolve(space, value) for space, value in launch.args)
            self.executable.log.append((symbol, launch.grid, values))
            if symbol == COPY_SYMBOL:
                ctypes.memmove(*values)

    def _resolve(self, space: str, value: int | str) -> int:
        if space == "weight":
            return self.executable.weights[str(value)]
        number = int(value)
        if space == "arena":
            return self.arena_address + number
        if space == "input":
            return self.addresses[number]
        if space == "check":
            return ctypes.addressof(self._words) + 8 * number
        if space == "state":
            return self.states.addresses[number]
        return self.addresses[self.executable.inputs + number] if space == "output" else number

    def close(self) -> None:
        """Tell the executable; its arena goes with the object."""
        self.executable.sessions_open -= 1
        self.states.close()


def _copy_dims(to: int, source: int, itemsize: int, dims: list[tuple[int, int]]) -> int:
    """Copy by recursion over (extent, stride); returns the address after the last byte written."""
    if not dims:
        ctypes.memmove(to, source, itemsize)
        return to + itemsize
    extent, stride = dims[0]
    for index in range(extent):
        to = _copy_dims(to, source + index * stride, itemsize, dims[1:])
    return to
