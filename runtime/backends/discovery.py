"""Where native back ends are found: AOTC_BACKEND_PATH, then installed packages; never elsewhere.

The current directory is not looked at, and neither is the path of the system's loader. A package
offers its back ends by the entry point group `aotc.backends`: the name is the back end's, and what
it points to is the library's path, or a function that returns it.

A bundle's back ends are its own copies, or libraries of this machine with their digest. Either way
what is loaded are the bytes that were digested. A library of another digest than the one that the
bundle was built with is refused, whatever its version says.
"""

from __future__ import annotations

import hashlib
import os

from ..arrays.dlpack import HOST
from ..errors import environment_fault
from ..record import Record
from ..settings import read
from .errors import BackendName, BackendNotFound, BackendUnloadable, NativeAbsent, NativeDiffers
from .library import open_bytes
from .steps import BoundNative, Natives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ..bundle.native_plan import BackendEntry, NativeLaunch
    from .library import NativeFunction, NativeLibrary

    Read = Callable[[str], bytes]  # a file of the bundle, its digest checked

GROUP = "aotc.backends"
LIBRARY_LIMIT_BYTES = 1 << 32


class Found(Record):
    """A library where back ends are looked for; origin: "path" or "entry point".

    problem: why an entry point gave no path; empty where it did.
    """

    name: str
    path: str
    origin: str
    problem: str = ""


def folders() -> tuple[str, ...]:
    """The folders of AOTC_BACKEND_PATH, in order; raises `SettingInvalid` for a relative one."""
    found: tuple[str, ...] = read("AOTC_BACKEND_PATH").value
    return found


def find(name: str) -> Found:
    """The first library of that name.

    Raises `BackendNotFound` with the places looked at, and `BackendUnloadable` for an entry point
    that cannot be imported.
    """
    for folder in folders():
        path = os.path.join(folder, f"lib{name}.so")
        if os.path.isfile(path):
            return Found(name, path, "path")
    for found in _offered(name):
        if found.problem:
            raise BackendUnloadable(path=found.path, detail=found.problem)
        return found
    raise BackendNotFound(name=name, places=places())


def places() -> str:
    """Where back ends are looked for, for messages."""
    return ", ".join([*folders(), f"entry points `{GROUP}`"])


def find_all() -> list[Found]:
    """Every library, in the order of the search: of two of one name the first wins."""
    found = []
    for folder in folders():
        files = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        for file in files:
            if file.startswith("lib") and file.endswith(".so"):
                found.append(Found(file[3:-3], os.path.join(folder, file), "path"))
    return found + list(_offered())


def _offered(name: str | None = None) -> Iterator[Found]:
    """What installed packages offer; reads their metadata, and imports those of the name."""
    from importlib.metadata import entry_points

    entries = entry_points(group=GROUP)
    for entry in entries if name is None else entries.select(name=name):
        try:
            value = entry.load()
            path = os.path.abspath(os.fspath(value() if callable(value) else value))
        except Exception as error:  # it is the package's own code
            problem = f"the entry point raised {type(error).__name__}: {error}"
            yield Found(entry.name, entry.value, "entry point", problem)
        else:
            yield Found(entry.name, path, "entry point")


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
