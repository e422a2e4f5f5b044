"""What killed processes left in a cache folder, and what stands there for nobody any more.

A writer holds a lock (`flock`) on its staging folder, which the kernel lets go when it dies. That
holds among containers too, which share a folder and a host name and not their process numbers.
Whoever wrongly loses a staging folder only loses one put: nothing here can make an entry wrong.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aotc.cache.keys import BUCKETS
from aotc.cache.reading import FOLDER_FLAGS, RECORD, children, entry_folders

STALE_S = 24 * 3600.0
CLOCK_DRIFT_S = 24 * 3600.0
UNLOCKED_S = 60.0  # between making a staging folder and locking it
MISSES, COLLECTED = "misses.json", "collected.json"


@dataclass(frozen=True, slots=True)
class Leftovers:
    """How many of each kind were deleted."""

    staged: int  # folders of writers that are gone
    quarantined: int  # damaged entries
    torn: int  # entries without a record: half of a deletion
    locks: int

    @property
    def count(self) -> int:
        """All together."""
        return self.staged + self.quarantined + self.torn + self.locks


def hold(folder: Path) -> int:
    """Lock a staging folder for as long as its writer lives; the descriptor is the writer's to
    close. -1 where there are no such locks."""
    descriptor = -1
    try:
        descriptor = os.open(folder, FOLDER_FLAGS | os.O_NOFOLLOW)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        if descriptor >= 0:
            os.close(descriptor)
        return -1
    return descriptor


def clear_leftovers(root: Path, now_s: float, lock_age_s: float = STALE_S) -> Leftovers:
    """Delete them; what cannot be deleted stays. Locks go when nobody has held them so long.

    Raises CacheUnreadable.
    """
    staged = [each for each in children(root / "staging") if _is_abandoned(each, now_s)]
    notes = [
        each
        for each in children(root)
        if each.name.startswith((f".{MISSES}-", f".{COLLECTED}-"))
        and age_s(each, now_s) > UNLOCKED_S
    ]
    quarantined = children(root / "quarantine")
    torn = list(_torn(root))
    locks = [
        each
        for each in children(root / "locks")
        if age_s(each, now_s) >= lock_age_s and not _is_held(each)
    ]
    for folder in (*staged, *quarantined, *torn):
        with contextlib.suppress(OSError):
            shutil.rmtree(folder, ignore_errors=True)
            folder.unlink()  # somebody put a file there
    for file in (*notes, *locks):
        with contextlib.suppress(OSError):
            file.unlink()
    return Leftovers(len(staged) + len(notes), len(quarantined), len(torn), len(locks))


def age_s(path: Path, now_s: float) -> float:
    """Seconds since it was changed.

    A time far in the future is a wrong clock's: it counts as now, and is set to now, so that it
    ages from here on.
    """
    try:
        changed_s = path.lstat().st_mtime
        if changed_s > now_s + CLOCK_DRIFT_S:
            os.utime(path, (now_s, now_s), follow_symlinks=False)
            return 0.0
    except OSError:
        return 0.0
    return now_s - changed_s


def _is_abandoned(staged: Path, now_s: float) -> bool:
    """Whether the process that fills a staging folder is gone, or the folder is a day old."""
    if age_s(staged, now_s) > STALE_S:
        return True
    host, _, process = staged.name.rpartition("-")[0].rpartition("-")
    held = _is_held(staged)
    if host != socket.gethostname() or not process.isdigit() or held:
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    # Another process may have the number by now, as a live writer holds its folder all the time.
    return held is False and age_s(staged, now_s) > UNLOCKED_S


def _torn(root: Path) -> Iterator[Path]:
    """Entries without a record, which no reader sees."""
    for name, version in BUCKETS.items():
        for folder in entry_folders(root, f"{name}-v{version}"):
            try:
                (folder / RECORD).lstat()
            except (FileNotFoundError, NotADirectoryError):
                yield folder
            except OSError:  # perhaps it has one
                continue


def _is_held(path: Path) -> bool | None:
    """Whether somebody holds a lock on it; None where that cannot be found out."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False
