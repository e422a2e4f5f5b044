"""Memory of a session on the device, its own or that of all shapes of one caller: the arena, states
and the words of checks."""

from __future__ import annotations

import sys

from ...arrays.dlpack import CUDA_DEVICE
from ...arrays.view import DeviceView
from ..checks import WORD_BYTES, Checks, check_addresses
from ..memory import doublings, offsets_of
from .run_order import RunOrder
from .staging import Staging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from ...bundle.plan import Buffer, LaunchPlan, StateSlot
    from ...errors import AotcError
    from .device import Device
    from .handles import Event, Pinned

ALIGNMENT_BYTES = 256
UNIT_BYTES = 16  # of distances between the arenas of ranks


class Arena:
    """A session's intermediate tensors and the scratch that kernels share, one block.

    In the debug mode `AOTC_SEPARATE_BUFFERS` every buffer is an allocation of its own, so that a
    memory checker sees an overrun. Buffers with one offset at different times share one.
    """

    __slots__ = ("_base", "_device", "_owned", "_parts", "_zeroed_bytes", "nbytes", "scratch")

    def __init__(
        self,
        device: Device,
        arena_bytes: int,
        scratch_bytes: int,
        zeroed_bytes: int,
        buffers: Sequence[Buffer] | None = None,
        purpose: str = "a session's arena",
    ) -> None:
        """`buffers`: those that get an allocation of their own, in the debug mode."""
        self._device = device
        self._owned: list[int] = []
        self._parts: dict[int, tuple[int, int]] = {}  # in the debug mode: offset → address, bytes
        self._base = self.scratch = self.nbytes = 0
        self._zeroed_bytes = zeroed_bytes
        try:
            if buffers is not None:
                self._allocate_parts(buffers, scratch_bytes)
                return
            arena_bytes = -(-arena_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            if arena_bytes + scratch_bytes:
                self.nbytes = arena_bytes + scratch_bytes
                self._base = device.pool.allocate(self.nbytes, purpose)
            if scratch_bytes:
                self.scratch = self._base + arena_bytes
        except BaseException:
            self.close()
            raise

    def _allocate(self, nbytes: int, purpose: str) -> int:
        address = self._device.allocate(nbytes, purpose)
        self._owned.append(address)
        self.nbytes += nbytes
        return address

    def _allocate_parts(self, buffers: Sequence[Buffer], scratch_bytes: int) -> None:
        sizes: dict[int, int] = {}
        for buffer in buffers:
            sizes[buffer.offset] = max(sizes.get(buffer.offset, 0), buffer.nbytes)
        for offset, nbytes in sorted(sizes.items()):
            self._parts[offset] = self._allocate(nbytes, "a buffer of its own"), nbytes
        if scratch_bytes:
            self.scratch = self._allocate(scratch_bytes, "scratch of its own")

    def lies_behind(self, other: Arena) -> int:
        """How far it lies from another device's arena, in units of `UNIT_BYTES`."""
        return (self._base - other._base) // UNIT_BYTES

    def address(self, offset: int) -> int:
        """Device address of an offset in the arena."""
        if not self._parts:
            return self._base + offset
        start = max(each for each in self._parts if each <= offset)
        return self._parts[start][0] + offset - start

    def clear(self, staging: Staging) -> None:
        """Zero the first bytes, as the plan asks for, and wait."""
        if not self._zeroed_bytes:
            return
        parts = self._parts or {0: (self._base, self._zeroed_bytes)}
        for offset, (address, nbytes) in parts.items():
            if offset < self._zeroed_bytes and nbytes:
                self._device.fill(address, 0, nbytes, staging.stream)
        staging.synchronize()

    def close(self) -> None:
        """Give the memory back, when no work uses it any more; idempotent."""
        for address in self._owned:
            self._device.free(address)
        self._owned.clear()
        if self._base:
            self._device.pool.free(self._base)
            self._base = 0


class Shared:
    """What the graphs of a caller share, those of all shapes and those of one call: arena, states,
    copies of host buffers, and turns.

    arena_bytes, scratch_bytes: what a shape may need at most; order: of the runs of all.
    """

    __slots__ = ("_device", "_largest", "_reached", "_zeroed_bytes", "arena", "arena_bytes",
                 "checks", "order", "peers", "scratch_bytes", "staging", "states")  # fmt: skip

    def __init__(
        self,
        device: Device,
        arena_bytes: int,
        scratch_bytes: int,
        zeroed_bytes: int,
        slots: tuple[StateSlot, ...],
        weights: Mapping[str, int],
    ) -> None:
        """`weights` has the device addresses of the states' initial values.

        Raises `DeviceMemoryFull`, with nothing left behind.
        """
        self._device = device
        self.order = RunOrder(device)
        self._reached: Event | None = None
        self._largest = "the largest in their ranges"
        self._zeroed_bytes = zeroed_bytes
        self.staging = Staging(device)
        self.checks: list[DeviceChecks] = []  # of the sessions of all shapes
        self.peers: Sequence[Shared] = ()  # what each rank of a split program has, itself too
        self.states: DeviceStates | None = None
        self.arena = self._made(0, 0)
        try:
            self._take(arena_bytes, scratch_bytes)
            with device.current():
                self.states = DeviceStates(device, slots, weights, self.staging, self.synchronize)
        except BaseException:
            self.close()
            raise

    def _made(self, arena_bytes: int, scratch_bytes: int) -> Arena:
        """An arena of this size; remembered as what there is."""
        purpose = f"the arena of a session's shapes, {self._largest} among them"
        sizes = arena_bytes, scratch_bytes
        with self._device.current():
            arena = Arena(
                self._device, *sizes, min(self._zeroed_bytes, arena_bytes), purpose=purpose
            )
        self.arena_bytes, self.scratch_bytes = sizes
        return arena

    def _take(self, arena_bytes: int, scratch_bytes: int) -> None:
        """Have an arena of at least this size in place of the one that there is."""
        if self.arena.nbytes:
            self._device.settle()
        self.arena.close()
        self.arena = self._made(0, 0)  # also where there is no room for the larger one
        self.arena = self._made(max(arena_bytes, self._zeroed_bytes), scratch_bytes)
        with self._device.current():
            self.arena.clear(self.staging)

    def distance(self, rank: int) -> int:
        """How far the arena of a rank lies from this one."""
        return self.peers[rank].arena.lies_behind(self.arena)

    def fits(self, code: Any) -> bool:
        """Whether the code's plan has room here."""
        if code.has_separate_buffers:  # a memory checker's mode: each shape has its own
            return True
        fits = code.arena_bytes <= self.arena_bytes
        return bool(fits and code.scratch_bytes <= self.scratch_bytes)

    def grow(self, code: Any) -> None:
        """Have room for the code's plan too; graphs that use the old arena are closed before.

        It is twice the old one where much more is free, so that shapes that grow in small steps
        make it grow seldom, since all graphs are then made anew. Raises `DeviceMemoryFull`.
        """
        self._largest = "those of this call"
        self.order.forget()
        found = self.arena_bytes, self.scratch_bytes
        needed = max(code.arena_bytes, found[0]), max(code.scratch_bytes, found[1])
        twice = max(needed[0], 2 * found[0]), max(needed[1], 2 * found[1])
        free_bytes = self._device.memory()[0] + self.arena.nbytes
        self._take(*(twice if sum(twice) <= free_bytes // 4 else needed))

    def mark(self, stream: int) -> None:
        """Have `reach_mark` wait for all runs up to now, the last of which was on this stream."""
        if self._reached is None:
            self._reached = self._device.event(is_timed=False)
        self._reached.record(stream)

    def reach_mark(self) -> None:
        """Wait for the runs before the last `mark`, and for no later ones."""
        if self._reached is not None:
            self._reached.synchronize()

    def synchronize(self) -> None:
        """Wait for the last run and the copies; raises what went wrong in them."""
        self.settle()
        self.verify()

    def settle(self) -> None:
        """Wait for the last run and the copies."""
        if self.staging.is_used:
            self.staging.synchronize()
        else:
            self._device.synchronize()

    def verify(self) -> None:
        """Raise what the device has found in the data of earlier calls of any shape, once."""
        for each in self.checks:
            each.verify()

    def close(self) -> None:
        """Give everything back; the graphs that use it are closed before.

        Raises `CudaError` where the device cannot be waited for: the memory then goes with it.
        """
        self._device.settle()
        self.order.close()
        if self._reached is not None:
            self._reached.close()
        if self.states is not None:
            self.states.close()
        self.staging.close()
        self.arena.close()
        self._reached = None


ALIGNMENT_BYTES = 256


class DeviceStates:
    """The states of one session, in a block of their own, not the arena; `addresses` has one device
    address each.

    They are fixed when the session's graph is built, so that a replay finds them. Every question
    waits for the session's last run first, and is answered before it returns.
    """

    __slots__ = (
        "_device",
        "_owned",
        "_slots",
        "_staging",
        "_viewed",
        "_wait",
        "_weights",
        "addresses",
        "nbytes",
    )  # fmt: skip

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
        self._viewed: DeviceBlock | None = None  # the memory, once views may outlive the session
        base = self._device.pool.allocate(self.nbytes, "a session's states") if self._slots else 0
        self._owned = [base] if base else []
        self.addresses = [base + offset for offset in offsets]
        if self._slots:
            try:
                self._fill()
            except BaseException:
                device.settle()
                self.close()
                raise

    def reset(self) -> None:
        """Back to the initial values."""
        self._wait()
        self._fill()

    def _fill(self) -> None:
        stream = self._staging.stream
        for start, end in self._zeros():
            self._device.fill(start, 0, end - start, stream)
        for slot, address in zip(self._slots, self.addresses, strict=True):
            if slot.initial is None or not slot.nbytes:
                continue
            own_bytes = slot.initial_bytes or slot.nbytes
            first_bytes = min(own_bytes, slot.nbytes)
            self._device.copy(address, self._weights[slot.initial], first_bytes, stream)
            for start, nbytes in doublings(own_bytes, slot.nbytes):
                self._device.copy(address + start, address, nbytes, stream)
        self._staging.synchronize()

    def _zeros(self) -> list[tuple[int, int]]:
        """(start, end) of the memory of states that begin as zeros, and of what lies between two
        of them."""
        found: list[tuple[int, int]] = []
        is_open = False  # whether the state before begins as zeros too
        for slot, address in zip(self._slots, self.addresses, strict=True):
            if slot.initial is None and slot.nbytes:
                start = found.pop()[0] if is_open else address
                found.append((start, address + slot.nbytes))
            is_open = slot.initial is None and (is_open or slot.nbytes > 0)
        return found

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

    def take(self, other: DeviceStates) -> None:
        """Have what the states of another session of the same sizes hold, by a copy on the
        device."""
        other._wait()
        self._wait()
        if self._slots:
            stream = self._staging.stream
            self._device.copy(self.addresses[0], other.addresses[0], self.nbytes, stream)
            self._staging.synchronize()

    def view(self, index: int, dtype: str, shape: tuple[int, ...]) -> DeviceView:
        """A state's own memory, which lives as long as the view and what was made of it; it holds
        what the calls before have left there."""
        if self._viewed is None:
            self._viewed = DeviceBlock(self._device, self.addresses[0])
        device = (CUDA_DEVICE, self._device.ordinal)
        return DeviceView(dtype, shape, self.addresses[index], device, self._viewed, self._wait)

    def close(self) -> None:
        """Give the memory back, unless views still have it, when no work uses it any more;
        idempotent."""
        if self._viewed is None:
            for address in self._owned:
                self._device.pool.free(address)
        self._owned.clear()
        self._viewed = None


class DeviceBlock:
    """Device memory that goes with the last reference to it, and not with what allocated it."""

    __slots__ = ("_device",)

    def __init__(self, device: Device, address: int) -> None:
        """Take over memory that `device` has allocated."""
        own = type(device)(device.ordinal)
        device.hand_over(address, own)
        self._device = own

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._device.close()


class DeviceChecks:
    """The words of one session's checks, in host memory that its kernels write to; none where no
    launch of its plan marks one.

    A kernel writes only where data is wrong, so that a call costs nothing more, and its graph needs
    no node for it. The host reads the words after it has waited for the device, and before each
    run, when it sees what has come by then. addresses: those of the words, by the number of the
    check.
    """

    __slots__ = ("_checks", "_device", "_memory", "addresses")

    def __init__(self, device: Device, plan: LaunchPlan) -> None:
        """Raises `DeviceMemoryFull`."""
        self._memory: Pinned | None = None
        self._checks: Checks | None = None
        self.addresses: list[int] = []
        if "check" in plan.spaces:
            nbytes = WORD_BYTES * len(plan.checks)
            purpose = "the words of a session's checks"
            self._memory = device.pool.pinned(nbytes, purpose, is_mapped=True)
            self._device = device
            self._checks = Checks(plan.checks, self._memory.address)
            self.addresses = check_addresses(plan.checks, self._memory.address)

    def __bool__(self) -> bool:
        return self._checks is not None

    def verify(self) -> None:
        """Raise what the device has found in the data of earlier calls, once."""
        if self._checks is not None:
            self._checks.verify()

    def close(self) -> AotcError | None:
        """Give the memory back; returns the error that was not raised yet, if any. Idempotent."""
        checks, self._checks = self._checks, None
        memory, self._memory = self._memory, None
        if checks is None or memory is None:
            return None
        found = checks.found()
        self._device.pool.free_pinned(memory, is_mapped=True)
        return found
