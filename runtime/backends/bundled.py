"""The native back ends of a bundle: its own copies, or libraries of this machine with their digest.

Either way what is loaded are the bytes that were digested. A library of another digest than the one
that the bundle was built with is refused, whatever its version says.
"""

from __future__ import annotations

import hashlib
import os

from ..arrays.dlpack import HOST
from ..errors import environment_fault
from .discovery import find, places
from .errors import BackendName, BackendNotFound, NativeAbsent, NativeDiffers
from .library import open_bytes
from .steps import BoundNative, Natives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..bundle.native_plan import BackendEntry, NativeLaunch
    from .library import NativeFunction, NativeLibrary

    Read = Callable[[str], bytes]  # a file of the bundle, its digest checked

LIBRARY_LIMIT_BYTES = 1 << 32


def open_entries(
    entries: Sequence[BackendEntry], read: Read, path: str
) -> dict[str, NativeLibrary]:
    """Name → library of every back end of the bundle at `path`.

    Raises `NativeAbsent`, `NativeDiffers`, and the errors of a library that cannot be loaded.
    """
    return {entry.name: _open(entry, read, path) for entry in entries}


def _open(entry: BackendEntry, read: Read, path: str) -> NativeLibrary:
    data, place = read_entry(entry, read, path)
    library = open_bytes(data, entry.sha256.hex(), place)
    if library.name != entry.name:
        raise BackendName(path=place, found=library.name, expected=entry.name)
    return library


def read_entry(entry: BackendEntry, read: Read, path: str) -> tuple[bytes, str]:
    """The library's bytes, which have the entry's digest, and where they are."""
    if entry.file is None:
        return read_here(entry, path)
    return read(entry.file), f"{path}/{entry.file}"


def read_here(entry: BackendEntry, path: str) -> tuple[bytes, str]:
    """The library of this machine, and where it is; raises unless it is the one asked for."""
    try:
        place = find(entry.name).path
    except BackendNotFound:
        raise NativeAbsent(
            path=path, name=entry.name, version=entry.version, places=places()
        ) from None
    data = read_library(place)
    found = hashlib.sha256(data).digest()
    if found != entry.sha256:
        raise NativeDiffers(
            name=entry.name,
            file=place,
            what="sha256",
            found=found.hex(),
            expected=entry.sha256.hex(),
            path=path,
        )
    return data, place


def read_library(path: str) -> bytes:
    """The bytes of a library file; raises `EnvironmentFault`s."""
    try:
        with open(path, "rb") as file:
            return file.read(LIBRARY_LIMIT_BYTES)
    except OSError as error:
        raise environment_fault("read", os.fspath(path), error) from error


def bind(
    natives: Iterable[NativeLaunch],
    libraries: Mapping[str, NativeLibrary],
    path: str,
    device: tuple[str, int] = HOST,
) -> Natives:
    """The functions that a plan's native steps call, each held against the steps' signatures.

    device: (family, ordinal) where they run.

    Raises `FunctionUnknown` and `NativeDiffers`.
    """
    functions: dict[tuple[str, str], NativeFunction] = {}
    for each in natives:
        function = libraries[each.backend].function(each.function)
        functions[each.backend, each.function] = function
        BoundNative(each, function, device).check(path)
    return Natives(functions)
