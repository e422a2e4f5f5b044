"""A driver without a device: it records launches in place of running them. Importing this module
puts it in the table of drivers as `null`.

It knows one kernel, `null_copy(to, from, nbytes)`, so that bytes can be followed through a program
without native code.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from aotc.runtime import drivers
from aotc.runtime.arrays.dlpack import HOST
from aotc.runtime.bundle.control_steps import ControlStep
from aotc.runtime.bundle.plan import LaunchPlan, Plan
from aotc.runtime.bundle.torch_calls import TorchCall
from aotc.runtime.drivers.blocks import in_blocks
from aotc.runtime.drivers.memory import HostShared, missing_on_host
from aotc.runtime.drivers.protocol import Missing

DEVICE = HOST[0]
HAS_DEVICE_MEMORY = False
LIBRARY_NAME = "kernels.so"
COPY_SYMBOL = "null_copy"

drivers.DRIVERS["null"] = __name__


def features() -> frozenset[str]:
    """No instruction sets: only targets that need none are accepted."""
    return frozenset()


def missing(needs: Sequence[str], device: int = 0, ranks: int = 1) -> list[Missing]:
    """What a target with these needs lacks: all of them."""
    return missing_on_host(features(), needs, "null", device)


def describe() -> list[tuple[int, str, str, int]]:
    """No devices."""
    return []


class Executable:
    """A plan whose launches are written down; `log` has one row a launch of every run."""

    steps_kept = 1 << 17

    def __init__(
        self,
        library: bytes,
        plan: Plan | LaunchPlan,
        weights: Mapping[str, tuple[int, int]],
        inputs: Sequence[int],
        outputs: Sequence[int],
        device: int = 0,
        threads: int = 0,
        natives: Any = None,
        fallback: Any = None,
    ) -> None:
        """See `drivers/__init__.py`; the library is kept for tests to look at."""
        self.library = library
        self.plan: Any = plan
        self.weights = {name: address for name, (address, _) in weights.items()}
        self.inputs = len(inputs)
        self.outputs = len(outputs)
        self.threads = threads or 1
        self.natives = natives
        self.fallback = fallback
        self.log: list[tuple[str, tuple[int, int, int], tuple[int, ...]]] = []
        self.sessions_open = 0
        self.closed = False
        self._whole = self

    def at(
        self, plan: LaunchPlan, inputs: tuple[int, ...] = (), outputs: tuple[int, ...] = ()
    ) -> Executable:
        """The same code with a plan for given sizes."""
        found = Executable.__new__(Executable)
        found.__dict__ = {**self.__dict__, "plan": plan, "_whole": self._whole}
        return found

    def shared(self) -> HostShared:
        """Memory for the sessions of several shapes of one caller."""
        return HostShared(0, self.plan.states, self.weights)

    def session(self, shared: HostShared | None = None) -> CpuSession:
        """A session with memory of its own, but for what is shared with those of other shapes."""
        self._whole.sessions_open += 1
        return CpuSession(self, shared)

    def copy_strided(
        self, to: int, source: int, itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        """Copy a strided array into contiguous memory, element by element."""
        _copy_dims(to, source, itemsize, list(zip(shape, strides, strict=True)))

    def close(self) -> None:
        """Mark as closed."""
        self.closed = True


class CpuSession:
    """The addresses and the arena of one caller."""

    def __init__(self, executable: Executable, shared: HostShared | None = None) -> None:
        plan: LaunchPlan = executable.plan
        self.executable = executable
        self.addresses = (ctypes.c_int64 * (executable.inputs + executable.outputs))()
        self._own = None
        if shared is None:
            self._own = shared = HostShared(plan.arena_bytes, plan.states, executable.weights)
        self.arena_address = shared.arena.address
        self.states = shared.states
        self._words = (ctypes.c_int64 * len(plan.checks))()
        parts = [step if isinstance(step, ControlStep) else self._part(step) for step in plan.steps]
        # Resolves every argument, writes each launch down, and copies where the kernel is a copy.
        self.run: Any = in_blocks(parts, _in_turn, self._is_set, lambda run: run)

    def _part(self, step: Any) -> Any:
        if isinstance(step, TorchCall):
            made = self.executable.fallback.step(step, self._fixed_address)
            return lambda: made(self._address_of)
        symbol = self.executable.plan.kernels[step.kernel].symbol

        def run() -> None:
            values = tuple(self._resolve(space, value) for space, value in step.args)
            self.executable.log.append((symbol, step.grid, values))
            if symbol == COPY_SYMBOL:
                ctypes.memmove(*values)

        return run

    def _is_set(self, mark: ControlStep) -> Any:
        return lambda: ctypes.c_uint8.from_address(self._resolve(*mark.condition)).value != 0

    def _fixed_address(self, space: str, value: int | str) -> int | None:
        return None if space in ("input", "output") else self._resolve(space, value)

    def _address_of(self, space: str, index: int) -> int:
        return self._resolve(space, index)

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
        self.executable._whole.sessions_open -= 1
        if self._own is not None:
            self._own.close()


def _in_turn(runs: Sequence[Any]) -> Any:
    def run() -> None:
        for each in runs:
            each()

    return run


def _copy_dims(to: int, source: int, itemsize: int, dims: list[tuple[int, int]]) -> int:
    """Copy by recursion over (extent, stride); returns the address after the last byte written."""
    if not dims:
        ctypes.memmove(to, source, itemsize)
        return to + itemsize
    extent, stride = dims[0]
    for index in range(extent):
        to = _copy_dims(to, source + index * stride, itemsize, dims[1:])
    return to
