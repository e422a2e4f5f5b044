"""Keeps freed memory in the process's heap, so that the results of later calls reuse it."""

from __future__ import annotations

import ctypes

LARGEST_OF_THE_HEAP_BYTES = (32 << 20) - (64 << 10)  # glibc's limit, less what surrounds a block

_known: list[bool] = []  # one element once glibc has learnt


def keep_freed_memory() -> None:
    """Have glibc keep up to 64 MB of freed memory, in blocks of up to 32 MB; once a process.

    It gives freed memory at the end of its heap back to the system from twice the size on of the
    largest block that was ever mapped by itself and freed; the results of each call, and the
    gradients of each step, then come as fresh pages, which the system has to zero one by one:
    several times what a short program takes, or nothing, as other blocks happen to lie. It learns
    that size from one block that nobody touches. What a user set for glibc
    (MALLOC_TRIM_THRESHOLD_ and others) stays in force.
    """
    if _known:
        return
    _known.append(True)
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    library.free(library.malloc(LARGEST_OF_THE_HEAP_BYTES))
