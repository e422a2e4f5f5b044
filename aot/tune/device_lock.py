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
def device_turn(ordinal: int = 0) -> Iterator[None]:
    """Wait until no other process of this user measures on the device, and keep others waiting.

    The lock is a file of the temporary folder and ends with its process. Devices go by ordinal:
    processes that number theirs differently may wait without need. Not reentrant.
    """
    path = Path(tempfile.gettempdir()) / f"aotc-{os.getuid()}-cuda-{ordinal}.turn"
    flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
