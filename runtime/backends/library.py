"""A native back end that is loaded: its table, its state on each device, its lock.

A library is host code: to load it is to run it. Where its bytes were digested, it is loaded from a
sealed copy of them in memory; else by its absolute path, never by a name that the system's loader
would search for.
"""

from __future__ import annotations

import _thread
import ctypes
import os

from ..drivers.cpu.executor_abi import CONTEXT_BYTES, MESSAGE_BYTES
from . import abi
from .errors import (
    BackendAbi,
    BackendClosed,
    BackendMalformed,
    BackendName,
    BackendRefusal,
    BackendSymbolMissing,
    BackendUnloadable,
    FunctionUnknown,
)
from .signature import Reader, Signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


class NativeFunction:
    """A function of a loaded back end: its signature and its plain addresses.

    address: of the `aotc_kernel`; workspace_address: of its `aotc_workspace`, 0 without one.
    """

    __slots__ = ("address", "library", "name", "signature", "workspace_address")

    def __init__(
        self, library: NativeLibrary, signature: Signature, address: int, workspace_address: int
    ) -> None:
        self.library = library
        self.signature = signature
        self.name = f"{library.name}::{signature.name}"
        self.address = address
        self.workspace_address = workspace_address


class NativeLibrary:
    """The table of one library; used by `Backend`s and programs alike, closed with the process.

    lock: held during calls of functions that are not concurrent. configs: what `initialize` gets,
    None as long as nobody has given any.
    """

    __slots__ = ("_get_function", "_handle", "_lock", "_states", "_table", "configs", "devices",
                 "function_names", "is_closed", "lock", "name", "path",
                 "version")  # fmt: skip

    def __init__(self, handle: Any, path: str) -> None:
        """Read the table; raises the errors of a library that is not a back end of this ABI."""
        self._handle = handle  # keeps the library loaded
        self.path = path
        self._table = table = _table(handle, path)
        reader = Reader(path)
        self.name = reader.name(table.name, "name")
        self.version = (table.version or b"").decode("utf-8", "backslashreplace")
        if not 0 < len(self.version) <= 128:
            raise reader.refuse("version", f"`{self.version}`", "1 to 128 characters")
        self.devices = reader.bits(table.devices, abi.DEVICE_BITS, "devices")
        for field in ("function_names", "get_function"):
            if not getattr(table, field):
                raise reader.refuse(field, "NULL", "an address")
        self._get_function = abi.GET_FUNCTION(table.get_function)
        self.function_names = _names(table.function_names, reader)
        self.configs: dict[str, str] | None = None
        self._states: dict[tuple[str, int], int] = {}
        self._lock, self.lock = _thread.allocate_lock(), _thread.allocate_lock()
        self.is_closed = False

    def function(self, name: str) -> NativeFunction:
        """The function of that name; raises `FunctionUnknown`."""
        address = self._get_function(name.encode()) if name.isidentifier() else 0
        if not address:
            known = ", ".join(self.function_names) or "none"
            raise FunctionUnknown(backend=self.name, found=name, known=known)
        return NativeFunction(self, *Reader(self.path).function(address, name))

    def configure(self, configs: Mapping[str, str]) -> bool:
        """Set the configs; False where the library already works with others."""
        with self._lock:
            if not self._states and self.configs is None:
                self.configs = dict(configs)
            return (self.configs or {}) == dict(configs)

    def state(self, device: str, ordinal: int = 0) -> int:
        """The library's state on a device, made by `initialize` at the first question."""
        found = self._states.get((device, ordinal))
        if found is None:
            with self._lock:
                found = self._states.get((device, ordinal))
                if found is None:
                    found = self._states[device, ordinal] = self._initialize(device, ordinal)
                    _at_exit(self)
        return found

    def _initialize(self, device: str, ordinal: int) -> int:
        if self.is_closed:
            raise BackendClosed(name=self.name)
        if not self._table.initialize:
            return 0
        rows = [(key.encode(), str(value).encode()) for key, value in (self.configs or {}).items()]
        configs = (abi.Config * max(len(rows), 1))(*(abi.Config(*row) for row in rows))
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        context: Any = _context(device, ordinal, 0, message)
        initialize = abi.INITIALIZE(self._table.initialize)
        status = initialize(ctypes.addressof(context), ctypes.addressof(configs), len(rows))
        if status:
            detail = message.value.decode("utf-8", "backslashreplace") or "it gave no message"
            where = f"{device}:{ordinal}"
            raise BackendRefusal(name=self.name, device=where, detail=detail, status=status)
        return context.state or 0

    def close(self) -> None:
        """`finalize` for each device; idempotent. The code stays loaded: others have its addresses.

        No call of it may be running, and none can be made afterwards.
        """
        with self._lock:
            states, self._states, self.is_closed = self._states, {}, True
            if self._table.finalize:
                finalize = abi.FINALIZE(self._table.finalize)
                for (device, ordinal), state in states.items():
                    message = ctypes.create_string_buffer(MESSAGE_BYTES)
                    context = _context(device, ordinal, state, message)
                    finalize(ctypes.addressof(context))


