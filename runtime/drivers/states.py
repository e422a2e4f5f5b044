"""A session's mutable state, in host memory: one block of its own, not the arena."""

from __future__ import annotations

import ctypes

from .memory import Memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..bundle.plan import StateSlot

ALIGNMENT_BYTES = 64


def offsets_of(slots: tuple[StateSlot, ...], alignment_bytes: int) -> tuple[list[int], int]:
    """Where each state lies in the block, and the block's size, in bytes."""
    offsets, end = [], 0
    for slot in slots:
        offsets.append(end)
        end += -(-max(1, slot.nbytes) // alignment_bytes) * alignment_bytes
    return offsets, end


class HostStates:
    """The states of one session; `addresses` has one entry each. For one thread at a time."""

    __slots__ = ("_block", "_slots", "_weights", "addresses")

    def __init__(self, slots: tuple[StateSlot, ...], weights: Mapping[str, int]) -> None:
        """Initial values; raises OSError or ValueError where the system has no room."""
        self._slots = slots
        self._weights = weights
        offsets, nbytes = offsets_of(slots, ALIGNMENT_BYTES)
        self._block = Memory(nbytes) if slots else None
        base = self._block.address if self._block is not None else 0
        self.addresses = [base + offset for offset in offsets]
        self.reset()

    def reset(self) -> None:
        """Back to the initial values."""
        for slot, address in zip(self._slots, self.addresses, strict=True):
            if slot.initial is None:
                ctypes.memset(address, 0, slot.nbytes)
            else:
                ctypes.memmove(address, self._weights[slot.initial], slot.nbytes)

    def read(self, index: int, host_address: int) -> None:
        """Copy a state's bytes to host memory."""
        ctypes.memmove(host_address, self.addresses[index], self._slots[index].nbytes)

    def write(self, index: int, host_address: int) -> None:
        """Copy a state's bytes from host memory."""
        ctypes.memmove(self.addresses[index], host_address, self._slots[index].nbytes)

    def close(self) -> None:
        """Free the memory; idempotent."""
        if self._block is not None:
            self._block.close()
