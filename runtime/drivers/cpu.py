"""The CPU driver: a launch plan and a library become sessions, and a call is one native call."""

from __future__ import annotations

import ctypes
import struct

from ..errors import DriverFault
from . import executor_abi as abi
from .checks import WORD_BYTES, Checks, check_addresses
from .library import Library
from .memory import Memory
from .pool import Pool, default_threads, process_pool
from .states import HostStates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..bundle.plan import LaunchPlan
    from .native import BoundNative

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


def features() -> frozenset[str]:
    """This machine's instruction sets in the words of /proc/cpuinfo; empty where it is absent."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("flags"):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return frozenset()


def best_isa(found: frozenset[str]) -> str | None:
    """The best row of `ISA_FEATURES` that these features satisfy."""
    best = None
    for name, needed in ISA_FEATURES.items():
        if needed <= found:
            best = name
    return best


class Executable:
    """The loaded code of one target with its plan; shared by sessions, also between threads."""

    __slots__ = (
        "functions",
        "inputs",
        "library",
        "natives",
        "outputs",
        "plan",
        "threads",
        "weights",
    )

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
        """See `drivers/__init__.py`; `natives` are bound to the plan's native launches, in order.

        Raises DriverFault if the library cannot be loaded or lacks a kernel.
        """
        self.library = Library(library)
        self.plan = plan
        self.weights = weights
        self.inputs = inputs
        self.outputs = outputs
        self.threads = threads or default_threads()
        self.natives = tuple(natives)
        self.functions = [self.library.address_of(kernel.symbol) for kernel in plan.kernels]

    def at(
        self,
        plan: LaunchPlan,
        inputs: tuple[int, ...] = (),
        outputs: tuple[int, ...] = (),
        natives: Sequence[BoundNative] = (),
    ) -> Executable:
        """The same code with a plan for given sizes, or a part of one; it needs no closing.

        inputs, outputs: bytes of each, which the host need not know; natives: those of the plan.
        """
        found = Executable.__new__(Executable)
        for name in Executable.__slots__:
            setattr(found, name, getattr(self, name))
        found.plan = plan
        found.natives = tuple(natives)
        return found

    def session(self, arena: Memory | None = None) -> NativeSession:
        """A session with memory of its own, but for a lent arena that is large enough.

        Raises DriverFault where the system has no room.
        """
        try:
            return NativeSession(self, arena)
        except (OSError, ValueError, OverflowError) as error:
            detail = f"no memory for a session of {self.plan.arena_bytes} bytes: {error}"
            raise DriverFault(driver="cpu", detail=detail) from error

    def copy_strided(
        self,
        to: int,
        source: int,
        itemsize: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> None:
        """Copy a strided array (items of 1, 2, 4, 8 or 16 bytes) into contiguous memory."""
        rank = len(shape)
        dims = (ctypes.c_int64 * (2 * rank))(*shape, *strides)
        start = ctypes.addressof(dims)
        self.library.copy_strided(to, source, itemsize, rank, start, start + 8 * rank)

    def close(self) -> None:
        """Unload the code; its sessions must be closed."""
        self.library.close()


class NativeSession:
    """The memory of one call at a time: arena, scratch of each thread, argument slots.

    addresses: ctypes array, inputs first, then outputs; the caller fills it before `run`.
    run: one call on these addresses, a single native call. arena_address: for debugging. states:
    what this session keeps from call to call.
    Calls of one session must not overlap; sessions may run at once in several threads.
    """

    __slots__ = ("_blocks", "addresses", "arena_address", "run", "states", "workers")

    def __init__(self, executable: Executable, lent: Memory | None = None) -> None:
        plan, threads = executable.plan, executable.threads
        if len(executable.natives) != len(plan.natives):
            detail = f"{len(plan.natives)} native functions of the plan are not bound"
            raise DriverFault(driver="cpu", detail=detail)
        layout = _Layout(executable)
        stride = -(-plan.scratch_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        arena, scratch = lent or Memory(plan.arena_bytes), Memory(stride * threads)
        control, pool = Memory(layout.nbytes), process_pool()
        failed = control.address + abi.SESSION_FAILED
        self.states = HostStates(plan.states, executable.weights)
        own = (self.states, scratch, control)
        self._blocks: tuple[Memory | HostStates, ...] = own if lent else (arena, *own)
        self.arena_address = arena.address
        base = control.address
        words = base + layout.checks
        kept = {"state": self.states.addresses, "check": check_addresses(plan.checks, words)}
        parallel = layout.write(base, arena.address, threads, kept)
        self.workers = threads - 1 if parallel else 0
        _write(base + abi.SESSION_POOL, "<Q", pool.address)
        _write(base + abi.SESSION_SCRATCH, "<Qq", scratch.address, stride)
        _write(base + abi.SESSION_WORKERS, "<ii", self.workers, int(parallel))
        count = executable.inputs + executable.outputs
        self.addresses = (ctypes.c_int64 * count).from_address(base + layout.addresses)
        checks = Checks(plan.checks, words) if plan.checks else None
        is_plain = not executable.natives
        run = _caller(executable.library, pool, base, self.workers, checks if is_plain else None)
        self.run: Callable[[], None] = run
        if executable.natives:
            from .native import guarded

            self.run = guarded(self.run, failed, layout.frames(base))
            if checks is not None:
                self.run = checks.after(self.run)

    def close(self) -> None:
        """Free the memory; idempotent. Neither `run` nor `addresses` may be used afterwards."""
        for block in self._blocks:
            block.close()


def _caller(
    library: Library, pool: Pool, session: int, workers: int, checks: Checks | None
) -> Callable[[], None]:
    """A function without arguments that runs the session; a closure is cheaper than a method."""
    execute, pointer = library.execute, ctypes.c_void_p(session)
    if checks is not None:
        view, clean, verify = checks.view, checks.clean, checks.verify

        def run_checked() -> None:
            if pool.workers < workers:
                pool.start(library, workers)
            execute(pointer)
            if view != clean:
                verify()

        return run_checked

    def run() -> None:
        if pool.workers < workers:  # the first call, or the first one after a fork
            pool.start(library, workers)
        execute(pointer)

    return run


class _Layout:
    """Where the parts of a session's control block lie, as offsets from its start."""

    __slots__ = (
        "_arguments",
        "_executable",
        "_frames",
        "_launches",
        "_patches",
        "addresses",
        "checks",
        "nbytes",
    )

    def __init__(self, executable: Executable) -> None:
        launches = executable.plan.launches
        slots = sum(len(launch.args) for launch in launches)
        self._executable = executable
        self._launches = abi.SESSION_BYTES
        self._arguments = self._launches + abi.LAUNCH_BYTES * len(launches)
        self._patches = self._arguments + 8 * slots
        self.addresses = self._patches + abi.PATCH_BYTES * slots
        self.checks = self.addresses + 8 * (executable.inputs + executable.outputs)
        self.nbytes = self.checks + WORD_BYTES * len(executable.plan.checks)
        self._frames: dict[int, tuple[BoundNative, int]] = {}  # launch → its frame's offset
        for native in executable.natives:
            start = -(-self.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            self._frames[native.launch.launch] = native, start
            self.nbytes = start + native.nbytes

    def frames(self, base: int) -> list[tuple[BoundNative, int]]:
        """The native launches, each with the address of its frame."""
        return [(native, base + start) for native, start in self._frames.values()]

    def write(self, base: int, arena: int, threads: int, kept: Mapping[str, list[int]]) -> bool:
        """Fill launches, arguments and patches; True if a launch has several chunks."""
        plan, functions = self._executable.plan, self._executable.functions
        slot, patch, parallel = base + self._arguments, base + self._patches, False
        for index, launch in enumerate(plan.launches):
            programs, chunk, chunks = split_programs(launch.grid, threads)
            parallel = parallel or chunks > 1
            record = struct.pack(
                "<QQ3i3i", functions[launch.kernel], slot, *launch.grid, programs, chunk, chunks
            )
            ctypes.memmove(base + self._launches + index * abi.LAUNCH_BYTES, record, len(record))
            places = [slot + 8 * place for place in range(len(launch.args))]
            if index in self._frames:
                places = self._write_frame(base, index, slot, threads if chunks == 1 else 1)
            for place, (space, value) in zip(places, launch.args, strict=True):
                number = self._address_index(space, value)
                if number is None:
                    if space in kept:
                        fixed = kept[space][int(value)]
                    else:
                        fixed = self._fixed_value(space, value, arena)
                    _write(place, "<q", fixed)
                else:
                    _write(patch, "<Qq", place, number)
                    patch += abi.PATCH_BYTES
            slot += 8 * len(launch.args)
        patches = (patch - base - self._patches) // abi.PATCH_BYTES
        _write(base + abi.SESSION_LAUNCHES, "<Qq", base + self._launches, len(plan.launches))
        _write(base + abi.SESSION_PATCHES, "<Qq", base + self._patches, patches)
        _write(base + abi.SESSION_ADDRESSES, "<Q", base + self.addresses)
        return parallel

    def _write_frame(self, base: int, index: int, slot: int, threads: int) -> list[int]:
        """The frame of a native launch, its one argument; where its tensors' addresses belong."""
        native, start = self._frames[index]
        number = list(self._frames).index(index) + 1
        failed = base + abi.SESSION_FAILED
        native.write(base + start, failed, number, threads, native.state())
        _write(slot, "<Q", base + start)
        return [
            base + start + native.layout.data(place) for place in range(len(native.launch.tensors))
        ]

    def _address_index(self, space: str, value: int | str) -> int | None:
        """The index into the session's addresses of an argument that changes from call to call."""
        if space == "input":
            return int(value)
        return self._executable.inputs + int(value) if space == "output" else None

    def _fixed_value(self, space: str, value: int | str, arena: int) -> int:
        if space == "weight":
            return self._executable.weights[str(value)]
        return arena + int(value) if space == "arena" else int(value)


def split_programs(grid: tuple[int, int, int], threads: int) -> tuple[int, int, int]:
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
