"""The store: content-addressed entries, put by one rename, read without a lock.

Layout under the root (`--cache-dir`, default `~/.cache/aotc`), owned 0700 by the user:

    CACHEDIR.TAG                    backup tools skip the folder
    binaries-v1/ab/abcd…/           one entry; the name is the digest of its key
        entry.json                  key record, and name, size and sha256 of each file
        <files>
    locks/<bucket>-<digest>.lock    a lock a key, for writers only
    staging/<host>-<pid>-<random>/  entries in the making
    quarantine/<digest>-<random>/   damaged entries, kept until the next collection
    misses.json                     what the last build missed, for `aotc cache explain`
    collected.json                  when a build last deleted what is above the cap

What holds, and how:
- A reader sees a whole entry or none: an entry is filled in `staging/` and appears by one rename of
  its folder. The first writer wins; a later one drops its own copy.
- A damaged entry is a miss, one warning and a move into quarantine: every byte is checked against
  its sha256 on each read. That is also why entries are not fsynced: what a power cut tears, the
  next read finds and rebuilds.
- Locks only save work. A lock that times out, is lost or cannot be made means that a kernel may be
  compiled twice, never that an entry is wrong.
- A folder that cannot be written serves reads; puts then count as `refused` and fail nothing.
- Below the folder there may be layers (`layers.py`, `AOTC_CACHE_LOWER`), such as an image's, which
  are only ever read. What is missed above is looked up there, in their order. The last may be on a
  server (`remote.py`): what comes from there is kept here, and `send` gives it what it lacks.
- An entry's files never change after it appeared; deletion unlinks `entry.json` first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import socket
import stat
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotc.cache.errors import CacheUnsafe, CacheWarning
from aotc.cache.keys import Key, canonical
from aotc.cache.layers import Layer
from aotc.cache.leftovers import CLOCK_DRIFT_S, hold
from aotc.cache.reading import (
    FILE_NAME,
    RECORD,
    Damage,
    check_root,
    entry_folder,
    exists,
    fault_of,
    file_row,
    read_entry,
)

TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# aotc's artifact cache; safe to delete\n"
LOCK_TIMEOUT_S = 300.0
TOUCH_INTERVAL_S = 3600.0
READS = 8  # of an entry that is deleted and put anew each time
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


@dataclass(frozen=True, slots=True)
class Entry:
    """What `get` returns: the key and every file's bytes, digests checked."""

    key: Key
    files: Mapping[str, bytes]


@dataclass(slots=True)
class Counters:
    """What a store did since it was opened; the one mutable record of the cache."""

    hits: int = 0
    misses: int = 0
    puts: int = 0
    damaged: int = 0  # entries that failed their digests; each also counts as a miss
    refused: int = 0  # puts into a folder that cannot be written


