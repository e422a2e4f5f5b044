"""Memory of closed sessions, kept for those that are opened next.

The driver waits for the whole device where memory is given back, and takes tenths of a millisecond
to give some: most of what a short session costs. So sessions give theirs here, once the device has
ended their work, and the next ones take it.
"""

from __future__ import annotations

import _thread

from .errors import DeviceMemoryFull, PinnedMemoryFull
from .handles import Pinned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .context import DeviceContext

SMALL_BYTES = 1 << 20  # up to here blocks are powers of two, so that similar sessions share them
LEAST_BYTES = 256
# Kinds of memory: of the device, pinned memory of the host, such that kernels write to.
ON_DEVICE, ON_HOST, MAPPED = "device", "host", "mapped"
PORTABLE, DEVICE_MAPPED = 1, 2  # CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP
# Kind → the functions of the driver that give memory and take it, and flags of the former.
DRIVER: dict[str, tuple[str, str, tuple[int, ...]]] = {
    ON_DEVICE: ("cuMemAlloc_v2", "cuMemFree_v2", ()),
    ON_HOST: ("cuMemHostAlloc", "cuMemFreeHost", (PORTABLE,)),
    MAPPED: ("cuMemHostAlloc", "cuMemFreeHost", (PORTABLE | DEVICE_MAPPED,)),
}
OVERSIZE = 4  # how many times larger than asked for a block may be
KEPT_SHARE = 8  # at most this part of the device's memory is kept unused, by all pools of it
PINNED_LIMIT_BYTES = 256 << 20  # of pinned memory that is kept unused, likewise

_pools: dict[int, MemoryPool] = {}  # by id, those that have kept something


