"""A single kernel, launched on the worker pool with arguments and a grid given at each call."""

from __future__ import annotations

import ctypes
import struct

from ..memory import Memory
from . import executor_abi as abi
from .driver import ALIGNMENT_BYTES, split_programs
from .pool import default_threads, process_pool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .library import Library

_LAUNCH = abi.SESSION_BYTES
_ARGUMENTS = _LAUNCH + abi.LAUNCH_BYTES


class Launcher:
    """Runs one function of KERNEL ABI 1; one call at a time."""

    __slots__ = (
        "_control", "_function", "_grid", "_launch", "_library", "_pool", "_scratch", "_threads",
    )  # fmt: skip

    def __init__(
        self,
        library: Library,
        symbol: str,
        scratch_bytes: int,
        argument_count: int,
        threads: int | None = None,
    ) -> None:
        """`scratch_bytes` is what each thread gives the kernel; DriverFault if it is not there."""
        self._library = library
        self._grid: tuple[int, int, int] | None = None
        self._launch = b""
        self._function = library.address_of(symbol)
        self._pool = process_pool()
        self._threads = max(1, default_threads() if threads is None else threads)
        stride = -(-scratch_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self._scratch = Memory(stride * self._threads)
        self._control = Memory(_ARGUMENTS + 8 * argument_count)
        base = self._control.address
        session = struct.pack(
            "<QQqQqiiQq", self._pool.address, base + _LAUNCH, 1, self._scratch.address, stride,
            self._threads - 1, 1, base, 0,
        )  # fmt: skip
        ctypes.memmove(base, session, len(session))

    def __call__(self, grid: tuple[int, int, int], arguments: bytes) -> None:
        """Runs all programs of `grid`; `arguments` are the packed 8-byte slots."""
        if 0 in grid:
            return
        base = self._control.address
        if grid != self._grid:
            programs, chunk, count = split_programs(grid, self._threads)
            self._launch = struct.pack(
                "<QQ3i3i", self._function, base + _ARGUMENTS, *grid, programs, chunk, count
            )
            self._grid = grid
        launch = self._launch
        ctypes.memmove(base + _LAUNCH, launch, len(launch))
        ctypes.memmove(base + _ARGUMENTS, arguments, len(arguments))
        if self._pool.workers < self._threads - 1:
            self._pool.start(self._library, self._threads - 1)
        self._library.execute(base)
