"""Every entry of a cache folder read as a build reads it, and what was found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aotc.cache.collect import Row, key_record, rows
from aotc.cache.errors import CacheUnsafe
from aotc.cache.reading import Damage, read_entry
from aotc.cache.store import Store

State = Literal["sound", "damaged", "unsafe", "unreadable"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is the matter with one entry."""

    row: Row
    state: State
    detail: str = ""


def check(store: Store) -> Iterator[Finding]:
    """Each entry of the folder itself, by its digest; deletes and moves nothing."""
    for row in rows(store):
        yield _check(store.root, row)


def _check(root: Path, row: Row) -> Finding:
    key = key_record(row)
    if key is None:
        return Finding(row, "damaged", "its record does not parse")
    if (key.folder, key.digest) != (row.bucket, row.digest):
        return Finding(row, "damaged", "its record belongs to another key")
    try:
        read_entry(root, row.folder, key)
    except Damage as damage:
        return Finding(row, "damaged", str(damage))
    except CacheUnsafe as error:
        return Finding(row, "unsafe", error.message)
    except OSError as fault:
        return Finding(row, "unreadable", fault.strerror or str(fault))
    return Finding(row, "sound")
