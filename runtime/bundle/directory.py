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
READ_STEP_BYTES = 16 << 20
LAYOUT_PREFIX = "oci-layout:"


class Directory:
    """An open bundle directory; a context manager. `path` is used in messages only."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str) -> None:
        """Open the directory; raises `BundleNotFound` or `EnvironmentFault`."""
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError) as error:
            detail = (error.strerror or "not found").lower()
            raise BundleNotFound(path=path, detail=detail) from None
        except OSError as error:
            raise environment_fault("open", path, error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def where(self, name: str) -> str:
        """The path of a file, for messages."""
        return os.path.join(self.path, name)

    def open(self, name: str) -> tuple[int, int]:
        """Descriptor and size in bytes of the plain file `name`; the caller closes it.

        Raises `BundleFileMissing`, `BundleFileRefused` or `EnvironmentFault`.
        """
        folder = self._descriptor
        *folders, last = name.split("/")
        try:
            for part in folders:
                inner = os.open(part, FOLDER_FLAGS, dir_fd=folder)
                if folder != self._descriptor:
                    os.close(folder)
                folder = inner
            descriptor = os.open(last, READ_FLAGS, dir_fd=folder)
        except FileNotFoundError:
            raise BundleFileMissing(path=self.where(name)) from None
        except OSError as error:
            raise self._refusal(name, error) from None
        finally:
            if folder != self._descriptor:
                os.close(folder)
        status = os.fstat(descriptor)
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
                where = self.where(name)
                raise BundleLimit(path=where, what="size in bytes", found=nbytes, limit=limit_bytes)
            return _read_all(descriptor, nbytes)
        except OSError as error:
            raise environment_fault("read", self.where(name), error) from None
        finally:
            os.close(descriptor)

    def read(self, entry: FileEntry) -> bytes:
        """A file that the manifest lists, checked against its size and digest.

        The bytes returned are the bytes digested: what is on disk may change afterwards.
        """
        descriptor = self.open_sized(entry.name, entry.nbytes)
        try:
            data = _read_all(descriptor, entry.nbytes)
        except OSError as error:
            raise environment_fault("read", self.where(entry.name), error) from None
        finally:
            os.close(descriptor)
        found = hashlib.sha256(data).digest()
        if found != entry.sha256:
            raise BundleAltered(
                path=self.where(entry.name),
                where="the file",
                found=found.hex(),
                expected=entry.sha256.hex(),
            )
        return data


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
