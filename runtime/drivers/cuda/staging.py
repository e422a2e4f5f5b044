"""Host buffers of a session: pinned memory, device memory and the stream that copies between them.

Nothing is allocated before the first host buffer.
"""

from __future__ import annotations

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .device import Device
    from .handles import Event, Pinned, Stream


class Staging:
    """Copies of host buffers, by index of the session's addresses.

    A part grows where a call has more bytes for its index. is_used: whether there is any part; a
    run is then to be announced by `before_run` and `after_run`. Everything here runs on one stream
    of its own, made when needed.
    """

    __slots__ = ("_copies", "_device", "_flying", "_parts", "_pending", "_run", "_stream",
                 "is_used")  # fmt: skip

    def __init__(self, device: Device) -> None:
        self._device = device
        # Index → device address, host memory, bytes that both have at least.
        self._parts: dict[int, tuple[int, Pinned, int]] = {}
        self._flying: set[int] = set()  # indices whose pinned memory a copy may still use
        self._pending: list[tuple[int, int, int]] = []  # copies out: index, host address, bytes
        self._stream: Stream | None = None
        self._copies: Event | None = None  # after the last copy to the device
        self._run: Event | None = None  # after the last run on another stream
        self.is_used = False

    @property
    def stream(self) -> int:
        """The CUstream handle."""
        if self._stream is None:
            self._stream = self._device.stream()
        return self._stream.handle

    @property
    def nbytes(self) -> int:
        """Device memory in use."""
        return sum(nbytes for _, _, nbytes in self._parts.values())

    def part(self, index: int, nbytes: int) -> int:
        """Device memory of at least so many bytes for this index; its address."""
        if index in self._parts and self._parts[index][2] < nbytes:
            self._drop(index)
        if index not in self._parts:
            pinned = self._device.pool.pinned(nbytes, "a host buffer")
            try:
                address = self._device.pool.allocate(nbytes, "the copy of a host buffer")
            except BaseException:
                pinned.close()
                raise
            self._parts[index] = (address, pinned, nbytes)
            self.is_used = True
        return self._parts[index][0]

    def _drop(self, index: int) -> None:
        """Give a part back that is too small, after all that uses it."""
        self._device.synchronize()
        self._free(*self._parts.pop(index))

    def _free(self, address: int, pinned: Pinned, _: int) -> None:
        self._device.pool.free_pinned(pinned)
        self._device.pool.free(address)

    def copy_in(self, index: int, host_address: int, nbytes: int) -> None:
        """Copy a host buffer to its part; the buffer may change as soon as this returns."""
        address = self.part(index, nbytes)
        pinned = self._parts[index][1]
        if index in self._flying:
            self._settle()
        ctypes.memmove(pinned.address, host_address, nbytes)
        self._flying.add(index)
        self._device.copy_to_device(address, pinned.address, nbytes, self.stream)
        if self._copies is None:
            self._copies = self._device.event(is_timed=False)

    def copy_out(self, index: int, host_address: int, nbytes: int) -> None:
        """Copy a part to a host buffer, which `synchronize` completes."""
        address = self.part(index, nbytes)
        pinned = self._parts[index][1]
        if index in self._flying:
            self._settle()
        self._flying.add(index)
        self._device.copy_to_host(pinned.address, address, nbytes, self.stream)
        self._pending.append((index, host_address, nbytes))

    def before_run(self, stream: int) -> None:
        """What is added to the stream from now on waits for the copies."""
        if self._copies is not None and stream != self.stream:
            self._copies.record(self.stream)
            self._wait(stream, self._copies)

    def after_run(self, stream: int) -> None:
        """What is added here from now on waits for what the stream holds, a run of the session.

        An event keeps the place: the stream may be destroyed before anybody asks.
        """
        if stream == self.stream:
            return
        if self._run is None:
            self._run = self._device.event(is_timed=False)
        self._run.record(stream)
        self._wait(self.stream, self._run)

    def _wait(self, stream: int, event: Event) -> None:
        with self._device.current():
            self._device.call("cuStreamWaitEvent", stream, event.handle, 0)

    def synchronize(self) -> None:
        """Wait for the copies and complete those to host buffers."""
        pending, self._pending = self._pending, []
        self._settle()
        for index, host_address, nbytes in pending:
            ctypes.memmove(host_address, self._parts[index][1].address, nbytes)

    def _settle(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()
        self._flying.clear()

    def close(self) -> None:
        """Give everything back, when no work uses it any more; idempotent."""
        if self._stream is not None:
            self._stream.close()
        for event in (self._copies, self._run):
            if event is not None:
                event.close()
        for part in self._parts.values():
            self._free(*part)
        self._parts.clear()
        self.is_used = False
        self._stream = self._copies = self._run = None
