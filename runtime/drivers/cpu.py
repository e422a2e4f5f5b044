"""The CPU driver: a launch plan and a library become sessions, and a call is one native call."""

from __future__ import annotations

import ctypes
import struct

from . import executor_abi as abi
from .library import Library
from .memory import Memory
from .pool import default_threads, process_pool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..plan import LaunchPlan

# What a row of the target table needs, in the words of /proc/cpuinfo; the better row last.
ISA_FEATURES = {
    "x86-64-v3": frozenset(("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")),
    "x86-64-v4": frozenset(
        ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")
        + ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
    ),
}
CHUNKS_PER_THREAD = 16
ALIGNMENT_BYTES = 64


def cpu_features() -> frozenset[str]:
    """The first processor's feature flags; empty where the system does not say."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("flags"):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return frozenset()


def best_isa(features: frozenset[str]) -> str | None:
    """The best row of `ISA_FEATURES` that these features satisfy."""
    found = None
    for name, needed in ISA_FEATURES.items():
        if needed <= features:
            found = name
    return found


class Executable:
    """A loaded library with its launch plan; shared by sessions, also between threads."""

    __slots__ = ("functions", "inputs", "library", "outputs", "plan")

    def __init__(self, library: Library, plan: LaunchPlan, inputs: int, outputs: int) -> None:
        """Look every kernel up; `plan` was validated for this many inputs and outputs.

        Raises DriverFault if the library lacks a kernel.
        """
        self.library = library
        self.plan = plan
        self.inputs = inputs
        self.outputs = outputs
        self.functions = [library.address_of(kernel.symbol) for kernel in plan.kernels]


class NativeSession:
    """The memory of one call at a time: arena, scratch of each thread, argument slots.

    Calls of one session must not overlap; sessions may run at once in several threads.
    """

    __slots__ = (
        "_addresses",
        "_arena",
        "_control",
        "_executable",
        "_execute",
        "_pack",
        "_pointer",
        "_pool",
        "_scratch",
        "_workers",
    )

    def __init__(
        self,
        executable: Executable,
        weight_addresses: Mapping[str, int],
        threads: int | None = None,
    ) -> None:
        """Allocate and fill everything that does not change between calls.

        weight_addresses: tensor name → address of its bytes, valid as long as the session.
        threads: how many threads a call may use, its own included; None: `default_threads()`.

        Raises OSError where the system has no room.
        """
        plan = executable.plan
        self._executable = executable
        self._pool = process_pool()
        threads = max(1, default_threads() if threads is None else threads)
        self._arena = Memory(plan.arena_bytes)
        stride = -(-plan.scratch_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self._scratch = Memory(stride * threads)
        layout = _Layout(executable)
        self._control = Memory(layout.nbytes)
        base = self._control.address
        spaces = {"arena": self._arena.address, "weight": weight_addresses}
        parallel = layout.write(base, spaces, threads)
        self._workers = threads - 1 if parallel else 0
        _write(base + abi.SESSION_POOL, "<Q", self._pool.address)
        _write(base + abi.SESSION_SCRATCH, "<Qq", self._scratch.address, stride)
        _write(base + abi.SESSION_WORKERS, "<ii", self._workers, int(self._workers > 0))
        count = executable.inputs + executable.outputs
        array = (ctypes.c_char * (8 * count)).from_address(base + layout.addresses)
        self._addresses = memoryview(array).cast("B")
        self._pack = struct.Struct(f"<{count}Q").pack
        self._pointer = ctypes.c_void_p(base)
        self._execute = executable.library.execute

    @property
    def arena_address(self) -> int:
        """Where the arena lies, for debugging and tests."""
        return self._arena.address

    @property
    def threads(self) -> int:
        """Threads that a call may use, its own included; 1 if no launch is worth sharing."""
        return self._workers + 1

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """One call: addresses of contiguous inputs and outputs, in the program's order."""
        self._addresses[:] = self._pack(*inputs, *outputs)
        if self._pool.workers < self._workers:
            self._pool.start(self._executable.library, self._workers)
        self._execute(self._pointer)

    def bind(self, inputs: Sequence[int], outputs: Sequence[int]) -> Callable[[], None]:
        """A function without arguments that does `run` with these addresses."""
        packed = self._pack(*inputs, *outputs)
        addresses, pool, pointer = self._addresses, self._pool, self._pointer
        execute, workers, library = self._execute, self._workers, self._executable.library

        def call() -> None:
            addresses[:] = packed
            if pool.workers < workers:
                pool.start(library, workers)
            execute(pointer)

        # The blocks live as long as the function, also when the session is dropped first.
        call.__dict__["session"] = self
        return call

    def close(self) -> None:
        """Free the session's memory; idempotent. Bound functions must not be called afterwards."""
        for block in (self._arena, self._scratch, self._control):
            block.close()