def _context(device: str, ordinal: int, state: int, message: Any) -> abi.Context:
    return abi.Context(
        CONTEXT_BYTES, abi.DEVICE_TYPES[device], ordinal, 1, 0, 1, None, state or None, None, 0,
        ctypes.addressof(message), MESSAGE_BYTES,
    )  # fmt: skip


def _table(handle: Any, path: str) -> Any:
    """The table behind the entry point; raises for another ABI."""
    try:
        entry: Callable[..., Any] = getattr(handle, abi.ENTRY)
    except AttributeError:
        raise BackendSymbolMissing(path=path, symbol=abi.ENTRY) from None
    init: Any = entry
    init.argtypes, init.restype = (ctypes.c_uint32,), ctypes.c_void_p
    address = init(abi.ABI)
    if not address:
        raise BackendAbi(path=path, found="refuses this ABI or failed to start", expected=abi.ABI)
    table: Any = abi.BackendTable.from_address(address)
    if table.abi_version != abi.ABI:
        raise BackendAbi(path=path, found=f"has ABI {table.abi_version}", expected=abi.ABI)
    needed = ctypes.sizeof(abi.BackendTable)
    if table.struct_bytes < needed:
        found, expected = table.struct_bytes, f"at least {needed}"
        raise BackendMalformed(path=path, field="struct_bytes", found=found, expected=expected)
    return table


def _names(address: int, reader: Reader) -> tuple[str, ...]:
    """The texts of a list that ends with NULL."""
    found: list[str] = []
    while True:
        each = ctypes.c_char_p.from_address(address + 8 * len(found)).value
        if each is None:
            break
        if len(found) == abi.FUNCTION_LIMIT:
            raise reader.refuse("function_names", "no end", f"NULL within {abi.FUNCTION_LIMIT}")
        found.append(reader.name(each, f"function_names[{len(found)}]"))
    for name in found:
        if found.count(name) > 1:
            raise reader.refuse("function_names", f"two of `{name}`", "one of each name")
    return tuple(found)


_by_path: dict[str, NativeLibrary] = {}
_by_digest: dict[str, NativeLibrary] = {}
_used: list[NativeLibrary] = []  # those that have a state
_opening = _thread.allocate_lock()


def open_file(path: str, expected: str | None = None) -> NativeLibrary:
    """The library at an absolute path, loaded once; `expected` is the name it is to have."""
    place = os.path.realpath(path)
    with _opening:
        library = _by_path.get(place)
        if library is None or library.is_closed:
            library = _by_path[place] = NativeLibrary(_load(place), place)
    if expected is not None and library.name != expected:
        raise BackendName(path=place, found=library.name, expected=expected)
    return library


def open_bytes(data: bytes, digest: str, path: str) -> NativeLibrary:
    """The library of these bytes, whose sha256 the caller has checked; loaded once.

    What is loaded is a sealed copy in memory, whatever happens to the file. `path` is for messages.
    Raises `LibraryUnsealed`, and the errors of a library that cannot be loaded.
    """
    from ..drivers.cpu.library import load_bytes
    from ..errors import DriverFault, LibraryUnsealed

    with _opening:
        library = _by_digest.get(digest)
        if library is None or library.is_closed:
            try:
                handle = load_bytes(data)
            except LibraryUnsealed:
                raise
            except DriverFault as error:
                raise BackendUnloadable(path=path, detail=error.fields["detail"]) from None
            library = _by_digest[digest] = NativeLibrary(handle, path)
    return library


def _load(path: str) -> Any:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise BackendUnloadable(path=path, detail=str(error)) from None


def _at_exit(library: NativeLibrary) -> None:
    """Have the library finalized when the interpreter ends."""
    if not _used:
        import atexit

        atexit.register(_close_all)
    if library not in _used:
        _used.append(library)


def _close_all() -> None:
    for library in _used:
        library.close()
