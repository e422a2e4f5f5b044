"""A session's mutable state, in device memory: a block of its own, not the arena.

Its addresses are fixed when the session's graph is built, so that a replay finds them. Every
question waits for the session's last run first, and is answered before it returns.
"""

from __future__ import annotations

from ..states import offsets_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...bundle.plan import StateSlot
    from .device import Device
    from .staging import Staging

ALIGNMENT_BYTES = 256


class DeviceStates:
    """The states of one session; `addresses` has one device address each."""

    __slots__ = ("_device", "_owned", "_slots", "_staging", "_wait", "_weights", "addresses",
                 "nbytes")  # fmt: skip

    def __init__(
        self,
        device: Device,
        slots: tuple[StateSlot, ...],
        weights: Mapping[str, int],
        staging: Staging,
        wait: Callable[[], None],
    ) -> None:
        """Initial values, from `weights` by device address; `wait` returns after the last run.

        Raises `DeviceMemoryFull`.
        """
        self._device = device
        self._slots = slots
        self._weights = weights
        self._staging = staging
        self._wait = wait
        offsets, self.nbytes = offsets_of(self._slots, ALIGNMENT_BYTES)
        base = self._device.allocate(self.nbytes, "a session's states") if self._slots else 0
        self._owned = [base] if base else []
        self.addresses = [base + offset for offset in offsets]
        if self._slots:
            self._fill()

    def reset(self) -> None:
        """Back to the initial values."""
        self._wait()
        self._fill()

    def _fill(self) -> None:
        stream = self._staging.stream
        for slot, address in zip(self._slots, self.addresses, strict=True):
            if not slot.nbytes:
                continue
            if slot.initial is None:
                self._device.fill(address, 0, slot.nbytes, stream)
            else:
                self._device.copy(address, self._weights[slot.initial], slot.nbytes, stream)
        self._staging.synchronize()

    def read(self, index: int, host_address: int) -> None:
        """Copy a state's bytes to host memory."""
        self._wait()
        if self._slots[index].nbytes:
            address, nbytes = self.addresses[index], self._slots[index].nbytes
            self._device.copy_to_host(host_address, address, nbytes)

    def write(self, index: int, host_address: int) -> None:
        """Copy a state's bytes from host memory."""
        self._wait()
        if self._slots[index].nbytes:
            address, nbytes = self.addresses[index], self._slots[index].nbytes
            self._device.copy_to_device(address, host_address, nbytes)

    def close(self) -> None:
        """Give the memory back; idempotent."""
        for address in self._owned:
            self._device.free(address)
        self._owned.clear()
