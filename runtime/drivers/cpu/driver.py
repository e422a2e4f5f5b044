"""The CPU driver: a launch plan and a library become sessions, and a call is one native call."""

from __future__ import annotations

import ctypes
import struct

from ...arrays.dlpack import HOST
from ...bundle.control_steps import ControlStep
from ...bundle.native_plan import SYMBOL, NativeLaunch
from ...bundle.torch_calls import TorchCall
from ...errors import DriverFault, LimitReached, environment_fault
from ..blocks import in_blocks, unrolled
from ..checks import WORD_BYTES, Checks, check_addresses
from ..memory import HostShared, Memory, missing_on_host, no_memory
from . import executor_abi as abi
from .heap import keep_freed_memory
from .library import Library
from .pool import default_threads, process_pool
from .tile_permission import TILE_FEATURES, tile_refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeVar

    from ...bundle.plan import Launch, LaunchPlan, Plan, StateSlot
    from ..protocol import BoundStep, Missing, Natives

    Made = TypeVar("Made")

DEVICE = HOST[0]
HAS_DEVICE_MEMORY = False
LIBRARY_NAME = "kernels.so"
PROCESSOR_FILE = "/proc/cpuinfo"

# What a row of the target table needs, in the words of /proc/cpuinfo; the better row last.
_AVX2 = frozenset(("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"))
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_AVX512_BF16 = _AVX512 | {"avx512_bf16", "avx512_vnni"}
ISA_FEATURES = {
    "x86-64-v3": _AVX2,
    "x86-64-v3-vnni": _AVX2 | {"avx_vnni"},
    "x86-64-v4": _AVX512,
    "x86-64-v4-vnni": _AVX512 | {"avx512_vnni"},
    "x86-64-v4-bf16": _AVX512_BF16,
    "x86-64-amx": _AVX512_BF16 | TILE_FEATURES,
}
# Rows that are no better than the one before them on processors of which all of these words are
# true: Intel's with AVX-512 FP16 multiply pairs of bf16 half as fast as f32, since they have tiles
# for that; where these are not permitted, pairs are no substitute (docs/tiles.md).
NO_BETTER = {"x86-64-v4-bf16": {"GenuineIntel", "avx512_fp16"}}
CHUNKS_PER_THREAD = 16
TOGETHER = 64  # launches of turns of a repeated block that are one native stretch
ALIGNMENT_BYTES = 64
_LAUNCH_FIELDS = "<QQ3i3i"  # function, slots, grid, programs, programs of a chunk, chunks
_OWN_BYTES = abi.LAUNCH_BYTES - struct.calcsize(_LAUNCH_FIELDS)  # the executor's
_LAUNCH = struct.Struct(f"{_LAUNCH_FIELDS}{_OWN_BYTES}x")


def features() -> frozenset[str]:
    """The instruction sets that this process may use, in the words of /proc/cpuinfo, and the name
    of the processor's vendor.

    Empty where that file is absent; raises `LimitReached` where this process may open no more.
    Those of tiles are in it where the kernel permits them.
    """
    found = processor_features()
    return found - TILE_FEATURES if found & TILE_FEATURES and tile_refusal() else found