class Store:
    """One cache folder over its layers. Safe for any number of processes and threads at once."""

    def __init__(self, root: Path | str, layers: Sequence[Layer] = ()) -> None:
        """Open the folder, making it when missing; the only writer is this folder.

        Raises CacheUnsafe when another user could write it, CacheNotAFolder when it is a file.
        A folder that cannot be made or written is not an error: the store misses, or only reads.
        """
        self.root = Path(root)
        self.layers = tuple(layers)
        self.counters = Counters()
        self.missed: list[Key] = []
        self._used: dict[Key, None] = {}  # hit or missed, where a layer may want them
        self._is_warned = False
        _prepare(self.root)

    def get(self, key: Key, required: tuple[frozenset[str], ...] = ()) -> Entry | None:
        """The entry of `key`, or None; no lock. A damaged entry is warned of and set aside.

        `required`: an entry without all files of one of these sets is damaged. Raises CacheUnsafe.
        """
        folder = self.path(key)
        if self._far:
            self._used[key] = None
        try:
            files = self._read(folder, key, required)
        except FileNotFoundError:
            return self._get_lower(key, required)
        except Damage as damage:
            self._miss(key)
            self.counters.damaged += 1
            warnings.warn(
                f"cache entry {key.folder}/{key.digest[:16]} is damaged ({damage}); rebuilding it",
                CacheWarning,
                stacklevel=2,
            )
            self._quarantine(folder)
            return None
        except OSError as fault:
            self._warn_once(f"cache folder {self.root} cannot be read ({fault.strerror})")
            return self._get_lower(key, required)
        self.counters.hits += 1
        _touch(folder / RECORD)
        return Entry(key, files)

    def fetch(self, keys: Iterable[Key], required: tuple[frozenset[str], ...] = ()) -> None:
        """Bring what layers that are far away have of `keys` into the own folder, all at once.

        A `get` of each of them then needs no network. `required` as there.
        """
        for layer in self._far:
            wanted = [key for key in dict.fromkeys(keys) if not self.holds(key)]
            for key, files in layer.get_many(wanted, required):
                self.put(key, files)

    def send(self) -> int:
        """Send the entries that were used since the store was opened to the layers that take
        them and lack them; how many were sent. Never fails."""
        return sum(layer.put_many(self._entries(self._used)) for layer in self._far)

    def _entries(self, keys: Iterable[Key]) -> Iterator[tuple[Key, Mapping[str, bytes]]]:
        """Those of the keys' entries that stand in the own folder, whole."""
        for key in keys:
            with contextlib.suppress(Damage, OSError):
                yield key, read_entry(self.root, self.path(key), key)

    @property
    def _far(self) -> list[Layer]:
        return [layer for layer in self.layers if layer.is_copied]

    def _read(
        self, folder: Path, key: Key, required: tuple[frozenset[str], ...] = ()
    ) -> dict[str, bytes]:
        """The files of an entry; raises FileNotFoundError, Damage, CacheUnsafe and OSError.

        Half of an entry is no damage where it is being deleted, and perhaps put anew, meanwhile:
        its folder is then another one or has changed.
        """
        for _ in range(READS):
            before = _state(folder)
            try:
                return read_entry(self.root, folder, key, required)
            except Damage:
                if not os.path.lexists(folder / RECORD):
                    break
                if _state(folder) == before:
                    raise
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))

    def holds(self, key: Key) -> bool:
        """Whether an entry of the key is there; its bytes are not looked at."""
        return self.folder_of(key) is not None

    def folder_of(self, key: Key) -> Path | None:
        """The folder that has the key's entry, in this cache or a layer."""
        folder = self.path(key)
        if exists(folder / RECORD):
            return folder
        return next(filter(None, (layer.folder_of(key) for layer in self.layers)), None)

    def _get_lower(self, key: Key, required: tuple[frozenset[str], ...]) -> Entry | None:
        """The entry of the first layer that has it whole, else a miss."""
        for layer in self.layers:
            files = layer.get(key, required)
            if files is not None:
                self.counters.hits += 1
                if layer.is_copied:
                    self.put(key, files)
                return Entry(key, files)
        self._miss(key)
        return None

    def put(self, key: Key, files: Mapping[str, bytes]) -> bool:
        """Publish an entry; True if this call's bytes became the entry.

        False when another writer was first, or when the folder cannot be written.
        """
        folder = self.path(key)
        try:
            with self._stage(key, files) as staged:
                is_ours = self._publish(staged, folder, key)
        except OSError as fault:
            self._refuse(fault)
            return False
        self.counters.puts += is_ours
        return is_ours

    @contextlib.contextmanager
    def lock(self, key: Key, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[bool]:
        """Hold the key's writer lock; yields False when it could not be had (then just go on)."""
        from filelock import FileLock, Timeout  # 40 ms of import that readers never pay

        path = self.root / "locks" / f"{key.folder}-{key.digest}.lock"
        try:
            self._make_folders("locks")
            # Without a working flock there is no lock: an existence lock would outlive its holder.
            held = FileLock(path, timeout=timeout_s, fallback_to_soft=False, poll_interval=0.02)
            held.acquire()
        except (Timeout, OSError, NotImplementedError):
            yield False
            return
        try:
            yield True
        finally:
            held.release()

    def path(self, key: Key) -> Path:
        """Folder of the key's entry, whether or not it exists."""
        return entry_folder(self.root, key)

    def _miss(self, key: Key) -> None:
        self.counters.misses += 1
        self.missed.append(key)

    @contextlib.contextmanager
    def _stage(self, key: Key, files: Mapping[str, bytes]) -> Iterator[Path]:
        """A private folder with the entry, whose record went in last; deleted if it is left."""
        name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(8)}"
        staged = self.root / "staging" / name
        self._make_folders("staging")
        held = -1
        try:
            try:
                staged.mkdir(mode=0o700)
                held = hold(staged)
                rows = []
                for file, data in sorted(files.items()):
                    _write(staged / file, data)
                    rows.append(file_row(file, data))
                _write(staged / RECORD, canonical({"key": key.record(), "files": rows}))
                yield staged
            finally:
                shutil.rmtree(staged, ignore_errors=True)
        except BaseException:  # a signal may have come while the folder was deleted
            shutil.rmtree(staged, ignore_errors=True)
            raise
        finally:
            if held >= 0:
                os.close(held)

    def _publish(self, staged: Path, folder: Path, key: Key) -> bool:
        """Rename the staged folder into place, unless a sound entry stands there."""
        self._make_folders(*folder.parent.relative_to(self.root).parts)
        for _ in range(2):
            try:
                staged.rename(folder)
                return True
            except OSError as fault:
                if fault.errno not in _TAKEN:
                    raise
            try:
                self._read(folder, key)
                return False
            except (Damage, FileNotFoundError):
                self._quarantine(folder)  # a torn deletion or a damaged entry: make room once
        return False

    def _make_folders(self, *names: str) -> None:
        """Make folders below the root, private whatever the umask; raises CacheUnsafe."""
        path = self.root
        for name in names:
            path = path / name
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
            state = path.lstat()
            found = fault_of(state) if stat.S_ISDIR(state.st_mode) else "a link or a file"
            if found:
                raise CacheUnsafe(path=str(path), found=found)

    def _quarantine(self, folder: Path) -> None:
        """Move a damaged entry out of sight, or delete it; never fails."""
        grave = self.root / "quarantine" / f"{folder.name}-{secrets.token_hex(4)}"
        with contextlib.suppress(OSError):
            self._make_folders("quarantine")
            folder.rename(grave)
            return
        delete_entry(folder)  # a lower layer of an overlay refuses renames

    def _refuse(self, fault: OSError) -> None:
        self.counters.refused += 1
        reason = (fault.strerror or str(fault)).lower()
        self._warn_once(f"cache folder {self.root} cannot be written ({reason})")

    def _warn_once(self, what: str) -> None:
        if not self._is_warned:
            self._is_warned = True
            warnings.warn(f"{what}; going on without", CacheWarning, stacklevel=4)


