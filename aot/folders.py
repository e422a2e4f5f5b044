"""Folders owned by a process: locked while it lives, removed by the next process after its
death.

Temporary folders and locks are in one folder of the user, `aotc-UID` of the system's temporary
folder (TMPDIR), of mode 0700: nobody else can make or see what is in it.
"""

# The order of the system calls is this file's subject, so they are written as such:
# ruff: noqa: PTH100, PTH102, PTH112, PTH116, PTH118, PTH208
from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator

from aotc.runtime import settings
from aotc.runtime.errors import EnvironmentFault, environment_fault

NO_LOCKS = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.ENOLCK)  # NFS: EBADF
ATTEMPTS = 16
_own: set[str] = set()  # folders of this process: one that a signal ends deletes them


# What is wrong with the machine, and with no stage.
MACHINE_FAULTS = (
    errno.EACCES, errno.EAGAIN, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE,
    errno.ENOMEM, errno.ENOSPC, errno.EPERM, errno.EROFS,
)  # fmt: skip


def machine_fault(error: Exception) -> EnvironmentFault | None:
    """The typed error for one that says what is wrong with the machine; None for others."""
    if isinstance(error, MemoryError):
        error = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), "memory")
    if not isinstance(error, OSError) or error.errno not in MACHINE_FAULTS:
        return None
    return environment_fault("use", str(error.filename or "a temporary file"), error)


class FolderUnsafe(EnvironmentFault):
    """The folder of this user's temporary files belongs to another user, or others can enter it."""

    template = "temporary folder `{path}` is {found}, expected one that only its owner can enter"
    hint = "set TMPDIR to a folder of your own"


def temporary_folder() -> str:
    """The system's folder of temporary files: TMPDIR, or /tmp and others where that cannot be
    written. Raises `EnvironmentFault`."""
    try:
        return os.path.abspath(tempfile.gettempdir())
    except FileNotFoundError as error:
        path = settings.temporary_folder()
        detail = (
            "no folder for temporary files can be written, neither this one nor those of the system"
        )
        raise EnvironmentFault(action="write into", path=path, detail=detail) from error


def user_folder() -> str:
    """The folder of this user's temporary files and locks, made where it is missing.

    Raises `FolderUnsafe` and `EnvironmentFault`.
    """
    path = os.path.join(temporary_folder(), f"aotc-{os.geteuid()}")
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        state = os.lstat(path)
    except OSError as error:
        raise environment_fault("use", path, error) from error
    found = ""
    if not stat.S_ISDIR(state.st_mode):
        found = "a link or a file"
    elif state.st_uid != os.geteuid():
        found = f"owned by user {state.st_uid}"
    elif state.st_mode & 0o077:
        found = f"of mode {stat.S_IMODE(state.st_mode):o}"
    if found:
        raise FolderUnsafe(path=path, found=found)
    return path


def make_owned(kind: str) -> tuple[str, int]:
    """A new folder `kind-…` for this process, and the descriptor that holds its lock.

    Those whose owners are dead are removed first. Raises `FolderUnsafe` and `EnvironmentFault`.
    """
    parent = user_folder()
    try:
        sweep(parent)
        for _ in range(ATTEMPTS):
            path = os.path.join(parent, f"{kind}-{secrets.token_hex(8)}")
            keep_track(path)
            os.mkdir(path, 0o700)
            try:
                descriptor = lock_folder(path)
            except FileNotFoundError:  # another process took it for abandoned
                continue
            if descriptor is not None:
                return path, descriptor
    except OSError as error:
        raise environment_fault("write into", parent, error) from error
    raise EnvironmentFault(action="write into", path=parent, detail="others remove new folders")


@contextlib.contextmanager
def owned(kind: str) -> Iterator[str]:
    """A folder of `make_owned`, removed at the end; where this process is killed, by the next."""
    path, descriptor = make_owned(kind)
    try:
        yield path
    finally:
        remove(path)
        os.close(descriptor)


def remove(path: str) -> None:
    """Delete a directory with all that is in it, as far as that is possible; never fails.

    Where a signal ends it, `remove_own` still knows the directory.
    """
    with contextlib.suppress(OSError):  # which `ignore_errors` lets through where `fstat` fails
        shutil.rmtree(path, ignore_errors=True)
    _own.discard(path)


def keep_track(path: str) -> None:
    """Note a folder that this process is about to make, until `remove` deletes it."""
    _own.add(path)


def remove_own() -> None:
    """Delete what `keep_track` has noted and nobody removed: a signal may come between the
    making of a folder and the block that removes it."""
    for path in list(_own):
        remove(path)


def sweep(parent: str | None = None) -> int:
    """Remove the folders of dead processes; how many there were."""
    parent = parent or user_folder()
    found = [os.path.join(parent, name) for name in sorted(os.listdir(parent))]
    folders = [path for path in found if os.path.isdir(path)]
    for path in folders:
        remove_abandoned(path)
    return sum(not os.path.lexists(path) for path in folders)


def lock_folder(path: str) -> int | None:
    """An open descriptor that holds the directory's lock, or None where another holds it.

    Raises `FileNotFoundError` where the directory went before it was locked.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            if error.errno not in NO_LOCKS:  # without locks leftovers stay, nothing else changes
                raise
        if not os.path.samestat(os.fstat(descriptor), os.stat(path)):
            raise FileNotFoundError(errno.ENOENT, "replaced", path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def remove_abandoned(path: str) -> None:
    with contextlib.suppress(OSError):
        descriptor = lock_folder(path)
        if descriptor is not None:
            try:
                # Asked again: where locks are not supported, nobody may delete.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(path)
            finally:
                os.close(descriptor)
