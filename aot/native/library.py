"""The native libraries of a build: those that the model's ops were tied to, by name.

An op is tied when the model's module is imported, long before its graph is compiled; the stages
that run its function or keep its library ask here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from aotc.runtime.arrays.dlpack import HOST
from aotc.runtime.backends.discovery import bind, read_entry, read_library
from aotc.runtime.backends.errors import BackendName
from aotc.runtime.backends.library import NativeLibrary, open_bytes
from aotc.runtime.backends.steps import Natives
from aotc.runtime.bundle.native_plan import BackendEntry, NativeLaunch
from aotc.runtime.bundle.opened import Bundle


@dataclass(frozen=True, slots=True)
class TiedLibrary:
    """A library that was loaded from a sealed copy of `data`, and the digest of that."""

    library: NativeLibrary
    data: bytes

    @property
    def entry(self) -> BackendEntry:
        """What a bundle says of it."""
        digest = hashlib.sha256(self.data).digest()
        return BackendEntry(self.library.name, self.library.version, digest)


_tied: dict[str, TiedLibrary] = {}
_origins: dict[str, tuple[NativeLibrary, TiedLibrary]] = {}  # what each was tied from


def tie(library: NativeLibrary) -> TiedLibrary:
    """Have builds of this process use the library for the back end of its name.

    Its file is read once, and what a build runs is loaded from these bytes, as at `runtime.load`:
    so the bytes that are digested, tried and embedded are the same, whatever happens to the file.
    """
    origin, known = _origins.get(library.name, (None, None))
    if known is None or origin is not library:
        data = read_library(library.path)
        sealed = open_bytes(data, hashlib.sha256(data).hexdigest(), library.path)
        if sealed.name != library.name:
            raise BackendName(path=library.path, found=sealed.name, expected=library.name)
        known = TiedLibrary(sealed, data)
        _origins[library.name] = library, known
    _tied[library.name] = known
    return known


def tie_bundled(bundle: Bundle) -> tuple[tuple[BackendEntry, bytes], ...]:
    """Have this process use the libraries that a bundle calls; each with its bytes.

    Raises what `runtime.load` raises for them.
    """
    found = []
    for entry in bundle.manifest.backends:
        data, place = read_entry(entry, bundle.read, bundle.path)
        library = open_bytes(data, entry.sha256.hex(), place)
        _tied[entry.name] = TiedLibrary(library, data)
        found.append((entry, data))
    return tuple(found)


def tie_bytes(name: str, data: bytes) -> None:
    """Have this process use the library that these bytes are, as another one that was tied does."""
    if name not in _tied or _tied[name].data != data:
        library = open_bytes(data, hashlib.sha256(data).hexdigest(), name)
        _tied[name] = TiedLibrary(library, data)


def tied(name: str) -> TiedLibrary:
    """The library of a back end that an op was tied to."""
    return _tied[name]


def bound(natives: Sequence[NativeLaunch], device: tuple[str, int] = HOST) -> Natives:
    """The functions of the tied libraries that native steps of a plan call."""
    libraries = {each.backend: tied(each.backend).library for each in natives}
    return bind(natives, libraries, "the build", device)
