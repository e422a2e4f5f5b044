"""A cache as one file: equal entries give equal bytes, whatever the order, times and users.

The file is a plain tar (ustar, uncompressed) of entries in the order of their buckets and digests:

    binaries-v1/ab/abcd…/entry.json     as in the cache folder: key, size and digest of each file
    binaries-v1/ab/abcd…/<files>        in the order of their names
    end.json                            how many entries there were

The reader takes nothing but what the writer writes: it makes each member's header anew and compares
all its 512 bytes, so that links, other owners, modes, times or names, extensions, holes and data
behind the end are refused. Nothing is put before the whole file was read and every digest agreed.

Digests find damage and lies about content, not whoever made the archive: what is imported becomes
machine code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from aotc.cache.collect import key_record, rows
from aotc.cache.errors import ArchiveInvalid, CacheError, CacheNotWritable
from aotc.cache.keys import Key, canonical, key_of
from aotc.cache.reading import (
    FILE_LIMIT_BYTES,
    FILE_NAME,
    RECORD,
    RECORD_LIMIT_BYTES,
    STEP_BYTES,
    Damage,
    file_row,
    read_entry,
)
from aotc.cache.store import Store

BLOCK_BYTES = 512
END = "end.json"
END_BLOCKS = bytes(2 * BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class Exported:
    """What an archive holds."""

    entries: int
    bytes: int  # of the archive
    digest: str  # SHA-256 of the archive
    skipped: int  # entries that could not be read whole


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of the entries of an archive."""

    entries: int
    added: int
    present: int  # the cache had them; its own stay


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of an archive that was read once."""

    key: Key
    files: tuple[tuple[str, dict[str, Any], int], ...]  # name, row, offset of the data


def export_to(store: Store, path: Path, bucket: str | None = None) -> Exported:
    """Write the entries of the folder itself, or of one bucket, into an archive that appears whole.

    Raises OSError where `path` cannot be written.
    """
    staged = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        with staged.open("xb") as file:
            output = _Output(file)
            count, skipped = _write_entries(store, output, bucket)
            output.member(END, canonical({"entries": count}))
            output.write(END_BLOCKS)
            file.flush()
            os.fsync(file.fileno())
        staged.replace(path)
    except OSError as fault:  # a full disk does not name the file
        raise OSError(fault.errno, fault.strerror, str(path)) from None
    finally:
        with contextlib.suppress(OSError):
            staged.unlink()
    return Exported(count, output.nbytes, output.digest.hexdigest(), skipped)


def import_from(store: Store, path: Path) -> Imported:
    """Put every entry of an archive; an entry that the cache has stays as it is.

    Raises ArchiveInvalid, before anything is put, for a file that is not what `export_to` writes;
    CacheNotWritable where an entry cannot be kept; OSError where the file cannot be read.
    """
    if path.exists() and not path.is_file():
        raise ArchiveInvalid(path=str(path), found="it is not a plain file")
    with path.open("rb") as file:
        places = list(_Input(file, path).entries())
        added = 0
        for place in places:
            refused = store.counters.refused
            added += store.put(place.key, _files(file, path, place))
            if store.counters.refused > refused:
                raise CacheNotWritable(path=str(store.root), added=str(added))
    return Imported(len(places), added, len(places) - added)


def _write_entries(store: Store, output: _Output, bucket: str | None) -> tuple[int, int]:
    """How many entries were written and how many could not be read."""
    count = skipped = 0
    for row in rows(store):
        if bucket not in (None, row.kind):
            continue
        key = key_record(row)
        try:
            if key is None or (key.folder, key.digest) != (row.bucket, row.digest):
                raise Damage("its record is not one of its key")
            files = sorted(read_entry(store.root, row.folder, key).items())
        except (Damage, OSError, CacheError):
            skipped += 1
            continue
        folder = _folder_name(key)
        listed = [file_row(name, data) for name, data in files]
        output.member(f"{folder}/{RECORD}", canonical({"key": key.record(), "files": listed}))
        for name, data in files:
            output.member(f"{folder}/{name}", data)
        count += 1
    return count, skipped


def _folder_name(key: Key) -> str:
    digest = key.digest
    return f"{key.folder}/{digest[:2]}/{digest}"


def _header(name: str, nbytes: int) -> bytes:
    """The header of a member; raises ValueError for a name that does not fit."""
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = nbytes, 0o444, 0
    return member.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict")


def _padding(nbytes: int) -> int:
    return -nbytes % BLOCK_BYTES


class _Output:
    """Members written one after the other, and the digest of all bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.nbytes = 0
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self.file.write(data)
        self.digest.update(data)
        self.nbytes += len(data)

    def member(self, name: str, data: bytes) -> None:
        self.write(_header(name, len(data)))
        self.write(data)
        self.write(bytes(_padding(len(data))))


