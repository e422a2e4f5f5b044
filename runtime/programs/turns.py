"""The turns of several sessions, held together while their weights are made others.

Imported when weights change for the first time. A fork waits for such a change to end: in the child
its thread is not there, and would never give the turns back.
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
    """Call `do` while all of these locks are held.

    Locks are taken and freed by C code alone: a signal's handler, which may raise, runs between two
    steps of Python, and so never where a lock is taken and not noted.
    """
    taken: list[bool] = []
    freed = map(LOCK.__exit__, turns, taken)
    try:
        taken.extend(map(LOCK.acquire, turns))
        do()
    finally:
        list(freed)
