"""Holds the call locks of several sessions together while their weights are replaced.

It is imported when weights change for the first time. A fork waits until such a change has ended:
the thread that makes it does not exist in the child, and would never release the locks there.
"""

from __future__ import annotations

import _thread
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

LOCK: Any = type(_thread.allocate_lock())
FORKS = _thread.RLock()  # whoever has it, no other thread forks meanwhile

os.register_at_fork(
    before=FORKS.acquire, after_in_parent=FORKS.release, after_in_child=FORKS.release
)


def holding(turns: Sequence[Any], do: Callable[[], None]) -> None:
    """Call `do` while all of these locks are held. Locks are acquired and released by C code alone,
    because a signal handler, which may raise, runs between two bytecodes: so a lock is never
    acquired without being recorded."""
    taken: list[bool] = []
    freed = map(LOCK.__exit__, turns, taken)
    try:
        taken.extend(map(LOCK.acquire, turns))
        do()
    finally:
        list(freed)
