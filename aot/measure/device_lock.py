"""One process at a time measures on a device: two at once would spoil the times of both.

Compiling and all other work on the processor goes on in the meantime.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from aotc.aot.folders import user_folder
from aotc.runtime.errors import environment_fault


@contextmanager
def device_turn(*ordinals: int) -> Iterator[int]:
    """Wait until no other process of this user measures on one of the devices, the first that is
    free, and keep others waiting. Gives its ordinal, the first device's where none is given.

    The lock is a file in this user's own temporary folder and ends with its process. Devices go by
    ordinal: processes that number theirs differently may wait without need. Not reentrant. Raises
    `FolderUnsafe` and `EnvironmentFault`.
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
    path = f"{user_folder()}/cuda-{ordinal}.turn"
    flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except OSError as error:
        raise environment_fault("lock", path, error) from error


def _is_free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
