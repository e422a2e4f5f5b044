"""Memory beside pages that cannot be accessed."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def beside_closed_pages(values: torch.Tensor, at_end: bool) -> Iterator[torch.Tensor]:
    """The tensor where the page before its first element, or behind its last, cannot be read."""
    page, nbytes = mmap.PAGESIZE, values.numel() * values.itemsize
    count = -(-nbytes // page)
    memory = mmap.mmap(-1, (count + 2) * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    closed = start, start + (count + 1) * page
    for place in closed:
        assert protect(ctypes.c_void_p(place), page, 0) == 0
    first = page + (count * page - nbytes if at_end else 0)
    data = torch.frombuffer(memory, dtype=values.dtype, count=values.numel(), offset=first)
    try:
        yield data.copy_(values)
    finally:
        for place in closed:
            protect(ctypes.c_void_p(place), page, mmap.PROT_READ | mmap.PROT_WRITE)
