"""The null driver: records launches in place of running them; for tests and for reading plans.

It knows one kernel, `null_copy(to, from, nbytes)`, so that bytes can be followed through a program
without native code.
"""

from __future__ import annotations

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..plan import LaunchPlan

COPY_SYMBOL = "null_copy"


class Library:
    """Bytes that nobody loads."""

    def __init__(self, data: bytes, path: str | None = None) -> None:
        """Keep the bytes for tests to look at."""
        self.data = data
        self.path = path
        self.closed = False

    def copy_strided(
        self,
        to: int,
        source: int,
        itemsize: int,
        rank: int,
        shape: Sequence[int],
        strides: Sequence[int],
    ) -> None:
        """Copy a strided array into contiguous memory, element by element."""
        _copy_dims(to, source, itemsize, list(zip(shape, strides, strict=True)))

    def close(self) -> None:
        """Mark as closed."""
        self.closed = True


class Executable:
    """A plan whose launches are written down; `log` has one row a launch of every run."""

    def __init__(self, library: Library, plan: LaunchPlan, inputs: int, outputs: int) -> None:
        """See `drivers/__init__.py`."""
        self.library = library
        self.plan = plan
        self.inputs = inputs
        self.outputs = outputs
        self.log: list[tuple[str, tuple[int, int, int], tuple[int, ...]]] = []


class NativeSession:
    """The arena of one caller."""

    def __init__(
        self,
        executable: Executable,
        weight_addresses: Mapping[str, int],
        threads: int | None = None,
    ) -> None:
        self.executable = executable
        self.threads = threads or 1
        self._weights = weight_addresses
        self._arena = ctypes.create_string_buffer(executable.plan.arena_bytes + 64)
        self.arena_address = -(-ctypes.addressof(self._arena) // 64) * 64

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Resolve every argument, write the launch down, and copy where the kernel is a copy."""
        plan = self.executable.plan
        for launch in plan.launches:
            symbol = plan.kernels[launch.kernel].symbol
            values = tuple(self._resolve(*each, inputs, outputs) for each in launch.args)
            self.executable.log.append((symbol, launch.grid, values))
            if symbol == COPY_SYMBOL:
                ctypes.memmove(*values)

    def bind(self, inputs: Sequence[int], outputs: Sequence[int]) -> Callable[[], None]:
        """A function without arguments that does `run` with these addresses."""
        return lambda: self.run(inputs, outputs)

    def _resolve(
        self, space: str, value: int | str, inputs: Sequence[int], outputs: Sequence[int]
    ) -> int:
        if space == "weight":
            return self._weights[str(value)]
        number = int(value)
        if space == "arena":
            return self.arena_address + number
        if space == "input":
            return inputs[number]
        return outputs[number] if space == "output" else number

    def close(self) -> None:
        """Nothing to free."""


def _copy_dims(to: int, source: int, itemsize: int, dims: list[tuple[int, int]]) -> int:
    """Copy by recursion over (extent, stride); returns the address after the last byte written."""
    if not dims:
        ctypes.memmove(to, source, itemsize)
        return to + itemsize
    extent, stride = dims[0]
    for index in range(extent):
        to = _copy_dims(to, source + index * stride, itemsize, dims[1:])
    return to
