"""Rows of the manifest: files, targets and the weights."""

from __future__ import annotations

from ..record import Record


class FileEntry(Record):
    """A file of the bundle: name relative to it, size in bytes, SHA-256 (32 bytes)."""

    __slots__ = ("name", "nbytes", "sha256")
    name: str
    nbytes: int
    sha256: bytes

    def __init__(self, name: str, nbytes: int, sha256: bytes) -> None:
        self._set(name=name, nbytes=nbytes, sha256=sha256)


class Target(Record):
    """Code for one kind of machine: device family, instruction sets needed, plan and library."""

    __slots__ = ("abi", "device", "library", "name", "needs", "plan")
    name: str
    device: str
    abi: int
    needs: tuple[str, ...]
    plan: str
    library: str

    def __init__(
        self, name: str, device: str, abi: int, needs: tuple[str, ...], plan: str, library: str
    ) -> None:
        self._set(name=name, device=device, abi=abi, needs=tuple(needs), plan=plan, library=library)


class WeightsEntry(Record):
    """The weights file: name, size, and the SHA-256 of each chunk of `chunk_bytes`."""

    __slots__ = ("chunk_bytes", "chunks", "name", "nbytes")
    name: str
    nbytes: int
    chunk_bytes: int
    chunks: tuple[bytes, ...]

    def __init__(self, name: str, nbytes: int, chunk_bytes: int, chunks: tuple[bytes, ...]) -> None:
        self._set(name=name, nbytes=nbytes, chunk_bytes=chunk_bytes, chunks=tuple(chunks))
