"""A bundle's shared library: loaded from checked bytes, its functions by ctypes.

The bytes go into a sealed memory file, so that what runs is what was verified, whatever happens to
the bundle's folder later.
"""

from __future__ import annotations

import ctypes
import os

from ..errors import DriverFault
from . import executor_abi as abi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_loads: dict[int, int] = {}  # descriptor → libraries that were loaded through it


class Library:
    """A loaded library; `close` unloads it unless the worker pool runs its code."""

    __slots__ = ("_descriptor", "_handle", "_kept", "copy_strided", "execute", "worker")

    def __init__(self, data: bytes, path: str | None = None) -> None:
        """Load the bytes; where there is no /proc or no memory file, the file at `path`.

        Raises DriverFault when the system's loader refuses, or the executor's ABI is another.
        """
        self._kept = False
        self._descriptor, self._handle = load_bytes(data, path)
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

        _ctypes.dlclose(self._handle._handle)
        self._handle = None
        if self._descriptor >= 0:
            os.close(self._descriptor)


def load_bytes(data: bytes, path: str | None) -> tuple[int, Any]:
    """(descriptor that must stay open, or −1; the loaded library)."""
    try:
        descriptor = _memory_file(data)
    except (OSError, AttributeError) as error:
        return -1, _open(path, str(error))
    # The loader knows a library by the path it was opened with. Descriptors are used again, so the
    # path gets one more `./` for each library that was loaded through the same number.
    count = _loads.get(descriptor, 0)
    _loads[descriptor] = count + 1
    try:
        return descriptor, ctypes.CDLL(f"/proc/self/fd/{'./' * count}{descriptor}")
    except OSError as error:
        os.close(descriptor)
        return -1, _open(path, str(error))


def _memory_file(data: bytes) -> int:
    import fcntl

    descriptor = os.memfd_create("aotc", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _open(path: str | None, reason: str) -> Any:
    if path is None:
        raise DriverFault(driver="cpu", detail=reason)
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise DriverFault(driver="cpu", detail=f"{error} (after: {reason})") from error
