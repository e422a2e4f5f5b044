"""A directory that appears whole or not at all: staged beside its place, fsynced, renamed.

    .NAME.staging-XXXXXXXX    what a writer is filling; it holds a lock on the directory
    .NAME.previous-XXXXXXXX   the old directory during the fallback's two renames

A writer that is killed leaves its staging directory without a lock; the next one deletes it. The
lock serves only this: were it broken, two writers would still publish one whole directory each.

Replacing uses `renameat2(RENAME_EXCHANGE)`: the old directory is there until the new one is. Where
the file system lacks it, the fallback renames the old one away and the new one in; a kill between
the two leaves the old one under its `.previous` name, and the next writer puts it back.
"""

# The order of the system calls is this file's subject, so they are written as such:
# ruff: noqa: PTH102, PTH103, PTH104, PTH112, PTH118, PTH120, PTH123, PTH208
from __future__ import annotations

import ctypes
import errno
import os
import secrets
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from aotc.aot.errors import OutputExists, UserError
from aotc.aot.folders import keep_track, lock_folder, remove, remove_abandoned
from aotc.runtime.bundle.manifest import MANIFEST_MAGIC, MANIFEST_NAME
from aotc.runtime.errors import environment_fault

AT_FDCWD = -100
RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
FILE_MODE = 0o444  # a bundle is never written in place: its weights are mapped while it serves
FOLDER_MODE = 0o755
ATTEMPTS = 16


class OutputForeign(UserError):
    """`--force` was given for a path that holds something other than a bundle."""

    template = "output `{path}` is {found}, expected a bundle or an empty directory to replace"
    hint = "delete it yourself, or choose another path with `-o`"


class Staging:
    """One staging directory; a context manager that removes it unless `publish` succeeded.

    Raises `EnvironmentFault`s with the path; what stood at `out` is untouched then.
    """

    def __init__(self, out: str) -> None:
        """Remove leftovers of killed writers, then make the directory beside `out`."""
        self.out = os.path.realpath(out)
        self._parent, self._name = os.path.split(self.out)
        self._folders: set[str] = set()
        try:
            os.makedirs(self._parent, exist_ok=True)
            self._recover()
            self.path, self._lock = self._make()
        except OSError as error:
            raise environment_fault("write beside", self.out, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        os.close(self._lock)
        remove(self.path)

    def write(self, name: str, parts: Iterable[bytes | memoryview]) -> None:
        """Write and fsync the file `name`, folders included; it must be new."""
        path = os.path.join(self.path, name)
        try:
            self._make_folders(name)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(path, flags, FILE_MODE)
            try:
                for part in parts:
                    _write_all(descriptor, part)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise environment_fault("write", os.path.join(self.out, name), error) from error

    def publish(self, force: bool) -> None:
        """Make the directory appear at `out`; with `force` a bundle there is replaced.

        Raises `OutputExists`, `OutputForeign` or an `EnvironmentFault`.
        """
        try:
            for folder in sorted(self._folders, reverse=True):
                fsync_folder(os.path.join(self.path, folder))
            fsync_folder(self.path)
            if force and os.path.lexists(self.out):
                check_replaceable(self.out)
                self._exchange()
            else:
                self._rename_new()
            fsync_folder(self._parent)
        except FileExistsError:
            raise OutputExists(path=self.out) from None
        except OSError as error:
            raise environment_fault("write", self.out, error) from error

    def _make_folders(self, name: str) -> None:
        parts = name.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            folder = "/".join(parts[:depth])
            if folder not in self._folders:
                os.mkdir(os.path.join(self.path, folder), FOLDER_MODE)
                self._folders.add(folder)

    def _make(self) -> tuple[str, int]:
        """A fresh locked directory; another writer's clean-up may take one before it is locked."""
        for _ in range(ATTEMPTS):
            path = self._beside("staging")
            keep_track(path)
            os.mkdir(path, FOLDER_MODE)
            try:
                descriptor = lock_folder(path)
                if descriptor is not None:
                    return path, descriptor
            except FileNotFoundError:
                continue
            except OSError:
                remove(path)
                raise
        raise OSError(errno.EBUSY, "other writers remove the staging directory")

    def _beside(self, word: str) -> str:
        return os.path.join(self._parent, f".{self._name}.{word}-{secrets.token_hex(4)}")

    def _recover(self) -> None:
        """Put back an old bundle that a killed fallback left, and delete what nobody locks."""
        for entry in sorted(os.listdir(self._parent)):
            path = os.path.join(self._parent, entry)
            if entry.startswith(f".{self._name}.previous-"):
                if os.path.lexists(self.out):
                    remove(path)
                else:
                    os.rename(path, self.out)
            elif entry.startswith(f".{self._name}.staging-"):
                remove_abandoned(path)

    def _rename_new(self) -> None:
        if not _rename(self.path, self.out, RENAME_NOREPLACE):
            if os.path.lexists(self.out):
                raise FileExistsError(errno.EEXIST, "exists", self.out)
            os.rename(self.path, self.out)

    def _exchange(self) -> None:
        if _rename(self.path, self.out, RENAME_EXCHANGE):
            return  # the old bundle is now the staging directory, and goes with it
        previous = self._beside("previous")
        os.rename(self.out, previous)
        try:
            os.rename(self.path, self.out)
        except OSError:
            os.rename(previous, self.out)
            raise
        remove(previous)


def check_free(out: str, force: bool) -> None:
    """Refuse an output path early, before a build spends minutes on it.

    Raises `OutputExists` without `force`, `OutputForeign` with it where no bundle stands there, and
    an `EnvironmentFault` where nothing can be written.
    """
    try:
        os.lstat(out)
    except FileNotFoundError:
        _check_writable(os.path.realpath(out))
        return
    except OSError as error:
        raise environment_fault("write", out, error) from error
    if not force:
        raise OutputExists(path=out)
    try:
        check_replaceable(os.path.realpath(out))
    except OSError as error:
        raise environment_fault("read", out, error) from error


def _check_writable(out: str) -> None:
    """Raise an `EnvironmentFault` where the folder that would hold `out` can be neither written nor
    made."""
    folder = os.path.dirname(out)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    problem = 0
    if not os.path.isdir(folder):
        problem = errno.ENOTDIR
    elif not os.access(folder, os.W_OK | os.X_OK):
        is_read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
        problem = errno.EROFS if is_read_only else errno.EACCES
    if problem:
        raise environment_fault("write beside", out, OSError(problem, os.strerror(problem)))


def check_replaceable(out: str) -> None:
    """Raise `OutputForeign` unless `out` is a bundle or an empty directory; passes `OSError` on."""
    if not os.path.isdir(out):
        raise OutputForeign(path=out, found="no directory")
    if not os.listdir(out):
        return
    try:
        with open(os.path.join(out, MANIFEST_NAME), "rb") as file:
            magic = file.read(len(MANIFEST_MAGIC))
    except FileNotFoundError:
        magic = b""
    if magic != MANIFEST_MAGIC:
        raise OutputForeign(path=out, found="a directory with other files")


def _write_all(descriptor: int, part: bytes | memoryview) -> None:
    view = memoryview(part)
    while view:
        view = view[os.write(descriptor, view) :]


def fsync_folder(path: str) -> None:
    """Have the names in a folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rename(source: str, to: str, flags: int) -> bool:
    """`renameat2` with flags; False where the system or file system does not know them."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return False
    names = os.fsencode(source), os.fsencode(to)
    if function(AT_FDCWD, names[0], AT_FDCWD, names[1], ctypes.c_uint(flags)) == 0:
        return True
    code = ctypes.get_errno()
    if code in UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), to)
