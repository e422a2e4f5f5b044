"""Where native back ends are found: AOTC_BACKEND_PATH, then installed packages; never elsewhere.

The current directory is not looked at, and neither is the path of the system's loader. A package
offers its back ends by the entry point group `aotc.backends`: the name is the back end's, and what
it points to is the library's path, or a function that returns it.
"""

from __future__ import annotations

import os

from ..record import Record
from ..settings import read
from .errors import BackendNotFound, BackendUnloadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = "aotc.backends"


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
