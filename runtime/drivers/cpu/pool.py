"""The process's worker threads: one pool for all programs, started at the first parallel call.

Workers run native code of the first library that was loaded, without the interpreter's lock; that
library stays loaded. They spin for a moment after work and then sleep. After a fork the child has
an empty pool at the same address and starts workers of its own at its next call. At exit nobody
waits for them.
"""

from __future__ import annotations

import _thread
import ctypes
import os

from ..memory import Memory
from . import executor_abi as abi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .library import Library

SPIN_TICKS = 1_500_000  # some 0.5 ms at 3 GHz: waking a halted virtual processor can take longer
CGROUP_ROOT = "/sys/fs/cgroup"
CGROUP_1_QUOTA = "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"


class Pool:
    """Worker threads and the memory through which callers give them work."""

    __slots__ = ("_library", "_lock", "_memory", "address", "workers")

    def __init__(self) -> None:
        self._memory = Memory(abi.POOL_BYTES)
        self._memory.keep_forever()
        self._library: Library | None = None
        self.address = self._memory.address
        self.workers = 0  # how many were started in this process
        self._clear()

    def _clear(self) -> None:
        self._lock = _thread.allocate_lock()
        ctypes.memset(self.address, 0, abi.POOL_BYTES)
        ctypes.c_int64.from_address(self.address + abi.POOL_SPIN_TICKS).value = SPIN_TICKS
        self.workers = 0

    def start(self, library: Library, workers: int) -> None:
        """Have at least this many workers; a thread that the system refuses is done without."""
        with self._lock:
            if self._library is None:
                library.keep_loaded()
                self._library = library
            function = self._library.worker
            while self.workers < workers:
                try:
                    _thread.start_new_thread(function, (self.address, self.workers + 1))
                except RuntimeError:  # no more threads, or the interpreter is ending
                    self.workers = workers
                    break
                self.workers += 1

    def after_fork(self) -> None:
        """In a child: the workers and the callers of the parent are not here."""
        self._clear()


_pools: dict[str, Pool] = {}


def process_pool() -> Pool:
    """The pool of this process, made at the first call."""
    pool = _pools.get("process")
    if pool is None:
        fresh = Pool()
        pool = _pools.setdefault("process", fresh)  # one of two threads that race wins
        if pool is fresh:
            os.register_at_fork(after_in_child=pool.after_fork)
    return pool


def default_threads() -> int:
    """Threads that this process may keep busy: its affinity, less if a cgroup limits CPU time."""
    threads = len(os.sched_getaffinity(0))
    for path in [*_cgroup_2_files(), CGROUP_1_QUOTA]:
        limit = _granted_threads(path)
        if limit is not None:
            threads = min(threads, limit)
    return max(1, threads)


def _cgroup_2_files() -> list[str]:
    """`cpu.max` of this process's group and of each group above it: the least of them holds."""
    try:
        lines = _read("/proc/self/cgroup").splitlines()
    except OSError:
        return []
    group = next((line[3:] for line in lines if line.startswith("0::")), "/")
    parts = [part for part in group.split("/") if part]
    folders = ["/".join([CGROUP_ROOT, *parts[:count]]) for count in range(len(parts) + 1)]
    return [f"{folder}/cpu.max" for folder in folders]


def _granted_threads(path: str) -> int | None:
    """Whole CPUs that a cgroup file grants (version 2: `quota period`; version 1: two files)."""
    try:
        fields = _read(path).split()
        quota = fields[0]
        period = _read(path.replace("quota", "period")) if path == CGROUP_1_QUOTA else fields[1]
        return None if quota in ("max", "-1") else max(1, int(quota) // int(period))
    except (OSError, ValueError, IndexError, ZeroDivisionError):
        return None


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()
