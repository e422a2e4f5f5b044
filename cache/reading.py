"""Reading an entry: every folder and file is opened without following links and checked first.

A folder between the root and an entry that somebody else could write ends the read with
`CacheUnsafe`: whoever can write there chooses the machine code. An entry that does not hold what
its record says, or is not this user's, is `Damage`, which the store counts as a miss.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aotc.cache.errors import BucketUnknown, CacheNotAFolder, CacheUnreadable, CacheUnsafe
from aotc.cache.keys import BUCKETS, Key

RECORD = "entry.json"
RECORD_LIMIT_BYTES = 1 << 20
FILE_LIMIT_BYTES = 4 << 30
STEP_BYTES = 16 << 20
FOLDER_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
FILE_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO must not block
FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")  # as long as a name in an archive
# What stands in a file's place is wrong, or its blocks cannot be read.
_NO_FILE = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR, errno.EIO)


class Damage(Exception):
    """An entry does not hold what its record says."""


def fault_of(state: os.stat_result) -> str:
    """Why a file or folder of the cache is not to be trusted, or nothing."""
    if state.st_uid not in (os.geteuid(), 0):
        return f"owned by user {state.st_uid}"
    if state.st_mode & 0o022:
        return f"of mode {stat.S_IMODE(state.st_mode):o}"
    return ""


def check_root(root: Path) -> bool:
    """Refuse a folder that others can write; False where there is none and none to be made, so
    that every get is a miss and every put is refused.

    Raises CacheUnsafe and CacheNotAFolder.
    """
    try:
        state = root.stat()
    except OSError:
        return False
    if not stat.S_ISDIR(state.st_mode):
        raise CacheNotAFolder(path=str(root))
    if found := fault_of(state):
        raise CacheUnsafe(path=str(root), found=found)
    return True


def entry_folder(root: Path, key: Key) -> Path:
    """The folder below `root` of the key's entry, whether or not it exists."""
    if key.bucket not in BUCKETS:
        raise BucketUnknown(bucket=key.bucket, known=", ".join(BUCKETS))
    digest = key.digest
    return root / key.folder / digest[:2] / digest


def children(folder: Path) -> list[Path]:
    """What is in a folder, by name; nothing where there is no folder. Raises CacheUnreadable."""
    try:
        return sorted(folder / name for name in os.listdir(folder))  # noqa: PTH208
    except OSError as fault:
        if fault.errno in (errno.ENOENT, errno.ENOTDIR):
            return []
        raise CacheUnreadable(path=str(folder), reason=_reason(fault)) from None


def entry_folders(root: Path, bucket: str) -> Iterator[Path]:
    """The folders of a bucket's entries, by their digests. Raises CacheUnreadable."""
    for shard in children(root / bucket):
        if len(shard.name) == 2:
            yield from children(shard)


def exists(path: Path) -> bool:
    """Whether there is something at `path`; False where it is not even to be looked at."""
    try:
        return path.exists()
    except OSError:
        return False


