"""The directory that a pull fills: it outlives a pull that was cut off, for the next one to go on.

    .NAME.partial-XXXXXXXXXXXXXXXX    beside its place, with the beginning of the image's digest

What lies in it is not trusted: every byte is digested before it counts. A directory of another
user, or that another user may write, is left alone and a fresh one is made.
"""

# The order of the system calls is this file's subject, so they are written as such:
# ruff: noqa: PTH102, PTH103, PTH118, PTH208
from __future__ import annotations

import contextlib
import os
from types import TracebackType

from aotc.aot.distribution.errors import RegistryFailed
from aotc.aot.folders import lock_folder, remove_abandoned
from aotc.aot.pack.staging import FILE_MODE, FOLDER_MODE, Staging
from aotc.runtime.errors import environment_fault

OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Partial(Staging):
    """A staging directory for one image; a context manager that removes it, but where the transfer
    failed."""

    def __init__(self, out: str, digest: str) -> None:
        """digest: of the image's manifest, `sha256:` and hex."""
        self._word = f"partial-{digest[7:23]}"
        super().__init__(out)

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        is_cut_off = kind is not None and issubclass(kind, (RegistryFailed, KeyboardInterrupt))
        if is_cut_off and self._word in self.path:
            os.close(self._lock)
        else:
            super().__exit__(kind, value, trace)

    def open(self, name: str) -> int:
        """A descriptor of the file `name` to read and write, made with its folders if it is new."""
        place = os.path.join(self.path, name)
        try:
            os.makedirs(os.path.split(place)[0], FOLDER_MODE, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # one of an earlier pull was made 0444
                left = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    os.fchmod(left, 0o644)
                finally:
                    os.close(left)
            descriptor = os.open(place, OPEN_FLAGS, 0o644)
        except OSError as error:
            raise environment_fault("write", os.path.join(self.out, name), error) from error
        for depth in range(1, name.count("/") + 1):
            self._folders.add("/".join(name.split("/")[:depth]))
        return descriptor

    def finish(self, name: str, descriptor: int) -> None:
        """Make a file that is whole durable, and readable only."""
        try:
            os.fchmod(descriptor, FILE_MODE)
            os.fsync(descriptor)
        except OSError as error:
            raise environment_fault("write", os.path.join(self.out, name), error) from error

    def _make(self) -> tuple[str, int]:
        path = os.path.join(self._parent, f".{self._name}.{self._word}")
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, FOLDER_MODE)
            locked = lock_folder(path)
            if locked is not None:
                return path, locked
        status = os.lstat(path)
        if status.st_uid == os.geteuid() and not status.st_mode & 0o022:
            with contextlib.suppress(OSError):
                locked = lock_folder(path)
                if locked is not None:
                    return path, locked
        return super()._make()

    def _recover(self) -> None:
        super()._recover()
        for entry in os.listdir(self._parent):
            is_partial = entry.startswith(f".{self._name}.partial-")
            if is_partial and not entry.endswith(self._word):
                remove_abandoned(os.path.join(self._parent, entry))