class _Layout:
    """Where the parts of a session's control block lie, as offsets from its start."""

    __slots__ = ("_arguments", "_executable", "_launches", "_patches", "addresses", "nbytes")

    def __init__(self, executable: Executable) -> None:
        launches = executable.plan.launches
        slots = sum(len(launch.args) for launch in launches)
        self._executable = executable
        self._launches = abi.SESSION_BYTES
        self._arguments = self._launches + abi.LAUNCH_BYTES * len(launches)
        self._patches = self._arguments + 8 * slots
        self.addresses = self._patches + abi.PATCH_BYTES * slots
        self.nbytes = self.addresses + 8 * (executable.inputs + executable.outputs)

    def write(self, base: int, spaces: Mapping[str, object], threads: int) -> bool:
        """Fill launches, arguments and patches; True if a launch has several chunks."""
        plan, functions = self._executable.plan, self._executable.functions
        slot, patch, parallel = base + self._arguments, base + self._patches, False
        for index, launch in enumerate(plan.launches):
            programs, chunk, chunks = _chunks(launch.grid, threads)
            parallel = parallel or chunks > 1
            record = struct.pack(
                "<QQ3i3i", functions[launch.kernel], slot, *launch.grid, programs, chunk, chunks
            )
            ctypes.memmove(base + self._launches + index * abi.LAUNCH_BYTES, record, len(record))
            for space, value in launch.args:
                number = self._address_index(space, value)
                if number is None:
                    _write(slot, "<q", _fixed_value(space, value, spaces))
                else:
                    _write(patch, "<Qq", slot, number)
                    patch += abi.PATCH_BYTES
                slot += 8
        patches = (patch - base - self._patches) // abi.PATCH_BYTES
        _write(base + abi.SESSION_LAUNCHES, "<Qq", base + self._launches, len(plan.launches))
        _write(base + abi.SESSION_PATCHES, "<Qq", base + self._patches, patches)
        _write(base + abi.SESSION_ADDRESSES, "<Q", base + self.addresses)
        return parallel

    def _address_index(self, space: str, value: int | str) -> int | None:
        """The index into the session's addresses of an argument that changes from call to call."""
        if space == "input":
            return int(value)
        return self._executable.inputs + int(value) if space == "output" else None


def _fixed_value(space: str, value: int | str, spaces: Mapping[str, object]) -> int:
    if space == "int":
        return int(value)
    if space == "arena":
        return int(spaces["arena"]) + int(value)  # type: ignore[call-overload,no-any-return]
    return int(spaces["weight"][value])  # type: ignore[index]


def _chunks(grid: tuple[int, int, int], threads: int) -> tuple[int, int, int]:
    """(programs, programs of a chunk, chunks) of a launch."""
    programs = grid[0] * grid[1] * grid[2]
    if threads == 1:
        return programs, programs, 1
    limit = min(threads * CHUNKS_PER_THREAD, abi.CHUNKS_LIMIT)
    chunk = -(-programs // limit)
    return programs, chunk, -(-programs // chunk)


def _write(address: int, layout: str, *values: int) -> None:
    record = struct.pack(layout, *values)
    ctypes.memmove(address, record, len(record))
