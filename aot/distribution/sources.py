"""Where `pull` reads an image from: a registry, or a layout on disk; both give bytes in ranges.

Nothing that a source returns is checked; the caller compares digests.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from typing import Protocol, Self

from aotc.aot.distribution.errors import RegistryFailed
from aotc.aot.distribution.registry import Interrupted, Registry, blob_path
from aotc.runtime.bundle.image import LIMIT_BYTES, MANIFEST_TYPE, Descriptor
from aotc.runtime.bundle.layout import Layout
from aotc.runtime.errors import environment_fault

BUFFER_BYTES = 1 << 20
PROGRESS_BYTES = 1 << 20  # an attempt that brought as much is no failed one

Consume = Callable[[memoryview], None]


class Sink(Protocol):
    """Where the bytes of a stream go, in order and each once."""

    def room(self) -> memoryview:
        """Memory for the next bytes, at least one; it is used until `take`."""
        ...

    def take(self, count: int) -> None:
        """So many bytes are at the beginning of that memory."""
        ...


class Buffered:
    """A sink with one buffer, whose filled part is given to a function."""

    def __init__(self, consume: Consume) -> None:
        self._buffer, self._consume = memoryview(bytearray(BUFFER_BYTES)), consume

    def room(self) -> memoryview:
        """See `Sink`."""
        return self._buffer

    def take(self, count: int) -> None:
        """See `Sink`."""
        self._consume(self._buffer[:count])


class Source(Protocol):
    """An image of a registry or a layout, by its reference."""

    name: str
    digest: str | None  # of the manifest, where the reference pins it

    def manifest(self) -> bytes:
        """The image's manifest, of at most `LIMIT_BYTES`."""
        ...

    def stream(self, layer: Descriptor, begin: int, end: int, sink: Sink) -> None:
        """Put the bytes `begin` to `end` of a blob into `sink`.

        What `sink` raises passes through. Raises `EnvironmentFault`s.
        """
        ...

    @property
    def has_ranges(self) -> bool:
        """Whether a part of a blob costs less than the whole."""
        ...


class RegistrySource:
    """An image in a registry."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.name = str(registry.reference)
        self.digest = registry.reference.digest
        self.has_ranges = True

    def manifest(self) -> bytes:
        """See `Source`."""
        url = self.registry.url(f"manifests/{self.registry.reference.version}")
        return self.registry.read("GET", url, LIMIT_BYTES, {"Accept": MANIFEST_TYPE})

    def stream(self, layer: Descriptor, begin: int, end: int, sink: Sink) -> None:
        """See `Source`; continues by a range where the connection was cut off."""
        url = self.registry.url(blob_path(layer.digest))
        failures, place = 0, begin
        while place < end:
            started = place
            try:
                response, skip = self._open(url, layer, place, end)
                self._skip(response, skip)
                while place < end:
                    place += self._take(response, sink, end - place)
                if not response.isclosed():
                    self.registry.disconnect()  # more than was asked for
            except Interrupted as reason:
                failures = 1 if place - started >= PROGRESS_BYTES else failures + 1
                self.registry.pause(failures, reason, "GET", url)
            except BaseException:
                self.registry.disconnect()
                raise

    def _open(self, url: str, layer: Descriptor, begin: int, end: int) -> tuple[HTTPResponse, int]:
        """An answer that has the bytes from `begin` on, and how many come before them."""
        is_part = (begin, end) != (0, layer.nbytes)
        headers = {"Range": f"bytes={begin}-{end - 1}"} if is_part else {}
        response = self.registry.call("GET", url, headers, accepts=(200, 206))
        if response.status == 206:
            found = response.getheader("Content-Range") or ""
            if not found.startswith(f"bytes {begin}-"):
                self.registry.disconnect()
                detail = "it sends another range than it was asked for"
                raise RegistryFailed(method="GET", url=url, detail=detail)
            return response, 0
        if is_part:
            self.has_ranges = False
        return response, begin

    def _skip(self, response: HTTPResponse, count: int) -> None:
        """Read bytes that nobody asked for. Raises `Interrupted` where they end too early."""
        unwanted = Buffered(lambda _: None)
        while count:
            count -= self._take(response, unwanted, count)

    def _take(self, response: HTTPResponse, sink: Sink, left: int) -> int:
        """Put the next of `left` bytes into a sink; how many they were. Raises `Interrupted`, also
        where it takes longer than a request may wait to fill what the sink has room for."""
        room = sink.room()
        self.registry.go_on()
        try:
            count = response.readinto(room[:left])
        except (OSError, HTTPException) as error:
            raise Interrupted(f"cut off ({type(error).__name__})") from None
        if not count:
            raise Interrupted(f"cut off {left} bytes before its end")
        sink.take(count)
        return count


class LayoutSource:
    """An image in a layout on disk."""

    has_ranges = True

    def __init__(self, reference: str) -> None:
        self._layout = Layout(reference)
        self.name = reference
        self.digest: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._layout.__exit__()

    def manifest(self) -> bytes:
        """See `Source`."""
        return self._layout.manifest

    def stream(self, layer: Descriptor, begin: int, end: int, sink: Sink) -> None:
        """See `Source`."""
        where = self._layout.folder.where(layer.blob)
        descriptor = self._layout.folder.open_sized(layer.blob, layer.nbytes)
        try:
            while begin < end:
                count = os.preadv(descriptor, [sink.room()[: end - begin]], begin)
                if not count:
                    return  # it shrank: its digest will not fit
                begin += count
                sink.take(count)
        except OSError as error:
            raise environment_fault("read", where, error) from error
        finally:
            os.close(descriptor)