def delete_entry(folder: Path) -> None:
    """Unlink an entry, its record first, so that readers see a miss and never a part."""
    with contextlib.suppress(OSError):
        (folder / RECORD).unlink()
    with contextlib.suppress(OSError):  # which `ignore_errors` lets through where `fstat` fails
        shutil.rmtree(folder, ignore_errors=True)


def _prepare(root: Path) -> None:
    with contextlib.suppress(OSError):
        for folder in (*reversed(root.parents), root):  # private ones, whatever the umask
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
    if check_root(root):
        with contextlib.suppress(OSError):
            if not (root / "CACHEDIR.TAG").exists():
                (root / "CACHEDIR.TAG").write_text(TAG)


def _state(folder: Path) -> tuple[int, ...]:
    """What tells a folder from another one at its place, and from itself after a change."""
    try:
        state = folder.lstat()
    except OSError:
        return ()
    return (state.st_dev, state.st_ino, state.st_ctime_ns)


def _write(path: Path, data: bytes) -> None:
    if not FILE_NAME.fullmatch(path.name):
        raise ValueError(f"file name {path.name!r}, expected letters, digits and `._-`")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o400), "wb") as file:
        file.write(data)


def _touch(record: Path) -> None:
    """Mark the entry as used, at most once an hour; a read-only folder keeps its times."""
    with contextlib.suppress(OSError):
        age_s = time.time() - record.lstat().st_mtime
        if age_s > TOUCH_INTERVAL_S or age_s < -CLOCK_DRIFT_S:
            os.utime(record, follow_symlinks=False)
