"""Files of a bundle's directory: opened by name under one descriptor, never through a link.

No string of a manifest reaches the file system before `schema.FileName` accepted it; each of its
components is then opened with O_NOFOLLOW, and only plain files are read.
"""

from __future__ import annotations

import hashlib
import os
import stat

from ..errors import (
    BundleAltered,
    BundleFileMissing,
    BundleFileRefused,
    BundleLimit,
    BundleNotFound,
    BundleReplaced,
    BundleSizeMismatch,
    BundleTruncated,
    environment_fault,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    from .manifest import FileEntry

READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO must not block
FOLDER_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY
READ_STEP_BYTES = 64 << 20
LAYOUT_PREFIX = "oci-layout:"
DIGEST_STEP_BYTES = 1 << 20
FILE_LIMIT_BYTES = 4 << 30  # of a file that is read whole; weights are mapped


class Directory:
    """An open bundle directory; a context manager. `path` is used in messages only."""

    __slots__ = ("_descriptor", "_opened_at", "path")

    def __init__(self, path: str) -> None:
        """Open the directory; raises `BundleNotFound` or `EnvironmentFault`."""
        self.path = self._opened_at = path
        try:
            self._descriptor = _open_folder(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            detail = (error.strerror or "not found").lower()
            raise BundleNotFound(path=path, detail=detail) from None
        except OSError as error:
            raise environment_fault("open", path, error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor; idempotent. Files that are open or mapped stay so."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def is_replaced(self) -> bool:
        """Whether the path leads to another directory by now, or to none."""
        try:
            return not os.path.samestat(os.fstat(self._descriptor), os.stat(self._opened_at))
        except OSError:
            return True

    def where(self, name: str) -> str:
        """The path of a file, for messages."""
        return os.path.join(self.path, name)

    def open(self, name: str) -> tuple[int, int]:
        """Descriptor and size in bytes of the plain file `name`; the caller closes it.

        Raises `BundleFileMissing`, `BundleFileRefused`, `BundleReplaced` or `EnvironmentFault`.
        """
        folder = self._descriptor
        *folders, last = name.split("/")
        try:
            for part in folders:
                outer, folder = folder, os.open(part, FOLDER_FLAGS, dir_fd=folder)
                if outer != self._descriptor:
                    os.close(outer)
            descriptor = os.open(last, READ_FLAGS, dir_fd=folder)
        except FileNotFoundError:
            kind = BundleReplaced if self.is_replaced() else BundleFileMissing
            raise kind(path=self.path if kind is BundleReplaced else self.where(name)) from None
        except OSError as error:
            raise self._refusal(name, error) from None
        finally:
            if folder != self._descriptor:
                os.close(folder)
        try:
            status = os.fstat(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise self._refusal(name, error) from None
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise BundleFileRefused(path=self.where(name), found="not a plain file")
        return descriptor, status.st_size

    def _refusal(self, name: str, error: OSError) -> Exception:
        import errno

        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            return BundleFileRefused(path=self.where(name), found="reached through a link")
        if error.errno == errno.ENXIO:  # a socket
            return BundleFileRefused(path=self.where(name), found="not a plain file")
        return environment_fault("read", self.where(name), error)

    def open_sized(self, name: str, expected_bytes: int) -> int:
        """Descriptor of a file whose size must be `expected_bytes`."""
        descriptor, nbytes = self.open(name)
        if nbytes != expected_bytes:
            os.close(descriptor)
            kind = BundleTruncated if nbytes < expected_bytes else BundleSizeMismatch
            raise kind(path=self.where(name), found=nbytes, expected=expected_bytes)
        return descriptor

    def read_head(self, name: str, limit_bytes: int) -> bytes:
        """A whole small file that states its own size; refused over `limit_bytes`."""
        descriptor, nbytes = self.open(name)
        try:
            if nbytes > limit_bytes:
                raise self._over_limit(name, nbytes, limit_bytes)
            return _read_all(descriptor, nbytes)
        except OSError as error:
            raise environment_fault("read", self.where(name), error) from None
        finally:
            os.close(descriptor)

    def read(self, entry: FileEntry, limit_bytes: int = FILE_LIMIT_BYTES) -> bytes:
        """A file that the manifest lists, checked against its size and digest.

        The bytes returned are the bytes digested: what is on disk may change afterwards. A large
        file is digested once before memory is taken for it.
        """
        if entry.nbytes > limit_bytes:
            raise self._over_limit(entry.name, entry.nbytes, limit_bytes)
        descriptor = self.open_sized(entry.name, entry.nbytes)
        try:
            if entry.nbytes > READ_STEP_BYTES:
                self._check(entry, _digest_steps(descriptor, entry.nbytes))
                os.lseek(descriptor, 0, os.SEEK_SET)
            data = _read_all(descriptor, entry.nbytes)
        except OSError as error:
            raise environment_fault("read", self.where(entry.name), error) from None
        finally:
            os.close(descriptor)
        self._check(entry, hashlib.sha256(data).digest())
        return data

    def _check(self, entry: FileEntry, found: bytes) -> None:
        if found != entry.sha256:
            raise BundleAltered(
                path=self.where(entry.name),
                where="the file",
                found=found.hex(),
                expected=entry.sha256.hex(),
            )

    def _over_limit(self, name: str, found: int, limit: int) -> BundleLimit:
        return BundleLimit(path=self.where(name), what="size in bytes", found=found, limit=limit)


def _open_folder(path: str) -> int:
    """A bundle's directory.

    Where a file system cannot exchange two directories, a writer renames the old one away before
    the new one comes (`aot/pack/staging.py`): between the two, the old one is opened.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        parent, name = os.path.split(os.path.realpath(path))
        try:
            beside = os.listdir(parent)
        except OSError:
            beside = []
        for each in beside:
            if each.startswith(f".{name}.previous-"):
                return os.open(os.path.join(parent, each), flags | os.O_NOFOLLOW)
        return os.open(path, flags)  # by now the new one may be there


def _digest_steps(descriptor: int, nbytes: int) -> bytes:
    """SHA-256 of the first `nbytes` of a file, in memory that does not grow with it."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(DIGEST_STEP_BYTES))
    while nbytes:
        count = os.readv(descriptor, [buffer[: min(nbytes, DIGEST_STEP_BYTES)]])
        if not count:
            break  # it shrank while it was read: the digest will not fit
        digest.update(buffer[:count])
        nbytes -= count
    return digest.digest()


def _read_all(descriptor: int, nbytes: int) -> bytes:
    data = os.read(descriptor, min(nbytes, READ_STEP_BYTES))
    if len(data) == nbytes:
        return data
    parts = [data]
    rest = nbytes - len(data)
    while rest and parts[-1]:
        parts.append(os.read(descriptor, min(rest, READ_STEP_BYTES)))
        rest -= len(parts[-1])
    return b"".join(parts)
