"""Measures candidates of one kernel on a CUDA device: buffers, graphs of launches, times, results.

A kernel that reads foreign memory ends the process's CUDA context, and one that never ends would
hang: `measure` is called in a process that may be lost.

As in a model, weights come from memory at every launch and what the kernel before has written
still lies in the cache if it fits there: a graph holds many launches, and weights (and operands
too large for the cache) have so many copies, taken in turns, that none is met again in time.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any, Protocol, Self

from aotc.aot.extensions import extension
from aotc.aot.measure.device_lock import device_turn
from aotc.aot.measure.numbers import agree, pattern
from aotc.aot.measure.program import Buffer, Measurement, Program, Rows
from aotc.aot.measure.sampling import halve
from aotc.aot.tasks.errors import DeviceDiffers
from aotc.aot.tasks.task import device_word
from aotc.runtime.drivers.cuda.driver import describe
from aotc.runtime.drivers.cuda.handles import Arguments, parameters
from aotc.runtime.errors import AotcError

LAUNCHES = 20  # of one graph at least, unless a launch is long
LAUNCHES_LIMIT = 128
LONG_US = 100.0  # a launch that is expected to take longer needs fewer in a graph
SAMPLE_MS = 1.0  # one sample replays the graph until it is this long
REPLAYS_LIMIT = 50
SETS_BYTES_LIMIT = 4 << 30
SMALL_BYTES = 256 << 10  # weights that together are smaller are left in the cache
CHECKED_BYTES = 3 << 20  # of each result: its beginning, middle and end
UNWRITTEN = 0xFF  # every byte of a result before it is checked: a NaN


def measure(data: bytes) -> Rows:
    """Microseconds of a launch of each program of a Measurement, with cold weights; infinite for a
    refused one, with the reason. Raises DeviceDiffers, DeviceLost."""
    task = Measurement.from_bytes(data)
    ordinals, expected_us = ordinals_of(task.device), task.expected_ns / 1e3
    with (
        device_turn(*ordinals) as ordinal,
        Bench(device_of(ordinal), task.buffers, expected_us) as bench,
    ):
        return bench.measure(task.programs)


def ordinals_of(device: str) -> list[int]:
    """The devices here that tuning records call so; raises DeviceDiffers where there is none."""
    if not device:
        return [0]
    words = {ordinal: device_word(name) for ordinal, name, _, _ in describe()}
    found = [ordinal for ordinal, word in words.items() if word == device]
    if not found:
        raise DeviceDiffers(expected=device, found=", ".join(words.values()) or "no device")
    return found


@functools.cache
def device_of(ordinal: int) -> Any:
    """The device of this number, opened once."""
    from aotc.runtime.drivers.cuda.device import Device

    return Device(ordinal)


class OnDevice:
    """A stream, a clock and memory on a device; a context manager that frees them."""

    purpose: str  # of the memory

    def __init__(self, device: Any) -> None:
        self.device = device
        self._stack = ExitStack()
        try:
            self._stream = self._stack.enter_context(closing(device.stream())).handle
            self._events = [self._stack.enter_context(closing(device.event())) for _ in range(2)]
            self._fill()
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _fill(self) -> None:
        """Take what is measured to the device."""
        raise NotImplementedError

    def memory(self, nbytes: int) -> int:
        """Device memory until the end."""
        address: int = self.device.allocate(nbytes, self.purpose)
        self._stack.callback(self.device.free, address)
        return address

    def filled(self, buffer: Buffer, deviation: float = 1.0) -> int:
        """Memory of a buffer, zeros where it is stored to."""
        address = self.memory(buffer.nbytes)
        if buffer.role == "stored":
            self.device.fill(address, 0, buffer.nbytes, self._stream)
        else:
            fill(self.device, address, buffer, deviation)
        return address

    def replay_ms(self, graph: Any, count: int) -> float:
        """Milliseconds of so many launches of a graph."""
        begin, end = self._events
        begin.record(self._stream)
        for _ in range(count):
            graph.launch(self._stream)
        end.record(self._stream)
        elapsed_ms: float = self.device.elapsed_ms(begin, end)
        return elapsed_ms


class Bench(OnDevice):
    """One kernel's buffers on a device."""

    purpose = "a buffer of a kernel that is measured"

    def __init__(self, device: Any, buffers: Sequence[Buffer], expected_us: float) -> None:
        """Fill all buffers. `expected_us`: roughly what a launch takes, from the model."""
        self._buffers = buffers
        self.launches, self.sets = layout(buffers, device.attribute("l2_bytes"), expected_us)
        super().__init__(device)

    def _fill(self) -> None:
        rows = zip(self._buffers, self.sets, strict=True)
        self._addresses = [[self.filled(buffer) for _ in range(count)] for buffer, count in rows]

    def measure(self, programs: Sequence[Program]) -> Rows:
        """Time all programs by successive halving; the winner gives the first program's numbers.

        A program that spills too much, does not load, fails or disagrees has an infinite time.
        Raises DeviceLost where one breaks the device.
        """
        refused = [""] * len(programs)
        with ExitStack() as stack:
            loaded: list[Loaded | None] = []
            reference: list[bytes] | None = None
            for index, program in enumerate(programs):
                loaded.append(None)
                try:
                    candidate = stack.enter_context(_loaded(self, program))
                    results = self._results(candidate)
                except AotcError as error:
                    if self.device.lost is not None:
                        raise
                    refused[index] = str(error).partition("\n")[0]
                    continue
                reference = reference or results
                if self._agrees(results, reference):
                    loaded[index] = candidate
                else:
                    refused[index] = "gives other numbers"
            samples = [self._sampler(candidate) for candidate in loaded]
            times_us = halve(samples)
        return list(zip(times_us, refused, strict=True))

    def addresses(self, number: int) -> list[int]:
        """Those of the parameters in the launch of this number."""
        return [copies[number % len(copies)] for copies in self._addresses]

    # Numbers.

    def _results(self, candidate: Loaded) -> list[bytes]:
        """What one launch stores, where nothing was written before."""
        stored = [place for place, row in enumerate(self._buffers) if row.role == "stored"]
        addresses = self.addresses(0)
        for place in stored:
            self.device.fill(addresses[place], UNWRITTEN, self._buffers[place].nbytes, self._stream)
        candidate.launch(self._stream)
        self.device.synchronize()
        return [self._read(addresses[place], self._buffers[place].nbytes) for place in stored]

    def _read(self, address: int, nbytes: int) -> bytes:
        """A buffer, or three parts of a large one."""
        parts = [(0, nbytes)]
        if nbytes > CHECKED_BYTES:
            size = CHECKED_BYTES // 3 // 64 * 64
            middle = (nbytes - size) // 2 // 64 * 64
            parts = [(0, size), (middle, size), ((nbytes - size) // 64 * 64, size)]
        found = bytearray()
        for offset, size in parts:
            host = ctypes.create_string_buffer(size)
            self.device.copy_to_host(ctypes.addressof(host), address + offset, size)
            found += host.raw
        return bytes(found)

    def _agrees(self, results: Sequence[bytes], reference: Sequence[bytes]) -> bool:
        kinds = [row.kind for row in self._buffers if row.role == "stored"]
        rows = zip(kinds, results, reference, strict=True)
        return all(agree(kind, found, expected) for kind, found, expected in rows)

    # Times.

    def _sampler(self, candidate: Loaded | None) -> Callable[[], float]:
        if candidate is None:
            return lambda: math.inf
        graph = candidate.graph()
        first_ms = self.replay_ms(graph, 1)
        first_ms = min(first_ms, self.replay_ms(graph, 1))  # the first has met cold instructions
        replays = max(1, min(REPLAYS_LIMIT, math.ceil(SAMPLE_MS / max(first_ms, 1e-3))))
        return lambda: self.replay_ms(graph, replays) / replays / self.launches * 1e3


def _loaded(bench: Bench, program: Program) -> Loaded:
    """What is to be measured, once it is entered."""
    if program.native:
        native: Loaded = extension("measuring native functions").LoadedFunction(bench, program)
        return native
    return LoadedProgram(bench, program)


class Loaded:
    """A context manager that frees what the candidate took.

    `bench` has the operands' addresses by the number of the launch.
    """

    purpose: str  # of the memory that it takes

    def __init__(self, bench: Any) -> None:
        self._bench = bench
        self._device = bench.device
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._load()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _memory(self, nbytes: int) -> int:
        address: int = self._device.allocate(nbytes, self.purpose)
        self._stack.callback(self._device.free, address)
        return address

    def _load(self) -> None:
        """Bring it to the device."""
        raise NotImplementedError

    def launch(self, stream: int) -> None:
        """One launch on the first copies of the operands."""
        raise NotImplementedError

    def graph(self) -> Any:
        """What runs all launches of the bench by `launch(stream)`."""
        raise NotImplementedError


class Addressing(Protocol):
    """What a program that is measured asks of who measures it.

    addresses: of a launch's pointers, by its number; launches: of one graph.
    """

    device: Any
    launches: int

    def addresses(self, number: int) -> list[int]: ...


class LoadedProgram(Loaded):
    """A program in the device's memory."""

    purpose = "scratch of a kernel that is measured"

    def __init__(self, bench: Addressing, program: Program) -> None:
        super().__init__(bench)
        self._program = program

    def _load(self) -> None:
        device, program = self._device, self._program
        module = self._stack.enter_context(closing(device.load(program.code)))
        self._function = device.function(module, program.symbol, program.shared_bytes)
        self._scratch = []
        for nbytes, is_zeroed in program.scratch:
            self._scratch.append(self._memory(nbytes))
            if is_zeroed:
                device.fill(self._scratch[-1], 0, nbytes)
        own_bytes = math.prod(program.grid) * program.scratch_bytes
        # Triton's own last two parameters: memory of each program, and of the profiler.
        self._scratch += [self._memory(own_bytes) if own_bytes else 0, 0]
        device.synchronize()

    def _arguments(self, number: int) -> Arguments:
        """Those of the launch of this number."""
        addresses, scratch = self._bench.addresses(number), self._scratch
        maps = parameters(self._device, self._program.maps, addresses)
        sizes = self._program.sizes
        return Arguments([*addresses, *sizes, *scratch[:-2], *maps, *scratch[-2:]])

    def launch(self, stream: int) -> None:
        """One launch on the first copies."""
        arguments = self._arguments(0)
        row = self._program
        self._device.launch(self._function, row.grid, row.threads, arguments, stream)

    def graph(self) -> Any:
        """A graph of all launches, ready."""
        graph = self._stack.enter_context(closing(self._device.graph()))
        for number in range(self._bench.launches):
            self.add(graph, number)
        graph.instantiate()
        return graph

    def add(self, graph: Any, number: int) -> None:
        """Add the launch of this number to a graph."""
        row, arguments = self._program, self._arguments(number)
        graph.kernel(self._function, row.grid, row.threads, arguments, row.is_programmatic)


def fill(device: Any, address: int, buffer: Buffer, deviation: float = 1.0) -> None:
    """Copy the buffer's data to device memory, or repeat the pattern of its type over it."""
    data = buffer.data or pattern(buffer.kind, deviation)
    host = ctypes.create_string_buffer(data, len(data))
    for begin in range(0, buffer.nbytes, len(data)):
        size = min(len(data), buffer.nbytes - begin)
        device.copy_to_device(address + begin, ctypes.addressof(host), size)


def layout(
    buffers: Sequence[Buffer], cache_bytes: int, expected_us: float
) -> tuple[int, list[int]]:
    """(launches of a graph, copies of each buffer).

    Weights rotate over twice the cache, so do all operands together where they exceed half of it.
    """
    weights_bytes = sum(row.nbytes for row in buffers if row.role == "weight")
    others_bytes = sum(row.nbytes for row in buffers if row.role != "weight")
    weight_copies = _copies(weights_bytes, cache_bytes) if weights_bytes > SMALL_BYTES else 1
    other_copies = _copies(others_bytes, cache_bytes) if others_bytes > cache_bytes // 2 else 1
    launches = max(4, min(LAUNCHES, math.ceil(LAUNCHES * LONG_US / max(expected_us, 1.0))))
    if expected_us < LONG_US:
        launches = max(launches, weight_copies, other_copies)
    launches = min(launches, LAUNCHES_LIMIT)
    copies = {True: min(weight_copies, launches), False: min(other_copies, launches)}
    while copies[True] * weights_bytes + copies[False] * others_bytes > SETS_BYTES_LIMIT:
        if max(copies.values()) == 1:
            break
        copies = {kind: max(1, count // 2) for kind, count in copies.items()}
    return launches, [copies[row.role == "weight"] for row in buffers]


def _copies(nbytes: int, cache_bytes: int) -> int:
    return math.ceil(2 * cache_bytes / nbytes) + 1
