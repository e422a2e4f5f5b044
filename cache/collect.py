"""Listing, bounding, clearing and explaining a store: `aotc cache`, and each build's end."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotc.cache.errors import CacheUnreadable
from aotc.cache.keys import BUCKETS, Difference, Key, differences, key_of
from aotc.cache.leftovers import CLOCK_DRIFT_S, COLLECTED, MISSES, Leftovers, clear_leftovers
from aotc.cache.reading import RECORD, entry_folders, read_json, read_record
from aotc.cache.store import Store, delete_entry

CAP_BYTES = 10 * 1024**3
WAIT_TIMES = 100.0  # times what the last collection took, builds collect nothing
MOST_WAIT_S = 24 * 3600.0
KEEP_FRACTION = 0.7  # of the cap; so that a full cache is not collected after every put


@dataclass(frozen=True, slots=True)
class Row:
    """One stored entry, as listed."""

    folder: Path
    bucket: str  # with its version
    digest: str
    size_bytes: int
    used_s: float  # time of last use, seconds since the epoch
    made_s: float  # time of publication

    @property
    def kind(self) -> str:
        """The bucket's name without its version."""
        return self.bucket.rpartition("-v")[0]

    def last_use_s(self, now_s: float) -> float:
        """Time of last use; a time far in the future is a wrong clock and counts as now."""
        return now_s if self.used_s > now_s + CLOCK_DRIFT_S else self.used_s


