"""One process at a time measures on a device: two at once would spoil the times of both.

Compiling and all other work on the processor goes on in the meantime.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def device_turn(*ordinals: int) -> Iterator[int]:
    """Wait until no other process of this user measures on one of the devices, the first that is
    free, and keep others waiting. Gives its ordinal, the first device's where none is given.

    The lock is a file of the temporary folder and ends with its process. Devices go by ordinal:
    processes that number theirs differently may wait without need. Not reentrant.
    """
    locks = {ordinal: _opened(ordinal) for ordinal in ordinals or (0,)}
    try:
        taken = next((each for each, lock in locks.items() if _is_free(lock)), None)
        if taken is None:
            taken = next(iter(locks))
            fcntl.flock(locks[taken], fcntl.LOCK_EX)
        yield taken
    finally:
        for lock in locks.values():
            os.close(lock)


def _opened(ordinal: int) -> int:
    path = Path(tempfile.gettempdir()) / f"aotc-{os.getuid()}-cuda-{ordinal}.turn"
    return os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _is_free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
