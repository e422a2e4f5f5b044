"""Host memory for native code: blocks of it, the states of a session, and what the sessions of all
shapes of one caller share."""

from __future__ import annotations

import _thread
import ctypes
import mmap

from ..arrays.dlpack import CPU_DEVICE
from ..arrays.view import HostView
from ..errors import DriverFault, HostMemoryFull
from .free_memory import free_host_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from ..bundle.plan import StateSlot
    from .protocol import Missing

HUGE_PAGE_BYTES = 2 << 20


class Memory:
    """A block of anonymous memory, zeroed; freed by `close` or with the object.

    From huge pages where it is large. Private, so that a forked child has a copy of its own.
    `address` is a multiple of the page size, and of 2 MiB for blocks of that size and more.
    """

    __slots__ = ("_mapping", "address", "nbytes")

    def __init__(self, nbytes: int) -> None:
        """Raises OSError or ValueError where the system has no room."""
        huge = nbytes >= HUGE_PAGE_BYTES
        room = nbytes + HUGE_PAGE_BYTES if huge else max(nbytes, 1)
        self._mapping = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.nbytes = nbytes
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))
        if huge:
            self.address = -(-self.address // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
            self._ask_for_huge_pages()

    def _ask_for_huge_pages(self) -> None:
        try:
            self._mapping.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # a kernel without transparent huge pages
            return

    def keep_forever(self) -> None:
        """Never free this block, not even at exit: threads that nobody joins use it."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._mapping))

    def close(self) -> None:
        """Free the block; idempotent."""
        self._mapping.close()
        self.address = 0


ALIGNMENT_BYTES = 64


def offsets_of(slots: tuple[StateSlot, ...], alignment_bytes: int) -> tuple[list[int], int]:
    """Where each state lies in the block, and the block's size, in bytes."""
    offsets, end = [], 0
    for slot in slots:
        offsets.append(end)
        end += -(-max(1, slot.nbytes) // alignment_bytes) * alignment_bytes
    return offsets, end


class HostStates:
    """The states of one session, in a block of their own, not the arena; `addresses` has one entry
    each. For one thread at a time."""

    __slots__ = ("_block", "_has_views", "_slots", "_weights", "addresses", "nbytes")

    def __init__(self, slots: tuple[StateSlot, ...], weights: Mapping[str, int]) -> None:
        """Initial values, in memory that is there: a session that is open never fails for want of
        it. Raises `HostMemoryFull`, OSError or ValueError where the system has no room."""
        self._slots = slots
        self._weights = weights
        self._has_views = False
        offsets, self.nbytes = offsets_of(slots, ALIGNMENT_BYTES)
        self._block = _states_block(self.nbytes) if slots else None
        base = self._block.address if self._block is not None else 0
        self.addresses = [base + offset for offset in offsets]
        self.reset()

    def reset(self) -> None:
        """Back to the initial values."""
        for slot, address in zip(self._slots, self.addresses, strict=True):
            if slot.initial is None:
                ctypes.memset(address, 0, slot.nbytes)
            else:
                own_bytes = slot.initial_bytes or slot.nbytes
                ctypes.memmove(address, self._weights[slot.initial], min(own_bytes, slot.nbytes))
                for start, nbytes in doublings(own_bytes, slot.nbytes):
                    ctypes.memmove(address + start, address, nbytes)

    def read(self, index: int, host_address: int) -> None:
        """Copy a state's bytes to host memory."""
        ctypes.memmove(host_address, self.addresses[index], self._slots[index].nbytes)

    def write(self, index: int, host_address: int) -> None:
        """Copy a state's bytes from host memory."""
        ctypes.memmove(self.addresses[index], host_address, self._slots[index].nbytes)

    def take(self, other: HostStates) -> None:
        """Have what the states of another session of the same sizes hold."""
        if self._block is not None and other._block is not None:
            ctypes.memmove(self._block.address, other._block.address, self.nbytes)

    def view(self, index: int, dtype: str, shape: tuple[int, ...]) -> HostView:
        """A state's own memory, which lives as long as the view and what was made of it."""
        self._has_views = True
        address = self.addresses[index]
        return HostView(dtype, shape, address, (CPU_DEVICE, 0), self._block, lambda: None)

    def close(self) -> None:
        """Free the memory, unless views still have it; idempotent."""
        block, self._block = self._block, None
        if block is not None and not self._has_views:
            block.close()


_STATES_LOCK = _thread.allocate_lock()


def _states_block(nbytes: int) -> Memory:
    """Memory for the states of a session, every page of it there; raises `HostMemoryFull`."""
    with _STATES_LOCK:  # what one session takes the next one does not find free
        free_bytes = free_host_bytes()
        if free_bytes is not None and nbytes > free_bytes:
            fields = {"needed_bytes": nbytes, "free_bytes": free_bytes}
            raise HostMemoryFull(purpose="the states of a session", **fields)
        block = Memory(nbytes)
        ctypes.memset(block.address, 0, nbytes)
        return block


def doublings(start: int, nbytes: int) -> Iterator[tuple[int, int]]:
    """(where, how many bytes) of copies from the beginning that fill `nbytes`, of which the first
    `start` are there."""
    while start < nbytes:
        count = min(start, nbytes - start)
        yield start, count
        start += count


def missing_on_host(
    features: frozenset[str], needs: Sequence[str], device: str, ordinal: int
) -> list[Missing]:
    """What a target that runs in this process lacks: a device without a number, features."""
    rows: list[Missing] = []
    if ordinal:
        hint = "the host has no number: use the name alone"
        rows.append(("device-absent", "device", f"`{device}:{ordinal}`", f"`{device}`", hint))
    absent = sorted(set(needs) - features)
    if absent:
        found = "this CPU without " + ", ".join(f"`{name}`" for name in absent)
        expected = "a CPU with " + ", ".join(f"`{name}`" for name in needs)
        hint = "rebuild with `aotc build --target` for the instruction set of this machine"
        rows.append(("instruction-set", "instruction set", found, expected, hint))
    return rows


class SessionMemoryFull(DriverFault):
    """The system has no room for the memory of a session's intermediates; size in bytes."""

    template = "no memory for a session: {nbytes} bytes are needed: {detail}"
    hint = "close sessions that are not in use, or raise the limits of this process"


def no_memory(nbytes: int, error: Exception) -> SessionMemoryFull:
    """The error for a session whose memory the system refused."""
    detail = (getattr(error, "strerror", None) or str(error)).lower()
    return SessionMemoryFull(nbytes=nbytes, detail=detail)


class HostShared:
    """One caller's arena, which grows with the shapes, its threads' scratch and its states."""

    __slots__ = ("arena", "scratch", "states")

    def __init__(
        self,
        arena_bytes: int,
        slots: Sequence[StateSlot],
        weights: Mapping[str, int],
        scratch_bytes: int = 0,
    ) -> None:
        """scratch_bytes: of all threads together.

        Raises OSError, ValueError or OverflowError where the system has no room.
        """
        blocks: list[Memory] = []
        try:
            blocks = [Memory(nbytes) for nbytes in (arena_bytes, scratch_bytes)]
            self.states = HostStates(tuple(slots), weights)
        except BaseException:
            for block in blocks:
                block.close()
            raise
        self.arena, self.scratch = blocks

    def fits(self, executable: Any) -> bool:
        """Whether the arena is large enough for the executable's plan."""
        return bool(executable.plan.arena_bytes <= self.arena.nbytes)

    def grow(self, executable: Any) -> None:
        """Have an arena that the plan fits in; sessions that use the old one are closed before.

        It is twice the old one where there is room, so that shapes that grow in small steps make it
        grow seldom; pages that no shape uses are never there. Raises `SessionMemoryFull` where the
        system has no room for the plan.
        """
        nbytes, twice_bytes = executable.plan.arena_bytes, 2 * self.arena.nbytes
        self.arena.close()
        self.arena = Memory(0)  # also where there is no room for the larger one
        for wanted_bytes in sorted({nbytes, max(nbytes, twice_bytes)}, reverse=True):
            try:
                self.arena = Memory(wanted_bytes)
                return
            except (OSError, ValueError, OverflowError) as error:
                if wanted_bytes == nbytes:
                    raise no_memory(nbytes, error) from error

    def close(self) -> None:
        """Free the memory; idempotent."""
        self.arena.close()
        self.scratch.close()
        self.states.close()
