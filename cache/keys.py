"""Keys of the cache: records of named fields, whose digest is the entry's address.

The whole record is stored beside the entry as readable JSON, so that a miss can be explained by
the fields that differ from the nearest stored key.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

# Bucket → version. A change of what an entry holds raises the version; old and new versions share
# one cache folder and never read each other's entries.
BUCKETS: dict[str, int] = {"binaries": 1, "captures": 3, "programs": 1, "tuning": 1}

FieldValue = str | int | bool | None


@dataclass(frozen=True, slots=True)
class Key:
    """Address of one entry: a bucket and every fact that the entry's bytes depend on."""

    bucket: str  # key of BUCKETS
    fields: tuple[tuple[str, FieldValue], ...]  # sorted by name

    @staticmethod
    def of(bucket: str, **fields: FieldValue) -> Key:
        """The key in `bucket` with these fields; values are texts, whole numbers or booleans."""
        return Key(bucket, tuple(sorted(fields.items())))

    @property
    def folder(self) -> str:
        """Name of the bucket's folder, with its version: `binaries-v1`."""
        return f"{self.bucket}-v{BUCKETS[self.bucket]}"

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical record, 64 hexadecimal digits."""
        return hashlib.sha256(canonical(self.record())).hexdigest()

    def record(self) -> dict[str, Any]:
        """The key as plain data, as it is stored."""
        return {"bucket": self.folder, "fields": dict(self.fields)}


def canonical(record: Any) -> bytes:
    """The one byte string of a JSON value: sorted names, no spaces, plain text."""
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def key_of(record: dict[str, Any]) -> Key:
    """The key of a stored record; raises `ValueError` when it is not one of this version's."""
    folder, fields = record["bucket"], record["fields"]
    bucket = str(folder).rpartition("-v")[0]
    if bucket not in BUCKETS or not isinstance(fields, dict):
        raise ValueError(f"not a key record of this version: {folder}")
    key = Key.of(bucket, **fields)
    if key.folder != folder:
        raise ValueError(f"not a key record of this version: {folder}")
    return key


@dataclass(frozen=True, slots=True)
class Difference:
    """One field in which two keys differ; a missing field is None."""

    field: str
    stored: FieldValue
    wanted: FieldValue


def differences(stored: Key, wanted: Key) -> tuple[Difference, ...]:
    """The fields in which two keys of one bucket differ, by name."""
    old, new = dict(stored.fields), dict(wanted.fields)
    names = sorted(old.keys() | new.keys())
    return tuple(
        Difference(name, old.get(name), new.get(name))
        for name in names
        if old.get(name) != new.get(name) or (name in old) != (name in new)
    )
