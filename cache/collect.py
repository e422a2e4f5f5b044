"""Listing, bounding, clearing and explaining a store: `aotc cache`, and each build's end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aotc.cache.keys import BUCKETS, Difference, Key, differences, key_of
from aotc.cache.reading import RECORD, read_json, read_record
from aotc.cache.store import Store, delete_entry

CAP_BYTES = 10 * 1024**3
KEEP_FRACTION = 0.7  # of the cap; so that a full cache is not collected after every put
STALE_S = 24 * 3600.0
CLOCK_DRIFT_S = 24 * 3600.0
MISSES = "misses.json"


@dataclass(frozen=True, slots=True)
class Row:
    """One stored entry, as listed."""

    folder: Path
    bucket: str  # with its version
    digest: str
    size_bytes: int
    used_s: float  # time of last use, seconds since the epoch
    made_s: float  # time of publication


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a key missed: the stored key nearest to it, and the fields that differ."""

    wanted: Key
    nearest: Key | None  # None: the bucket had nothing
    differing: tuple[Difference, ...]


def rows(store: Store) -> Iterator[Row]:
    """Every entry of every known bucket, in the order of their digests."""
    for bucket in sorted(f"{name}-v{version}" for name, version in BUCKETS.items()):
        for folder in sorted((store.root / bucket).glob("??/*")):
            with contextlib.suppress(OSError):  # deleted by another process meanwhile
                sizes = [item.lstat().st_size for item in folder.iterdir()]
                used_s = (folder / RECORD).lstat().st_mtime
                made_s = folder.lstat().st_mtime
                yield Row(folder, bucket, folder.name, sum(sizes), used_s, made_s)


def key_record(row: Row) -> Key | None:
    """The key stored beside an entry; None when the record is damaged."""
    try:
        return key_of(read_record(row.folder)["key"])
    except (ValueError, KeyError, TypeError):
        return None


def size_bytes(store: Store) -> int:
    """Bytes of all entries together."""
    return sum(row.size_bytes for row in rows(store))


def collect(store: Store, cap_bytes: int = CAP_BYTES, now_s: float | None = None) -> int:
    """Delete leftovers, then the least recently used entries above the cap; returns bytes freed.

    Never fails: what cannot be deleted stays. Open files of a reader stay valid.
    """
    now = time.time() if now_s is None else now_s
    _clear_leftovers(store.root, now)
    found = list(rows(store))
    total = sum(row.size_bytes for row in found)
    if total <= cap_bytes:
        return 0
    freed = 0
    for row in sorted(found, key=lambda row: _age_order(row, now)):
        if total - freed <= cap_bytes * KEEP_FRACTION:
            break
        delete_entry(row.folder)
        freed += row.size_bytes
    return freed


def clear(store: Store, bucket: str | None = None) -> int:
    """Delete all entries, or those of one bucket; returns how many."""
    count = 0
    for row in rows(store):
        if bucket is None or row.bucket.rpartition("-v")[0] == bucket:
            delete_entry(row.folder)
            count += 1
    if bucket is None:
        _clear_leftovers(store.root, time.time())
    return count


def share(store: Store) -> None:
    """Let every user of the machine read the entries, as the cache of an image has to be.

    Nobody else can write them: the folder still belongs to its maker alone.
    """
    for folder, _, files in os.walk(store.root):
        place = Path(folder)
        place.chmod(0o755)
        for name in files:
            with contextlib.suppress(FileNotFoundError):  # collected meanwhile
                (place / name).chmod(0o444 if place.parent.parent.parent == store.root else 0o644)


def note_misses(store: Store, started_s: float) -> None:
    """Leave the keys that this store missed for `aotc cache explain`; started_s: build's start."""
    text = json.dumps({"started_s": started_s, "keys": [key.record() for key in store.missed]})
    staged = store.root / f".{MISSES}-{os.getpid()}"
    with contextlib.suppress(OSError):
        staged.write_text(text)
        staged.replace(store.root / MISSES)


def last_misses(store: Store) -> tuple[float, tuple[Key, ...]]:
    """Start and missed keys of the last build; (infinity, none) when there is no note."""
    try:
        note = read_json(store.root / MISSES)
        return float(note["started_s"]), tuple(key_of(record) for record in note["keys"])
    except (ValueError, KeyError, TypeError):
        return float("inf"), ()


def explain(store: Store, wanted: Key, before_s: float = float("inf")) -> Explanation:
    """The nearest stored key other than `wanted` that was published before `before_s`.

    Nearest means fewest differing fields; among equals the one used last.
    """
    best: tuple[int, float, Key] | None = None
    for row in rows(store):
        if row.bucket != wanted.folder or row.made_s >= before_s or row.digest == wanted.digest:
            continue
        key = key_record(row)
        if key is None:
            continue
        rank = (len(differences(key, wanted)), -row.used_s, key)
        if best is None or rank[:2] < best[:2]:
            best = rank
    if best is None:
        return Explanation(wanted, None, ())
    return Explanation(wanted, best[2], differences(best[2], wanted))


def _age_order(row: Row, now_s: float) -> float:
    """Time of last use; a time far in the future is a wrong clock and counts as now."""
    return now_s if row.used_s > now_s + CLOCK_DRIFT_S else row.used_s


def _clear_leftovers(root: Path, now_s: float) -> None:
    """Staging folders of dead writers, quarantined entries and old locks."""
    for folder in _children(root / "staging"):
        if _is_abandoned(folder, now_s):
            shutil.rmtree(folder, ignore_errors=True)
    for folder in _children(root / "quarantine"):
        shutil.rmtree(folder, ignore_errors=True)
    for lock in _children(root / "locks"):
        with contextlib.suppress(OSError):
            if now_s - lock.stat().st_mtime > STALE_S:
                lock.unlink()


def _children(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(folder.iterdir())
    return []


def _is_abandoned(staged: Path, now_s: float) -> bool:
    """Whether the process that fills a staging folder is gone, or the folder is a day old."""
    host, _, rest = staged.name.rpartition("-")[0].rpartition("-")
    if host == socket.gethostname() and rest.isdigit():
        try:
            os.kill(int(rest), 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
    with contextlib.suppress(OSError):
        return now_s - staged.stat().st_mtime > STALE_S
    return False
