"""A bundle's shared library: loaded from checked bytes, its functions by ctypes.

The bytes go into a sealed memory file, so that what runs is what was verified, whatever happens to
the bundle's folder. There is no other way in: nothing here takes the path of a file.
"""

from __future__ import annotations

import ctypes
import itertools
import os

from ...errors import DriverFault, LibraryUnsealed
from . import executor_abi as abi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME_DIGITS = 40  # 2⁴⁰ names of 150 characters; PATH_MAX is 4096
_names = itertools.count()


class Library:
    """A loaded library; `close` unloads it unless the worker pool runs its code."""

    __slots__ = ("_handle", "_kept", "copy_strided", "execute", "worker")

    def __init__(self, data: bytes) -> None:
        """Load a sealed copy of the bytes.

        Raises LibraryUnsealed where the system makes no such copy, DriverFault when its loader
        refuses, or the executor's ABI is another.
        """
        self._kept = False
        self._handle = load_bytes(data)
        found = self._function("aotc_abi", [])
        found.restype = ctypes.c_int
        if found() != abi.ABI:
            detail = f"the library has executor ABI {found()}, expected {abi.ABI}"
            raise DriverFault(driver="cpu", detail=detail)
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self.execute = self._function("aotc_execute", [pointer])
        self.worker = self._function("aotc_worker", [pointer, ctypes.c_int32])
        copy = [pointer, pointer, number, number, pointer, pointer]
        self.copy_strided = self._function("aotc_copy_strided", copy)

    def _function(self, name: str, arguments: list[Any]) -> Any:
        try:
            function = getattr(self._handle, name)
        except AttributeError:
            raise DriverFault(driver="cpu", detail=f"the library has no `{name}`") from None
        function.argtypes, function.restype = arguments, None
        return function

    def address_of(self, symbol: str) -> int:
        """The address of a kernel; raises DriverFault if the library has none of that name."""
        address = ctypes.cast(self._function(symbol, []), ctypes.c_void_p).value
        assert address is not None
        return address

    def keep_loaded(self) -> None:
        """Never unload: worker threads are inside this library."""
        self._kept = True

    def close(self) -> None:
        """Unload the library; idempotent. No session of it may be used afterwards."""
        if self._kept or self._handle is None:
            return
        import _ctypes

        handle, self._handle = self._handle, None  # first: a handler may raise after the call
        _ctypes.dlclose(handle._handle)


def load_bytes(data: bytes) -> Any:
    """The library of these bytes, loaded from a sealed copy of them in memory.

    No descriptor stays open. Raises LibraryUnsealed and DriverFault.
    """
    descriptor = _memory_file(data)
    try:
        path = _fresh_name(descriptor)
        _check_is_ours(path, descriptor, len(data))
        return ctypes.CDLL(path)
    except OSError as error:
        raise DriverFault(driver="cpu", detail=str(error)) from error
    finally:
        os.close(descriptor)


def _fresh_name(descriptor: int) -> str:
    """A path of the descriptor that the loader has not seen.

    The loader takes a path that it has seen for the library that it loaded by it, also after the
    descriptor's number was given to another file. So the number of the load is in the path, each
    binary digit as `./` or `.//`; and the loader is asked, since others load libraries too.
    """
    while True:
        digits = f"{next(_names):0{NAME_DIGITS}b}"
        steps = "".join(".//" if digit == "1" else "./" for digit in digits)
        path = f"/proc/self/{steps}fd/{descriptor}"
        if not _is_loaded(path):
            return path


def _is_loaded(path: str) -> bool:
    """Whether the loader knows a library by this path."""
    import _ctypes

    try:
        handle = _ctypes.dlopen(path, os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return False
    _ctypes.dlclose(handle)
    return True


def _check_is_ours(path: str, descriptor: int, nbytes: int) -> None:
    """Raise LibraryUnsealed unless the path leads to the descriptor's file: without /proc it leads
    nowhere, and in a folder that only bears that name to some file of a disk."""
    try:
        is_ours = os.path.samestat(os.stat(path), os.fstat(descriptor))
        found = "a `/proc` that is no procfs of this process"
    except OSError as error:
        is_ours, found = False, f"no `/proc/self/fd` ({(error.strerror or str(error)).lower()})"
    if not is_ours:
        expected, advice = "the system's procfs at `/proc`", "mount `proc` at `/proc`"
        raise LibraryUnsealed(nbytes=nbytes, found=found, expected=expected, advice=advice)


def _memory_file(data: bytes) -> int:
    """A descriptor of a memory file with these bytes, which nobody can change any more."""
    import fcntl

    if not hasattr(os, "memfd_create"):
        raise _unsealed(data, None)
    try:
        descriptor = os.memfd_create("aotc", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise _unsealed(data, error) from error
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except OSError as error:
        os.close(descriptor)
        raise _unsealed(data, error) from error
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _unsealed(data: bytes, error: OSError | None) -> LibraryUnsealed:
    """The error of a system that makes no sealed file in memory; None: it has no call for it."""
    import errno

    number = errno.ENOSYS if error is None else error.errno
    expected = f"a sealed memory file of {len(data)} bytes"
    if number == errno.ENOSYS:
        found, expected = "no `memfd_create`", "Linux 3.17 or later, and a Python built for it"
        advice = "run on such a system, or allow the call in the sandbox"
    elif number == errno.EFBIG:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        found, expected = f"a file size limit of {limit} bytes", f"at least {len(data)}"
        advice = "raise the limit: `ulimit -f unlimited`"
    elif number in (errno.EMFILE, errno.ENFILE):
        found = "no free file descriptor"
        advice = "close files, or raise the limit: `ulimit -n`"
    else:
        reason = str(error.strerror or error) if error is not None else ""
        found, advice = reason.lower(), "free memory, or allow memory files in the sandbox"
    return LibraryUnsealed(nbytes=len(data), found=found, expected=expected, advice=advice)
