"""Zeroed private memory for native code: page aligned, from huge pages where it is large."""

from __future__ import annotations

import ctypes
import mmap

HUGE_PAGE_BYTES = 2 << 20


class Memory:
    """A block of anonymous memory; freed by `close` or with the object.

    Private, so that a forked child has a copy of its own. `address` is a multiple of the page size,
    and of 2 MiB for blocks of that size and more.
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
