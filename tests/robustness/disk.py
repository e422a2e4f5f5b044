"""Readers and writers of `faults.OPERATIONS` on a tmpfs that is full but for a few pages."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from . import faults
from .spread import Found

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_REC, MS_PRIVATE = 0x4000, 1 << 18
MOUNT_BYTES = 8 << 20
PAGE_BYTES = 4096
PAGES = 48  # free at most: more than any of the operations needs


class Full:
    """While it is entered, a file takes all of a file system but some pages."""

    def __init__(self, mounted: Path, pages: int) -> None:
        self._ballast, self._pages = mounted / "ballast", pages

    def __enter__(self) -> None:
        state = os.statvfs(self._ballast.parent)
        taken = state.f_bfree * state.f_frsize - self._pages * PAGE_BYTES
        with self._ballast.open("wb") as file:
            if taken > 0:
                os.posix_fallocate(file.fileno(), 0, taken)

    def __exit__(self, *_: object) -> None:
        self._ballast.unlink()


def mount(folder: Path) -> None:
    """A tmpfs at a folder, for this process and its children alone; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWNS):
        _check(libc.unshare(CLONE_NEWNS | CLONE_NEWUSER))
        names = {
            "setgroups": "deny",
            "uid_map": f"{user} {user} 1",
            "gid_map": f"{group} {group} 1",
        }
        for name, text in names.items():
            Path(f"/proc/self/{name}").write_text(text)
    _check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    given = f"size={MOUNT_BYTES},mode=0700".encode()
    _check(libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, given))


def _check(code: int) -> None:
    if code:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def is_possible(folder: Path) -> bool:
    """Whether this user may mount a tmpfs."""
    child = os.fork()
    if child == 0:
        try:
            mount(folder)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


CASES = [(name, pages) for name in faults.OPERATIONS for pages in range(PAGES)]


def fill(folder: Path) -> Callable[[Iterator[int], Found], None]:
    """The work of one process: cases by their numbers, on a tmpfs of its own."""

    def work(numbers: Iterator[int], found: Found) -> None:
        mounted = Path(tempfile.mkdtemp(dir=folder))
        mount(mounted)
        for number in numbers:
            name, pages = CASES[number]
            faults.judge(name, f"{name}: {pages} pages free", mounted, Full(mounted, pages), found)

    return work