def processor_features() -> frozenset[str]:
    """The same before the kernel is asked."""
    vendor: list[str] = []
    try:
        with open(PROCESSOR_FILE, encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("vendor_id"):
                    vendor = line.partition(":")[2].split()
                if line.startswith("flags"):
                    return frozenset([*vendor, *line.partition(":")[2].split()])
    except OSError as error:
        fault = environment_fault("read", PROCESSOR_FILE, error)
        if isinstance(fault, LimitReached):  # what the processor has is not known then
            raise fault from None
    return frozenset()


def missing(needs: Sequence[str], device: int = 0, ranks: int = 1) -> list[Missing]:
    """What a target with these needs lacks here: instruction sets, the permission to use tiles."""
    found = processor_features()
    rows = missing_on_host(found, needs, DEVICE, device)
    if ranks > 1:
        hint = "rebuild for a CPU without `--tensor-parallel`"
        rows.append(("ranks", "devices", "one host", f"{ranks} devices", hint))
    refusal = "" if rows or not TILE_FEATURES & set(needs) else tile_refusal()
    if refusal:
        expected = "tile data (AMX) permitted by `arch_prctl(ARCH_REQ_XCOMP_PERM)`"
        hint = "add a target without tiles, `--target cpu-x86-64-v4`, or run outside the sandbox"
        rows.append(("tile-permission", "instruction set", refusal, expected, hint))
    return rows


def group(ranks: int) -> Callable[..., Executable]:
    """What loads a program that is split over devices; raises `DriverFault`: there are none."""
    raise DriverFault(driver=DEVICE, detail=f"a program of {ranks} devices runs on none of them")


def describe() -> list[tuple[int, str, str, int]]:
    """No devices: the host has no number."""
    return []


def best_isa(found: frozenset[str]) -> str | None:
    """The best row of `ISA_FEATURES` that these features satisfy."""
    best = None
    for name, needed in ISA_FEATURES.items():
        if needed <= found and not NO_BETTER.get(name, {""}) <= found:
            best = name
    return best


class Executable:
    """The loaded code of one target with its plan; shared by sessions, also between threads.

    steps_kept: of all shapes that a session keeps; one takes about a hundred bytes.
    """

    steps_kept = 1 << 17
    __slots__ = ("fallback", "functions", "inputs", "library", "natives", "outputs", "plan",
                 "threads", "weights")  # fmt: skip

    def __init__(
        self,
        library: bytes,
        plan: Plan | LaunchPlan,
        weights: Mapping[str, tuple[int, int]],
        inputs: Sequence[int],
        outputs: Sequence[int],
        device: int = 0,
        threads: int = 0,
        natives: Natives | None = None,
        fallback: Any = None,
    ) -> None:
        """See `drivers/__init__.py`. Raises DriverFault if the library cannot be loaded or lacks a
        kernel."""
        keep_freed_memory()
        self.library = Library(library)
        self.plan: Any = plan
        self.weights = {name: address for name, (address, _) in weights.items()}
        self.inputs = len(inputs)
        self.outputs = len(outputs)
        self.threads = threads or default_threads()
        self.natives = natives
        self.fallback = fallback
        self.functions = [self.library.address_of(kernel.symbol) for kernel in plan.kernels]

    def at(
        self, plan: LaunchPlan, inputs: tuple[int, ...] | None = None, outputs: tuple[int, ...] = ()
    ) -> Executable:
        """The same code with a plan for given sizes; it needs no closing.

        inputs, outputs: bytes of each, where they are not those of this code; the host need only
        know how many there are.
        """
        found = Executable.__new__(Executable)
        for name in Executable.__slots__:
            setattr(found, name, getattr(self, name))
        found.plan = plan
        if inputs is not None:
            found.inputs, found.outputs = len(inputs), len(outputs)
        return found

    def shared(self, states: Sequence[StateSlot] | None = None) -> HostShared:
        """Memory for the sessions of several shapes of one caller; raises `SessionMemoryFull`.

        states: of the sizes that the caller has; else those of the plan.
        """
        return self._made(lambda: self._shared(0, states), self._scratch_bytes())

    def _shared(self, arena_bytes: int, states: Sequence[StateSlot] | None = None) -> HostShared:
        slots = self.plan.states if states is None else states
        return HostShared(arena_bytes, slots, self.weights, self._scratch_bytes())

    def _scratch_bytes(self) -> int:
        return aligned(self.plan.scratch_bytes) * self.threads

    def session(self, shared: HostShared | None = None) -> CpuSession:
        """A session with memory of its own, but for what is shared with those of other shapes.

        Raises `SessionMemoryFull` where the system has no room.
        """
        nbytes = getattr(self.plan, "arena_bytes", 0) if shared is None else 0
        return self._made(lambda: CpuSession(self, shared), nbytes + self._scratch_bytes())

    def _made(self, make: Callable[[], Made], nbytes: int) -> Made:
        try:
            return make()
        except (OSError, ValueError, OverflowError) as error:
            raise no_memory(nbytes, error) from error

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


class CpuSession:
    """The memory of one call at a time: arena, scratch of each thread, argument slots.

    addresses: ctypes array, inputs first, then outputs; the caller fills it before `run`.
    run: one call on these addresses; a single native call, where torch runs no step between. A step
    that is not native code ends a native stretch, and the next one begins another; so does the
    beginning, the middle or the end of a block of steps. arena_address: for debugging. states:
    mutable state.
    Calls of one session must not overlap; sessions may run at once in several threads.
    """

    __slots__ = ("_blocks", "_checks", "_parts", "_resolved", "addresses", "arena_address", "run",
                 "states", "workers")  # fmt: skip

    def __init__(self, executable: Executable, shared: HostShared | None = None) -> None:
        plan: LaunchPlan = executable.plan
        own = shared is None
        if shared is None:
            shared = executable._shared(plan.arena_bytes)
        self._blocks: list[Memory | HostShared] = [shared] if own else []
        # What runs, and whether torch does; between them control steps.
        self._parts: list[tuple[Callable[[], None] | ControlStep, bool]] = []
        self._checks: Checks | None = None
        try:
            self._fill(executable, plan, shared)
        except BaseException:
            self.close()
            raise

    def _fill(self, executable: Executable, plan: LaunchPlan, shared: HostShared) -> None:
        steps = unrolled(plan.steps, TOGETHER) if plan.has_blocks else plan.steps
        natives = _bound(executable, steps)
        needed_bytes = [each.needed_bytes for each in natives if each is not None]
        scratch, stride = shared.scratch, aligned(max(plan.scratch_bytes, *needed_bytes, 0))
        count = executable.inputs + executable.outputs
        base_bytes = 8 * count + WORD_BYTES * len(plan.checks)
        stretches = _stretches(steps, natives)
        layouts = []
        for each in stretches:
            if type(each) is list:
                layouts.append(_Layout(executable, each, aligned(base_bytes)))
                base_bytes = layouts[-1].end
        if stride * executable.threads > scratch.nbytes:  # a native function needs more
            scratch = Memory(stride * executable.threads)
            self._blocks.append(scratch)
        control = Memory(base_bytes)
        self._blocks.append(control)
        base, words = control.address, control.address + 8 * count
        self.states, self.arena_address = shared.states, shared.arena.address
        self.addresses = (ctypes.c_int64 * count).from_address(base)
        by_space = {"state": shared.states.addresses, "check": check_addresses(plan.checks, words)}
        checks = Checks(plan.checks, words) if plan.checks else None
        is_plain = len(stretches) == 1 and not any(natives)
        memory = _Memory(base, self.arena_address, scratch.address, stride, by_space)
        self.workers = 0
        remaining = iter(layouts)
        for each in stretches:
            if type(each) is TorchCall:
                step = executable.fallback.step(each, memory.resolver(executable.weights))
                self._parts.append((self._on_call(step, executable.inputs), True))
                continue
            if type(each) is ControlStep:
                self._parts.append((each, False))
                continue
            layout = next(remaining)
            workers = layout.write(memory)
            self.workers = max(self.workers, workers)
            control_base = base + layout.start
            own_checks = checks if is_plain else None
            run = _caller(executable.library, control_base, workers, own_checks)
            if layout.has_natives and executable.natives is not None:
                failed = control_base + abi.SESSION_FAILED
                run = executable.natives.guarded(run, failed, layout.frames(base))
            self._parts.append((run, False))
        self._resolved = memory.resolver(executable.weights), executable.inputs
        self._checks = checks
        self.run: Callable[[], None] = self._joined([run for run, _ in self._parts])
        if checks is not None and not is_plain:
            self.run = checks.after(self.run)

    def _on_call(self, step: Callable[..., None], inputs: int) -> Callable[[], None]:
        """A run of a step of torch on the addresses of the call."""
        addresses = self.addresses

        def address_of(space: str, index: int) -> int:
            return int(addresses[index if space == "input" else inputs + index])

        return lambda: step(address_of)

    def _joined(self, parts: Sequence[Callable[[], None] | ControlStep]) -> Callable[[], None]:
        """A run of all parts, with branches and loops."""
        if len(parts) == 1 and not isinstance(parts[0], ControlStep):
            return parts[0]
        after = self._checks.after if self._checks is not None else lambda run: run
        return in_blocks(parts, in_turn, self._is_set, after)

    def _is_set(self, control: ControlStep) -> Callable[[], bool]:
        """What answers whether the condition of a control step is not 0."""
        assert control.condition is not None
        (space, value), (resolved, inputs) = control.condition, self._resolved
        address = resolved(space, value)
        if address is not None:
            fixed = ctypes.c_uint8.from_address(address)
            return lambda: fixed.value != 0
        addresses, number = self.addresses, int(value) + (inputs if space == "output" else 0)
        return lambda: ctypes.c_uint8.from_address(addresses[number]).value != 0

    def run_timed(self, clock: Callable[[], float]) -> list[float]:
        """One call as `run` makes it; how long each step of torch took, by the clock, all of its
        runs together."""
        times: list[float] = []

        def timed(run: Callable[[], None], number: int) -> Callable[[], None]:
            def run_it() -> None:
                began = clock()
                run()
                times[number] += clock() - began

            return run_it

        parts: list[Callable[[], None] | ControlStep] = []
        for part, is_torch in self._parts:
            if is_torch and not isinstance(part, ControlStep):
                times.append(0.0)
                parts.append(timed(part, len(times) - 1))
            else:
                parts.append(part)
        self._joined(parts)()
        if self._checks is not None:
            self._checks.verify()
        return times

    def close(self) -> None:
        """Free the memory; idempotent. Neither `run` nor `addresses` may be used afterwards."""
        self._parts.clear()
        for block in self._blocks:
            block.close()


def _bound(executable: Executable, steps: Sequence[Any]) -> list[BoundStep | None]:
    """For each step the native function that it calls, None for other steps."""
    if not any(type(step) is NativeLaunch for step in steps):
        return [None] * len(steps)
    assert executable.natives is not None
    return [executable.natives.bound(step) for step in steps]


def _stretches(steps: Sequence[Any], natives: Sequence[BoundStep | None]) -> list[Any]:
    """The steps in order: stretches of native code, and between them calls of torch and control
    steps."""
    found: list[Any] = []
    for step, native in zip(steps, natives, strict=True):
        if type(step) is TorchCall or type(step) is ControlStep:
            found.append(step)
        elif found and type(found[-1]) is list:
            found[-1].append((step, native))
        else:
            found.append([(step, native)])
    return found or [[]]


def in_turn(runs: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """A run that is several, one after the other."""
    parts = tuple(runs)

    def run() -> None:
        for part in parts:
            part()

    return run


def _caller(
    library: Library, session: int, workers: int, checks: Checks | None
) -> Callable[[], None]:
    """A function without arguments that runs a stretch; a closure is cheaper than a method."""
    execute, pointer, pool = library.execute, ctypes.c_void_p(session), process_pool()
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


class _Memory:
    """Where the parts of a session lie: its control block with the addresses of inputs and outputs
    at its start, the arena, the threads' scratch, and the addresses in the other spaces."""

    __slots__ = ("arena", "by_space", "control", "scratch", "stride")

    def __init__(
        self, control: int, arena: int, scratch: int, stride: int, by_space: Mapping[str, list[int]]
    ) -> None:
        self.control = control
        self.arena = arena
        self.scratch = scratch
        self.stride = stride
        self.by_space = by_space

    def resolver(self, weights: Mapping[str, int]) -> Callable[[str, int | str], int | None]:
        """A function that gives the address of memory that stays, and None for what a call
        decides."""

        def found(space: str, value: int | str) -> int | None:
            if space in self.by_space:
                return self.by_space[space][int(value)]
            if space == "weight":
                return weights[str(value)]
            return self.arena + int(value) if space == "arena" else None

        return found


class _Layout:
    """Where the parts of a native stretch lie in the control block, as offsets from its start."""

    __slots__ = ("_arguments", "_executable", "_frames", "_launches", "_patches", "_steps",
                 "end", "start")  # fmt: skip

    def __init__(
        self, executable: Executable, steps: list[tuple[Any, BoundStep | None]], start: int
    ) -> None:
        slots = sum(max(1, len(_arguments(step))) for step, _ in steps)
        self._executable = executable
        self._steps = steps
        self.start = start
        self._launches = start + abi.SESSION_BYTES
        self._arguments = self._launches + abi.LAUNCH_BYTES * len(steps)
        self._patches = self._arguments + 8 * slots
        self.end = self._patches + abi.PATCH_BYTES * slots
        self._frames: dict[int, tuple[BoundStep, int]] = {}  # step → its frame's offset
        for index, (_, native) in enumerate(steps):
            if native is not None:
                frame = aligned(self.end)
                self._frames[index] = native, frame
                self.end = frame + native.nbytes

    @property
    def has_natives(self) -> bool:
        """Whether a step calls a native function."""
        return bool(self._frames)

    def frames(self, base: int) -> list[tuple[BoundStep, int]]:
        """The native functions, each with the address of its frame."""
        return [(native, base + start) for native, start in self._frames.values()]

    def write(self, memory: _Memory) -> int:
        """Fill launches, arguments and patches; how many workers the stretch keeps busy."""
        executable, base = self._executable, memory.control
        threads, address_of = executable.threads, memory.resolver(executable.weights)
        slot, parallel = base + self._arguments, False
        records: list[bytes] = []
        values: list[int] = []  # of the slots; 0 for what a patch brings
        patches: list[int] = []  # address and number of each
        for index, (step, native) in enumerate(self._steps):
            grid = step.grid if native is None else (step.tiles, 1, 1)
            if native is None:
                function = executable.functions[step.kernel]
            else:
                function = executable.library.address_of(SYMBOL)
            programs, chunk, chunks = split_programs(grid, threads)
            parallel = parallel or chunks > 1
            records.append(_LAUNCH.pack(function, slot, *grid, programs, chunk, chunks))
            arguments = _arguments(step)
            own = [0] * max(1, len(arguments))
            places: Sequence[int] = range(slot, slot + 8 * len(arguments), 8)
            if native is not None:
                own[0], places = self._frame(base, index, threads if chunks == 1 else 1)
            for at, (space, value) in enumerate(arguments):
                number = self._address_index(space, value)
                if number is not None:
                    patches += places[at], number
                    continue
                fixed: Any = int(value) if space == "int" else address_of(space, value)
                if native is None:
                    own[at] = fixed
                else:
                    _write(places[at], "<q", fixed)
            values += own
            slot += 8 * len(own)
        _write_all(base + self._launches, b"".join(records))
        _write_all(base + self._arguments, struct.pack(f"<{len(values)}q", *values))
        _write_all(base + self._patches, struct.pack(f"<{len(patches)}q", *patches))
        workers = threads - 1 if parallel else 0
        session = base + self.start
        _write(session + abi.SESSION_POOL, "<Q", process_pool().address)
        _write(session + abi.SESSION_LAUNCHES, "<Qq", base + self._launches, len(self._steps))
        _write(session + abi.SESSION_SCRATCH, "<Qq", memory.scratch, memory.stride)
        _write(session + abi.SESSION_WORKERS, "<ii", workers, int(parallel))
        _write(session + abi.SESSION_PATCHES, "<Qq", base + self._patches, len(patches) // 2)
        _write(session + abi.SESSION_ADDRESSES, "<Q", base)
        return workers

    def _frame(self, base: int, index: int, threads: int) -> tuple[int, list[int]]:
        """Fill the frame of a native step; its address, which is the one argument, and where its
        tensors' addresses belong."""
        native, start = self._frames[index]
        number = list(self._frames).index(index) + 1
        failed = base + self.start + abi.SESSION_FAILED
        native.write(base + start, failed, number, threads, native.state())
        data = base + start
        return data, [data + native.layout.data(at) for at in range(len(native.launch.tensors))]

    def _address_index(self, space: str, value: int | str) -> int | None:
        """The index into the session's addresses of an argument that changes from call to call."""
        if space == "input":
            return int(value)
        return self._executable.inputs + int(value) if space == "output" else None


def _arguments(step: Launch | NativeLaunch) -> tuple[tuple[str, int | str], ...]:
    """(space, value) of what a step's function is given."""
    return step.memory if type(step) is NativeLaunch else step.args  # type: ignore[union-attr]


def split_programs(grid: tuple[int, int, int], threads: int) -> tuple[int, int, int]:
    """(programs, programs of a chunk, chunks) of a launch."""
    programs = grid[0] * grid[1] * grid[2]
    if threads == 1:
        return programs, programs, 1
    limit = min(threads * CHUNKS_PER_THREAD, abi.CHUNKS_LIMIT)
    chunk = -(-programs // limit)
    return programs, chunk, -(-programs // chunk)


def aligned(nbytes: int) -> int:
    """The next multiple of the alignment."""
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _write(address: int, layout: str, *values: int) -> None:
    _write_all(address, struct.pack(layout, *values))


def _write_all(address: int, record: bytes) -> None:
    ctypes.memmove(address, record, len(record))