class MemoryPool:
    """Blocks of device memory and of pinned memory that one `Device` owns; safe between threads.

    Of each kind the smallest kept block that is large enough is taken, unless it is more than
    OVERSIZE times as large. What is kept is given back to the driver by `trim`, and where the
    driver has no memory left for anything on the device (`trim_all`).

    Nothing here waits for the device: whoever gives memory back has.
    """

    __slots__ = ("_device", "_kept", "_limit_bytes", "_lock", "kept_bytes")

    def __init__(self, device: DeviceContext) -> None:
        self._device = device
        self._kept: dict[str, list[tuple[int, int]]] = {}  # kind → (bytes, address) each
        self._limit_bytes = -1  # not asked for yet
        # The garbage collector may close a session of this thread while the thread is in here.
        self._lock = _thread.RLock()
        self.kept_bytes = dict.fromkeys(DRIVER, 0)

    def allocate(self, nbytes: int, purpose: str) -> int:
        """Device memory as `Device.allocate` gives it; what it holds is of no meaning."""
        return self._allocate(ON_DEVICE, nbytes, purpose)[0]

    def pinned(self, nbytes: int, purpose: str, is_mapped: bool = False) -> Pinned:
        """Pinned memory as `Device.pinned` gives it, of at least so many bytes."""
        address, found_bytes = self._allocate(MAPPED if is_mapped else ON_HOST, nbytes, purpose)
        return Pinned(self._device, address, found_bytes)

    def free(self, address: int) -> None:
        """Take device memory back that no work uses any more."""
        self._keep(ON_DEVICE, address)

    def free_pinned(self, memory: Pinned, is_mapped: bool = False) -> None:
        """Take pinned memory back that no work uses any more."""
        self._keep(MAPPED if is_mapped else ON_HOST, memory.handle)

    def fresh(self, kind: str, nbytes: int, purpose: str, needed: int) -> int:
        """Memory of the driver's, of which `needed` bytes were asked for; its address.

        Raises `DeviceMemoryFull` and `PinnedMemoryFull`.
        """
        make, how, flags = DRIVER[kind]
        device = self._device
        with device.current():
            address = device.handle(make, max(nbytes, 1), *flags, purpose=purpose, needed=needed)
        device.own(how, address, nbytes)
        return address

    def trim(self) -> bool:
        """Give all that is kept to the driver; whether there was any."""
        with self._lock:
            kept, self._kept = self._kept, {}
            self.kept_bytes = dict.fromkeys(DRIVER, 0)
        for kind, rows in kept.items():
            for _, address in rows:
                self._device.destroy(DRIVER[kind][1], address)
        return any(kept.values())

    def trim_all(self) -> bool:
        """The same for all pools of the device in this process."""
        found = [pool.trim() for pool in self._beside()]
        return any(found)

    def forget(self) -> None:
        """When the device has given everything back: what was kept is gone with it."""
        _pools.pop(id(self), None)
        self._kept = {}

    def _beside(self) -> list[MemoryPool]:
        """The pools of the same device, this one among them if it has kept something."""
        ordinal = self._device.ordinal
        return [pool for pool in list(_pools.values()) if pool._device.ordinal == ordinal]

    def _allocate(self, kind: str, nbytes: int, purpose: str) -> tuple[int, int]:
        if not self._device.is_usable:
            self._device.refuse()
        wanted = least = _rounded(nbytes)
        found = self._take(kind, wanted, OVERSIZE * wanted)
        if found is not None:
            return found[1], found[0]
        # Sessions that grow in small steps: the block that was too small gives way to twice it.
        outgrown = self._take(kind, SMALL_BYTES, wanted)
        if outgrown is not None:
            self._device.destroy(DRIVER[kind][1], outgrown[1])
            if 2 * outgrown[0] <= self._device.memory()[0] // KEPT_SHARE:
                wanted = max(wanted, 2 * outgrown[0])
        try:
            return self.fresh(kind, wanted, purpose, nbytes), wanted
        except (DeviceMemoryFull, PinnedMemoryFull):
            if wanted == least:
                raise
        return self.fresh(kind, least, purpose, nbytes), least

    def _take(self, kind: str, least_bytes: int, most_bytes: int) -> tuple[int, int] | None:
        """Remove and return the smallest kept block within these sizes."""
        with self._lock:
            rows = self._kept.get(kind, [])
            fitting = sorted(row for row in rows if least_bytes <= row[0] <= most_bytes)
            for found in fitting:
                if found in rows:  # a finalizer may have taken it since
                    rows.remove(found)
                    self.kept_bytes[kind] -= found[0]
                    return found
        return None

    def _keep(self, kind: str, address: int) -> None:
        """Keep a block, or give it to the driver where enough is kept."""
        device, how = self._device, DRIVER[kind][1]
        nbytes = device.size_of(how, address)
        if nbytes is None:  # somebody else's by now, or gone with the device
            return
        if not device.is_usable:  # in a child of fork nobody may give the lock back
            device.destroy(how, address)
            return
        limit_bytes = self._limit(kind)
        with self._lock:
            if (nbytes, address) in self._kept.get(kind, ()):
                return
            others_bytes = sum(pool.kept_bytes[kind] for pool in self._beside())
            is_kept = others_bytes + nbytes <= limit_bytes
            if is_kept:
                _pools[id(self)] = self
                self._kept.setdefault(kind, []).append((nbytes, address))
                self.kept_bytes[kind] += nbytes
        if not is_kept:
            device.destroy(how, address)

    def _limit(self, kind: str) -> int:
        """Bytes of a kind of memory that the pools of the device may keep together."""
        if kind != ON_DEVICE:
            return PINNED_LIMIT_BYTES
        if self._limit_bytes < 0:
            self._limit_bytes = self._device.memory()[1] // KEPT_SHARE
        return self._limit_bytes


def _rounded(nbytes: int) -> int:
    """The size of a new block for so many bytes."""
    if nbytes > SMALL_BYTES:
        return nbytes
    return max(LEAST_BYTES, 1 << (nbytes - 1).bit_length())
