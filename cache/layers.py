"""Layers: caches below one's own folder that are only read, asked in their order on a miss.

A folder, such as an image's, is one kind; another kind needs the methods of `Layer` and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aotc.cache.keys import Key
from aotc.cache.reading import RECORD, Damage, check_root, entry_folder, exists, read_entry


class Layer(Protocol):
    """What the store asks of a cache below its own folder."""

    @property
    def is_copied(self) -> bool:
        """Whether the store keeps what it gives in its own folder, as of one that is far away."""
        ...

    def get(
        self, key: Key, required: tuple[frozenset[str], ...] = ()
    ) -> Mapping[str, bytes] | None:
        """The files of the key's entry, digests checked; None where it is absent or damaged.

        `required`: an entry without all files of one of these sets is damaged. Raises CacheUnsafe.
        """
        ...

    def folder_of(self, key: Key) -> Path | None:
        """The folder that has the key's entry; None where there is none, or no folder."""
        ...

    def get_many(
        self, keys: Iterable[Key], required: tuple[frozenset[str], ...] = ()
    ) -> Iterator[tuple[Key, Mapping[str, bytes]]]:
        """Of a layer that is copied: the entries that it has, several at a time."""
        ...

    def put_many(self, entries: Iterable[tuple[Key, Mapping[str, bytes]]]) -> int:
        """Of a layer that is copied: keep entries that it lacks, where it takes any; how many."""
        ...


@dataclass(frozen=True, slots=True)
class FolderLayer:
    """A cache folder that is only read: no lock, no time of use, no quarantine."""

    root: Path
    is_copied = False

    def __post_init__(self) -> None:
        """Raises CacheUnsafe and CacheNotAFolder; a folder that is not there is an empty cache."""
        check_root(self.root)

    def get(
        self, key: Key, required: tuple[frozenset[str], ...] = ()
    ) -> Mapping[str, bytes] | None:
        """The files of an entry; None where it is absent, damaged or cannot be read."""
        try:
            return read_entry(self.root, entry_folder(self.root, key), key, required)
        except (Damage, OSError):
            return None

    def folder_of(self, key: Key) -> Path | None:
        """The folder that has the key's entry."""
        folder = entry_folder(self.root, key)
        return folder if exists(folder / RECORD) else None

    def get_many(
        self, keys: Iterable[Key], required: tuple[frozenset[str], ...] = ()
    ) -> Iterator[tuple[Key, Mapping[str, bytes]]]:
        """Nothing: entries of this machine are read where they stand."""
        return iter(())

    def put_many(self, entries: Iterable[tuple[Key, Mapping[str, bytes]]]) -> int:
        """Keeps nothing."""
        return 0
