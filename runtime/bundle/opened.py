"""An open bundle: directory, manifest and digest of one moment, and the files by their names.

A writer puts a new directory in the place of the old one and then deletes the old one. A reader
holds the directory that it opened; where a file of that has gone because it was replaced,
`read_bundle` begins again with the new one. So a read is of the old bundle or of the new one.
"""

from __future__ import annotations

import os

from ..errors import (
    BundleFileMissing,
    BundleReplaced,
    DigestMismatch,
    MemoryFull,
    NotABundle,
)
from ..settings import ArgumentInvalid
from .manifest import LIMITS, MANIFEST_NAME, Extras, Manifest, digest_of
from .opening import open_bundle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self, TypeVar

    Result = TypeVar("Result")

ATTEMPTS = 100
DIGITS = frozenset("0123456789abcdef")


class Bundle:
    """A context manager. `digest`: the bundle digest, 64 hex digits; `data`: the manifest's file;
    `path`: for messages."""

    __slots__ = ("_extras", "data", "digest", "directory", "manifest", "path")

    def __init__(
        self, path: str | os.PathLike[str], digest: str | None = None, name: str | None = None
    ) -> None:
        """Open the bundle at `path`, and refuse it unless it has the digest, where one is given.

        name: what messages call it, where that is not the path. Raises `BundleError`s,
        `IncompatibleError`s, `EnvironmentFault` and, for a digest that is none, `ArgumentInvalid`.
        """
        expected = None if digest is None else _digits(digest)
        self._extras: Extras | None = None
        self.directory = open_bundle(path)
        self.path = self.directory.path = name or os.fsdecode(path)
        try:
            self.data = self._read_manifest()
            self.manifest = Manifest.from_bytes(self.data, self.where(MANIFEST_NAME))
            self.digest = digest_of(self.data)
            if expected not in (None, self.digest):
                raise DigestMismatch(path=self.path, found=self.digest, expected=expected)
        except BaseException:
            self.directory.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.directory.close()

    def where(self, name: str) -> str:
        """The path of a file, for messages."""
        return self.directory.where(name)

    def read(self, name: str) -> bytes:
        """A file that the manifest lists, checked against its digest."""
        return self.directory.read(self.manifest.file(name))

    def extras(self) -> Extras:
        """Name, size and digest of each file that may be deleted.

        Raises `BundleFileMissing` where the list itself was, and other `BundleError`s.
        """
        entry = self.manifest.extras
        if self._extras is None:
            self._extras = Extras(())
            if entry is not None:
                data = self.directory.read(entry, LIMITS.file_bytes)
                self._extras = Extras.from_bytes(data, self.where(entry.name))
        return self._extras

    def read_extra(self, name: str) -> bytes | None:
        """One of the extras, checked against its digest; None where it was deleted."""
        try:
            for entry in self.extras().files:
                if entry.name == name:
                    return self.directory.read(entry)
        except BundleFileMissing:
            pass
        return None

    def _read_manifest(self) -> bytes:
        try:
            return self.directory.read_head(MANIFEST_NAME, LIMITS.file_bytes + 4096)
        except BundleFileMissing:
            raise NotABundle(path=self.path, detail=f"it has no `{MANIFEST_NAME}`") from None


def read_bundle(
    path: str | os.PathLike[str], work: Callable[[Bundle], Result], digest: str | None = None
) -> Result:
    """What `work` makes of the open bundle at `path`; made again where it was replaced meanwhile.

    Raises what `Bundle` and `work` raise, `MemoryFull`, and `BundleReplaced` after ATTEMPTS.
    """
    try:
        for _ in range(ATTEMPTS - 1):
            try:
                with Bundle(path, digest) as bundle:
                    return work(bundle)
            except BundleReplaced:
                pass
        with Bundle(path, digest) as bundle:
            return work(bundle)
    except MemoryFull:
        raise
    except MemoryError:
        raise MemoryFull(purpose=f"reading `{os.fsdecode(path)}`", nbytes="more") from None


def _digits(digest: str) -> str:
    """The hex digits of a digest as people write it; raises `ArgumentInvalid`."""
    digits = digest.removeprefix("sha256:").lower() if isinstance(digest, str) else ""
    if len(digits) != 64 or not DIGITS.issuperset(digits):
        expected = "`sha256:` and 64 hex digits"
        remedy = "`aotc build` and `aotc inspect` print the digest of a bundle"
        raise ArgumentInvalid(name="digest", found=digest, expected=expected, remedy=remedy)
    return digits