class _Input:
    """One pass over an archive, which takes nothing but what `_Output` writes."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file = file
        self.path = path
        self.left = os.fstat(file.fileno()).st_size

    def entries(self) -> Iterator[_Entry]:
        """Each entry, its digests checked. Raises ArchiveInvalid for whatever is not as it was
        written."""
        count, last = 0, ""
        name, nbytes = self._header()
        while name != END:
            place = self._entry(name, nbytes)
            folder = _folder_name(place.key)
            if folder <= last:
                raise self._invalid(f"entry `{folder[:40]}…` is out of order")
            yield place
            count, last = count + 1, folder
            name, nbytes = self._header()
        if self._data(nbytes, RECORD_LIMIT_BYTES) != canonical({"entries": count}):
            raise self._invalid(f"its end does not say that it has {count} entries")
        if self._read(len(END_BLOCKS)) != END_BLOCKS or self.left:
            raise self._invalid("there is data behind its end")

    def _entry(self, name: str, nbytes: int) -> _Entry:
        record = self._data(nbytes, RECORD_LIMIT_BYTES)
        key, listed = self._record(record)
        if name != f"{_folder_name(key)}/{RECORD}":
            raise self._invalid(f"`{name[:120]}` has the record of another key")
        files = []
        for row in listed:
            expected = f"{_folder_name(key)}/{row['name']}"
            if self._header() != (expected, row["size_bytes"]):
                raise self._invalid(f"file `{row['name']}` does not follow its record")
            files.append((row["name"], row, self.file.tell()))
            if self._digest(row["size_bytes"]) != row["sha256"]:
                raise self._invalid(f"`{expected}` has other bytes than its record says")
        return _Entry(key, tuple(files))

    def _record(self, text: bytes) -> tuple[Key, list[dict[str, Any]]]:
        """The key and the rows of a record, which has to be written as the store writes it."""
        try:
            record = json.loads(text)
            key, listed = key_of(record["key"]), list(record["files"])
            names = [row["name"] for row in listed]
            is_plain = all(
                set(row) == {"name", "size_bytes", "sha256"}
                and FILE_NAME.fullmatch(row["name"])
                and row["name"] != RECORD
                and type(row["size_bytes"]) is int
                and 0 <= row["size_bytes"] <= FILE_LIMIT_BYTES
                for row in listed
            ) and all(type(value) in (str, int, bool, type(None)) for _, value in key.fields)
            is_written = canonical({"key": key.record(), "files": listed}) == text
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self._invalid("the record of an entry does not parse") from None
        if not (listed and is_plain and is_written and names == sorted(set(names))):
            raise self._invalid("the record of an entry is not one that aotc writes")
        return key, listed

    def _header(self) -> tuple[str, int]:
        """Name and size of the next member."""
        block = self._read(BLOCK_BYTES)
        try:
            prefix, name = (block[a:b].rstrip(b"\0").decode("ascii") for a, b in _NAME_FIELDS)
            name = f"{prefix}/{name}" if prefix else name
            nbytes = int(block[124:135], 8)
            if _header(name, nbytes) == block:
                return name, nbytes
        except (ValueError, tarfile.TarError):
            pass
        raise self._invalid("a member is not one that aotc writes")

    def _data(self, nbytes: int, limit_bytes: int) -> bytes:
        if nbytes > limit_bytes:
            raise self._invalid(f"a record has {nbytes} bytes, expected at most {limit_bytes}")
        data = self._read(nbytes)
        self._skip_padding(nbytes)
        return data

    def _digest(self, nbytes: int) -> str:
        digest, rest = hashlib.sha256(), nbytes
        while rest:
            part = self._read(min(rest, STEP_BYTES))
            digest.update(part)
            rest -= len(part)
        self._skip_padding(nbytes)
        return digest.hexdigest()

    def _skip_padding(self, nbytes: int) -> None:
        if any(self._read(_padding(nbytes))):
            raise self._invalid("there is data between two members")

    def _read(self, nbytes: int) -> bytes:
        if nbytes > self.left:  # before memory is taken for it
            raise self._invalid("it ends too soon")
        data = self.file.read(nbytes)
        if len(data) != nbytes:
            raise self._invalid("it changed while it was read")
        self.left -= nbytes
        return data

    def _invalid(self, found: str) -> ArchiveInvalid:
        return ArchiveInvalid(path=str(self.path), found=found)


_NAME_FIELDS = ((345, 500), (0, 100))  # where a header has the folders and the name


def _files(file: BinaryIO, path: Path, place: _Entry) -> dict[str, bytes]:
    """The files of an entry, read again: the archive may have been changed meanwhile."""
    files = {}
    for name, row, offset in place.files:
        file.seek(offset)
        files[name] = file.read(row["size_bytes"])
        if file_row(name, files[name]) != row:
            raise ArchiveInvalid(path=str(path), found="it changed while it was read")
    return files
