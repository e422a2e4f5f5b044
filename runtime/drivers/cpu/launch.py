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
_ROW = struct.Struct("<QQ3i3i")  # function, slots, grid, programs, programs of a chunk, chunks


class Launcher:
    """Runs one function of KERNEL ABI 1; one call at a time.

    arguments: memory for the 8-byte slots, which a caller fills before `run`.
    """

    __slots__ = (
        "_base", "_control", "_execute", "_function", "_grid", "_is_empty", "_library", "_pool",
        "_scratch", "_threads", "_workers", "arguments",
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
        self._execute = library.execute
        self._grid: tuple[int, int, int] | None = None
        self._is_empty = False
        self._workers = 0  # that the grid keeps busy
        self._function = library.address_of(symbol)
        self._pool = process_pool()
        self._threads = max(1, default_threads() if threads is None else threads)
        stride = -(-scratch_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self._scratch = Memory(stride * self._threads)
        self._control = Memory(_ARGUMENTS + 8 * max(1, argument_count))
        base = self._control.address
        self._base = ctypes.c_void_p(base)
        block = (ctypes.c_char * (8 * max(1, argument_count))).from_address(base + _ARGUMENTS)
        self.arguments = memoryview(block).cast("B")
        session = struct.pack(
            "<QQqQqiiQq", self._pool.address, base + _LAUNCH, 1, self._scratch.address, stride,
            self._threads - 1, 0, base, 0,
        )  # fmt: skip
        ctypes.memmove(base, session, len(session))

    def __call__(self, grid: tuple[int, int, int], arguments: bytes) -> None:
        """Runs all programs of `grid`; `arguments` are the packed 8-byte slots."""
        self.arguments[: len(arguments)] = arguments
        self.run(grid)

    def run(self, grid: tuple[int, int, int]) -> None:
        """Runs all programs of `grid` on the arguments that are there."""
        if grid != self._grid:
            self._take(grid)
        if self._is_empty:
            return
        if self._pool.workers < self._workers:
            self._pool.start(self._library, self._workers)
        self._execute(self._base)

    def _take(self, grid: tuple[int, int, int]) -> None:
        """Writes the launch of a grid; one with a single chunk of programs asks for no worker."""
        self._is_empty = 0 in grid
        if not self._is_empty:
            base = self._control.address
            programs, chunk, count = split_programs(grid, self._threads)
            slots = base + _ARGUMENTS
            launch = _ROW.pack(self._function, slots, *grid, programs, chunk, count)
            ctypes.memmove(base + _LAUNCH, launch, len(launch))
            spreads = ctypes.c_int32.from_address(base + abi.SESSION_PARALLEL)
            spreads.value = int(count > 1)
            self._workers = self._threads - 1 if count > 1 else 0
        self._grid = grid