@contextlib.contextmanager
def open_folder(root: Path, *names: str) -> Iterator[int]:
    """Descriptor of `root/names[0]/…`, each level checked.

    Raises FileNotFoundError, `CacheUnsafe` and OSError.
    """
    descriptor, path = os.open(root, FOLDER_FLAGS), root
    try:
        _check(path, descriptor)
        for name in names:
            path = path / name
            try:
                inner = os.open(name, FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=descriptor)
            except OSError as fault:
                if fault.errno not in (errno.ELOOP, errno.ENOTDIR):
                    raise
                raise CacheUnsafe(path=str(path), found="a link or a file") from None
            os.close(descriptor)
            descriptor = inner
            _check(path, descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def read_entry(
    root: Path, folder: Path, key: Key, required: tuple[frozenset[str], ...] = ()
) -> dict[str, bytes]:
    """Every file of the entry in `folder` below `root`, sizes and digests checked.

    `required`: the entry has all files of one of these sets. Raises FileNotFoundError (no entry),
    `Damage`, `CacheUnsafe` and OSError.
    """
    *levels, name = folder.relative_to(root).parts
    with open_folder(root, *levels) as parent:
        try:
            entry = os.open(name, FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=parent)
        except OSError as fault:
            if fault.errno not in _NO_FILE:
                raise
            raise Damage("it is a link or a file, expected a folder") from None
        try:
            if fault_text := fault_of(os.fstat(entry)):
                raise Damage(f"it is {fault_text}")
            rows = _rows(read_file(entry, RECORD, RECORD_LIMIT_BYTES), key)
            if required and not any(names <= rows.keys() for names in required):
                raise Damage("its record lacks files that it should have")
            return {name: _read_row(entry, name, row) for name, row in rows.items()}
        finally:
            os.close(entry)


def read_record(folder: Path) -> Any:
    """The record of an entry as plain data; None where it cannot be read or parsed."""
    return read_json(folder / RECORD)


def read_json(path: Path) -> Any:
    """A small JSON file of the cache as plain data; None where it cannot be read or parsed."""
    try:
        descriptor = os.open(path.parent, FOLDER_FLAGS | os.O_NOFOLLOW)
        try:
            return json.loads(read_file(descriptor, path.name, 16 * RECORD_LIMIT_BYTES))
        finally:
            os.close(descriptor)
    except (Damage, OSError, ValueError, RecursionError):
        return None


def read_file(folder: int, name: str, limit_bytes: int) -> bytes:
    """A plain file of this user's in an open folder.

    Raises FileNotFoundError, `Damage` and OSError.
    """
    with _opened(folder, name) as (descriptor, nbytes):
        if nbytes > limit_bytes:
            raise Damage(f"file `{name}` has {nbytes} bytes, expected at most {limit_bytes}")
        return b"".join(_steps(descriptor, nbytes))


def file_row(name: str, data: bytes) -> dict[str, str | int]:
    """The line of a record for one file."""
    return {"name": name, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _reason(fault: OSError) -> str:
    return (fault.strerror or str(fault)).lower()


def _check(path: Path, descriptor: int) -> None:
    if found := fault_of(os.fstat(descriptor)):
        raise CacheUnsafe(path=str(path), found=found)


def _rows(text: bytes, key: Key) -> dict[str, Any]:
    """Name → row of each file that a record lists."""
    try:
        record = json.loads(text)
        is_ours = record["key"] == key.record()
        rows = {str(row["name"]): row for row in record["files"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Damage("its record does not parse") from None
    if not is_ours:
        raise Damage("its record belongs to another key")
    if not rows or len(rows) != len(record["files"]):
        raise Damage("its record lists no files, or one twice")
    return rows


def _read_row(folder: int, name: str, row: dict[str, Any]) -> bytes:
    if not FILE_NAME.fullmatch(name):
        raise Damage("its record names a file outside the entry")
    wrong = f"file `{name}` has other bytes than its record says"
    try:
        with _opened(folder, name) as (descriptor, nbytes):
            if row.get("size_bytes") != nbytes or nbytes > FILE_LIMIT_BYTES:
                raise Damage(wrong)
            if nbytes > STEP_BYTES:  # digested once before memory is taken for it
                digest = hashlib.sha256()
                for part in _steps(descriptor, nbytes):
                    digest.update(part)
                if digest.hexdigest() != row.get("sha256"):
                    raise Damage(wrong)
                os.lseek(descriptor, 0, os.SEEK_SET)
            data = b"".join(_steps(descriptor, nbytes))
    except FileNotFoundError:
        raise Damage(f"file `{name}` is missing") from None
    if row != file_row(name, data):
        raise Damage(wrong)
    return data


@contextlib.contextmanager
def _opened(folder: int, name: str) -> Iterator[tuple[int, int]]:
    """Descriptor and size in bytes of a plain file of this user's."""
    try:
        descriptor = os.open(name, FILE_FLAGS, dir_fd=folder)
    except OSError as fault:
        if fault.errno not in _NO_FILE:
            raise
        raise Damage(f"`{name}` is not a plain file") from None
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise Damage(f"`{name}` is not a plain file")
        if fault_text := fault_of(state):
            raise Damage(f"file `{name}` is {fault_text}")
        yield descriptor, state.st_size
    finally:
        os.close(descriptor)


def _steps(descriptor: int, nbytes: int) -> Iterator[bytes]:
    """The bytes of a file in steps; fewer where it has shrunk meanwhile."""
    while nbytes > 0:
        part = os.read(descriptor, min(nbytes, STEP_BYTES))
        if not part:
            return
        nbytes -= len(part)
        yield part