@dataclass(frozen=True, slots=True)
class Collection:
    """When a build last began to collect (seconds since the epoch), how long it took, its cap."""

    begun_s: float
    seconds: float
    cap_bytes: int | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a key missed: the stored key nearest to it, and the fields that differ."""

    wanted: Key
    nearest: Key | None  # None: the bucket had nothing
    differing: tuple[Difference, ...]


def rows(store: Store) -> Iterator[Row]:
    """Every entry of every known bucket, in the order of their digests.

    One that cannot be looked at is of no bytes and was never used. Raises CacheUnreadable.
    """
    for bucket in sorted(f"{name}-v{version}" for name, version in BUCKETS.items()):
        for folder in entry_folders(store.root, bucket):
            size_bytes, used_s, made_s = 0, 0.0, 0.0
            try:
                size_bytes = sum(item.lstat().st_size for item in folder.iterdir())
                used_s = (folder / RECORD).lstat().st_mtime
                made_s = folder.lstat().st_mtime
            except (FileNotFoundError, NotADirectoryError):  # deleted meanwhile, or no entry
                continue
            except OSError:
                pass
            yield Row(folder, bucket, folder.name, size_bytes, used_s, made_s)


def key_record(row: Row) -> Key | None:
    """The key stored beside an entry; None when the record is damaged."""
    try:
        return key_of(read_record(row.folder)["key"])
    except (ValueError, KeyError, TypeError):
        return None


def size_bytes(store: Store) -> int:
    """Bytes of all entries together."""
    return sum(row.size_bytes for row in rows(store))


@dataclass(frozen=True, slots=True)
class Deleted:
    """What was deleted, or would be."""

    entries: int
    bytes: int
    leftovers: Leftovers | None = None


def collect(store: Store, cap_bytes: int | None = CAP_BYTES, now_s: float | None = None) -> int:
    """Delete leftovers, then the least recently used entries above the cap; returns bytes freed.

    Never fails: what cannot be deleted stays. Open files of a reader stay valid.
    """
    now = time.time() if now_s is None else now_s
    with contextlib.suppress(CacheUnreadable):
        clear_leftovers(store.root, now)
        return _delete(_above(list(rows(store)), cap_bytes, now, KEEP_FRACTION)).bytes
    return 0


def collect_in_turn(store: Store, cap_bytes: int | None = CAP_BYTES) -> int:
    """The same after a build, seldom enough that collections take a hundredth of the time at most.

    Every entry is looked at, which takes longer than a small build where there are ten thousands.
    Who begins says so before, so that builds beside it go on.
    """
    last, now = _last_collection(store), time.time()
    wait_s = min(WAIT_TIMES * last.seconds, MOST_WAIT_S)
    is_due = not 0 <= now - last.begun_s < wait_s
    if not is_due and last.cap_bytes == cap_bytes:
        return 0
    _leave(store, COLLECTED, dataclasses.asdict(Collection(now, last.seconds, cap_bytes)))
    begun_s = time.perf_counter()
    freed = collect(store, cap_bytes)
    seconds = time.perf_counter() - begun_s
    _leave(store, COLLECTED, dataclasses.asdict(Collection(now, seconds, cap_bytes)))
    return freed


def _last_collection(store: Store) -> Collection:
    try:
        note = read_json(store.root / COLLECTED)
        cap_bytes = note["cap_bytes"]
        cap_bytes = None if cap_bytes is None else int(cap_bytes)
        return Collection(float(note["begun_s"]), float(note["seconds"]), cap_bytes)
    except (ValueError, KeyError, TypeError, OverflowError):
        return Collection(0.0, 0.0, None)


def collect_all(store: Store, cap_bytes: int | None, now_s: float | None = None) -> Deleted:
    """The same at the user's wish: with all locks that nobody holds, down to the cap itself.

    Raises CacheUnreadable.
    """
    now = time.time() if now_s is None else now_s
    leftovers = clear_leftovers(store.root, now, lock_age_s=0.0)
    deleted = _delete(_above(list(rows(store)), cap_bytes, now, 1.0))
    return Deleted(deleted.entries, deleted.bytes, leftovers)


def prune(
    store: Store,
    bucket: str | None = None,
    unused_s: float | None = None,
    cap_bytes: int | None = None,
    is_dry: bool = False,
    now_s: float | None = None,
) -> Deleted:
    """Delete the entries of a bucket that were not used for so long, then the least recently used
    of what is left of it above the cap; all of them where neither is given.

    `is_dry`: delete nothing, and say what would be.
    """
    now = time.time() if now_s is None else now_s
    found = [row for row in rows(store) if bucket in (None, row.kind)]
    if unused_s is None and cap_bytes is None:
        return _delete(found, is_dry)
    chosen = [row for row in found if unused_s is not None and now - row.last_use_s(now) > unused_s]
    rest = [row for row in found if row not in chosen]
    return _delete([*chosen, *_above(rest, cap_bytes, now, 1.0)], is_dry)


def clear(store: Store, bucket: str | None = None) -> int:
    """Delete all entries, or those of one bucket; returns how many."""
    count = prune(store, bucket).entries
    if bucket is None:
        clear_leftovers(store.root, time.time(), lock_age_s=0.0)
    return count


def _above(found: Sequence[Row], cap_bytes: int | None, now_s: float, keep: float) -> list[Row]:
    """What goes when all together are above the cap: the least recently used, down to its part."""
    total = sum(row.size_bytes for row in found)
    if cap_bytes is None or total <= cap_bytes:
        return []
    chosen = []
    for row in sorted(found, key=lambda row: (row.last_use_s(now_s), row.digest)):
        if total <= cap_bytes * keep:
            break
        chosen.append(row)
        total -= row.size_bytes
    return chosen


def _delete(chosen: Sequence[Row], is_dry: bool = False) -> Deleted:
    if not is_dry:
        for row in chosen:
            delete_entry(row.folder)
    return Deleted(len(chosen), sum(row.size_bytes for row in chosen))


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
    keys = [key.record() for key in store.missed]
    _leave(store, MISSES, {"started_s": started_s, "keys": keys})


def _leave(store: Store, name: str, record: Mapping[str, Any]) -> None:
    """Write a note under the root, whole; not where it cannot be written."""
    staged = store.root / f".{name}-{os.getpid()}"
    with contextlib.suppress(OSError):
        staged.write_text(json.dumps(record))
        staged.replace(store.root / name)


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
