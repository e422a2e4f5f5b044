"""Weights from the host to the device: mapped file → pinned ring → device, several at a time.

Tensors that lie beside each other in the file are copied as one run and lie in the same way on the
device. A run is cut into chunks; a few threads take the next one each, copy it into pinned memory
of their own without the interpreter's lock, and let the device fetch it while they fill the other
half of their ring.
"""

from __future__ import annotations

import _thread
import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from .device import Device

    Rows = tuple[int, int, int, int, int]

ALIGNMENT_BYTES = 256  # of a run on the device
GAP_LIMIT_BYTES = 256  # tensors of a run have less than this between them
CHUNK_BYTES = 4 << 20
RING_CHUNKS = 2
THREADS = 4
DIRECT_LIMIT_BYTES = 4 << 20  # less than this is not worth threads and pinned memory


class Run:
    """Host memory that is copied as it lies: addresses and sizes in bytes."""

    __slots__ = ("begin", "end", "offset")

    def __init__(self, begin: int, end: int, offset: int) -> None:
        self.begin = begin  # host addresses
        self.end = end
        self.offset = offset  # from the start of the block on the device


def lay_out(tensors: Mapping[str, tuple[int, int]]) -> tuple[list[Run], dict[str, int], int]:
    """(runs, offset of each tensor on the device, size of the block), all in bytes.

    `tensors` maps names to (host address, bytes). Offsets keep addresses modulo 256 as they are.
    """
    runs: list[Run] = []
    offsets: dict[str, int] = {}
    used = 0
    for name, (address, nbytes) in sorted(tensors.items(), key=lambda row: row[1]):
        if not runs or address - runs[-1].end >= GAP_LIMIT_BYTES:
            used = -(-used // ALIGNMENT_BYTES) * ALIGNMENT_BYTES + address % ALIGNMENT_BYTES
            runs.append(Run(address, address, used))
        run = runs[-1]
        run.end = max(run.end, address + nbytes)
        offsets[name] = run.offset + address - run.begin
        used = run.offset + run.end - run.begin
    return runs, offsets, used


class Upload:
    """Weights on their way to the device; `finish` waits for them.

    addresses: device address of each tensor. Copies run in threads of their own in the meantime.
    """

    __slots__ = ("_copies", "addresses")

    def __init__(
        self,
        device: Device,
        tensors: Mapping[str, tuple[int, int]],
        is_separate: bool = False,
        purpose: str = "the weights",
    ) -> None:
        """Allocate and begin; `is_separate`: every tensor is an allocation of its own.

        `tensors` maps names to (host address, bytes). Raises `DeviceMemoryFull` before any copy.
        """
        self.addresses: dict[str, int] = {}
        copies: list[tuple[int, int, int]] = []
        if is_separate:
            for name, (source, nbytes) in tensors.items():
                self.addresses[name] = device.allocate(nbytes, f"the weight `{name}`")
                copies.append((self.addresses[name], source, nbytes))
        elif tensors:
            runs, offsets, nbytes = lay_out(tensors)
            block = device.allocate(nbytes, purpose)
            self.addresses = {name: block + offset for name, offset in offsets.items()}
            copies = [(block + run.offset, run.begin, run.end - run.begin) for run in runs]
        self._copies = Copies(device, copies)

    def finish(self) -> None:
        """Help with the rest and wait until all tensors are there; raises the first error."""
        self._copies.finish()


def overwrite(
    device: Device, addresses: Mapping[str, int], tensors: Mapping[str, tuple[int, int]]
) -> None:
    """Copy tensors, (host address, bytes) by name, to the device's addresses of these names."""
    copies = [(addresses[name], source, nbytes) for name, (source, nbytes) in tensors.items()]
    Copies(device, copies).finish()


def _chunks(copies: list[tuple[int, int, int]], rows: list[Rows]) -> Iterator[Rows]:
    """The same copies in pieces of at most `CHUNK_BYTES`."""
    for to, source, nbytes in copies:
        for begin in range(0, nbytes, CHUNK_BYTES):
            width = min(CHUNK_BYTES, nbytes - begin)
            yield to + begin, source + begin, width, 1, width
    for to, source, width, count, pitch in rows:
        if width > CHUNK_BYTES:
            lines = [(to + row * pitch, source + row * width, width) for row in range(count)]
            yield from _chunks(lines, [])
            continue
        step = CHUNK_BYTES // max(width, 1)
        for row in range(0, count, step):
            size = min(step, count - row)
            yield to + row * pitch, source + row * width, width, size, pitch


class Copies:
    """Threads that copy chunks; `finish` waits for them and raises the first error."""

    __slots__ = ("_device", "_error", "_is_direct", "_locks", "_next")

    def __init__(
        self,
        device: Device,
        copies: list[tuple[int, int, int]],
        rows: Sequence[Rows] = (),
    ) -> None:
        """`copies`: (device address, host address, bytes); `rows`: (device address, host address,
        bytes of a row, rows, bytes from row to row on the device)."""
        chunks = list(_chunks(copies, list(rows)))
        self._device = device
        nbytes = sum(width * count for _, _, width, count, _ in chunks)
        self._is_direct = nbytes < DIRECT_LIMIT_BYTES and not rows
        self._next = iter(chunks)
        self._error: list[BaseException] = []
        self._locks: list[Any] = []
        for _ in range(0 if self._is_direct else min(THREADS, len(chunks))):
            lock = _thread.allocate_lock()
            lock.acquire()
            try:
                _thread.start_new_thread(self._work, (lock,))
            except RuntimeError:  # no more threads: those that there are do it all
                break
            self._locks.append(lock)

    def finish(self) -> None:
        """Take part, wait for the others, raise what went wrong in any of them."""
        self._copy()
        for lock in self._locks:
            lock.acquire()
        if self._error:
            raise self._error[0]

    def _work(self, lock: Any) -> None:
        try:
            self._copy()
        finally:
            lock.release()

    def _copy(self) -> None:
        ring = None
        try:
            # The shared iterator hands out each chunk once: one step of it holds the GIL.
            for chunk in self._next:
                if self._error:
                    break
                if self._is_direct:
                    self._device.copy_to_device(*chunk[:3])
                    continue
                ring = ring or _Ring(self._device)
                ring.copy(*chunk)
        except BaseException as error:
            self._error.append(error)
        if ring is not None:
            try:
                ring.close()
            except BaseException as error:
                self._error.append(error)


class _Ring:
    """One thread's pinned memory in two halves, its stream and the halves' events.

    The memory comes from the device's pool: the driver takes longer to give it and to take it back
    than to copy an adapter.
    """

    __slots__ = ("_device", "_events", "_half", "_pinned", "stream")

    def __init__(self, device: Device) -> None:
        self._device = device
        self.stream = device.stream()
        self._events = [device.event(is_timed=False) for _ in range(RING_CHUNKS)]
        self._pinned = device.pool.pinned(RING_CHUNKS * CHUNK_BYTES, "the upload of weights")
        self._half = 0

    def copy(self, to: int, source: int, width: int, rows: int, pitch: int) -> None:
        """Copy one chunk, once the device is done with this half of the ring."""
        event, address = self._events[self._half], self._pinned.address + self._half * CHUNK_BYTES
        event.synchronize()  # at once where it was never recorded
        ctypes.memmove(address, source, width * rows)  # without the GIL
        if rows == 1:
            self._device.copy_to_device(to, address, width, self.stream.handle)
        else:
            part = (to, pitch, address, width, rows)
            self._device.copy_rows_to_device(*part, self.stream.handle)
        event.record(self.stream.handle)
        self._half = (self._half + 1) % RING_CHUNKS

    def close(self) -> None:
        """Wait for the last copies, then give everything back.

        Where the wait fails the device keeps it until its own end: a copy may still use it.
        """
        self.stream.synchronize()
        self._device.pool.free_pinned(self._pinned)
        for owned in (*self._events, self.stream):
            owned.close()
