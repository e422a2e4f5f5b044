"""`push`: a bundle as an image to a registry: blobs that it lacks, then the manifest.

The manifest comes last, so that an image is there whole or not at all. Large blobs go in parts; one
that is cut off goes on behind what the registry says that it has.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPResponse

from aotc.aot.distribution.errors import ReferenceInvalid, RegistryFailed, RegistryMissing
from aotc.aot.distribution.image import ImageParts, read_parts
from aotc.aot.distribution.registry import ATTEMPTS, Interrupted, Registry, blob_path
from aotc.aot.distribution.transfers import JOBS, Transfers
from aotc.aot.stages import Progress
from aotc.runtime.bundle.directory import Directory
from aotc.runtime.bundle.image import MANIFEST_TYPE, Descriptor

PART_BYTES = 64 << 20
BYTES = {"Content-Type": "application/octet-stream"}

Parts = Callable[[int, int], Iterator[bytes]]  # the bytes of a blob from one place to another


@dataclass(frozen=True, slots=True)
class PushReport:
    """The image's reference by its digest, the bundle's digest, the bytes of all files and those
    that were sent: the registry had the others."""

    reference: str
    digest: str
    bundle: str
    nbytes: int
    sent_bytes: int


def push(
    directory: Directory,
    image: ImageParts,
    registry: Registry,
    jobs: int = JOBS,
    progress: Progress | None = None,
) -> PushReport:
    """Send the image of an open bundle; raises `EnvironmentFault`s, and `ReferenceInvalid` where
    the reference pins another digest."""
    asked = registry.reference
    if asked.digest not in (None, image.digest):
        raise ReferenceInvalid(found=str(asked), expected=f"@{image.digest}, or a tag")
    transfers = Transfers(image.nbytes, progress)
    sender = _Sender(registry, transfers)
    blobs = {layer.digest: (name, layer) for name, layer in image.files}

    def task(name: str, layer: Descriptor) -> Callable[[], None]:
        return lambda: sender.file(directory, name, layer)

    tasks = [task(*each) for each in sorted(blobs.values(), key=lambda each: -each[1].nbytes)]
    tasks.append(lambda: sender.send(image.config, _of_bytes(image.config_bytes)))
    transfers.run(tasks, jobs)
    sender.manifest(image)
    name = f"{asked.host}/{asked.repository}@{image.digest}"
    return PushReport(name, image.digest, image.bundle, image.nbytes, transfers.nbytes)


class _Sender:
    def __init__(self, registry: Registry, transfers: Transfers) -> None:
        self._registry, self._transfers = registry, transfers

    def file(self, directory: Directory, name: str, layer: Descriptor) -> None:
        """A file of the bundle, unless the registry has it."""
        descriptor = directory.open_sized(name, layer.nbytes)
        try:
            where = directory.where(name)
            self.send(layer, lambda begin, end: read_parts(descriptor, begin, end, where))
        finally:
            os.close(descriptor)

    def send(self, blob: Descriptor, parts: Parts) -> None:
        """A blob, unless the registry has it; from its beginning again where an upload is lost."""
        url = self._registry.url(blob_path(blob.digest))
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if not self._has(url):
                    self._upload(blob, parts)
                return
            except Interrupted as reason:
                self._registry.pause(attempt, reason, "PUT", url)
            except RegistryMissing:  # the upload, not the repository: that is made by a push
                lost = Interrupted("the registry lost the upload")
                self._registry.pause(attempt, lost, "PUT", url)

    def manifest(self, image: ImageParts) -> None:
        """The manifest, by the reference's tag or digest."""
        url = self._registry.url(f"manifests/{self._registry.reference.version}")
        headers = {"Content-Type": MANIFEST_TYPE, "Content-Length": str(len(image.manifest_bytes))}

        def action() -> bytes:
            data = image.manifest_bytes
            response = self._registry.call("PUT", url, headers, lambda: [data], accepts=(201,))
            found = response.getheader("Docker-Content-Digest") or image.digest
            self._registry.body(response, 1 << 16)
            if found != image.digest:
                detail = f"it stored {found[:80]!r}, expected {image.digest}"
                raise RegistryFailed(method="PUT", url=url, detail=detail)
            return b""

        self._registry.retried("PUT", url, action)

    def _has(self, url: str) -> bool:
        response = self._registry.call("HEAD", url, accepts=(200, 404))
        response.read()
        return response.status == 200

    def _upload(self, blob: Descriptor, parts: Parts) -> None:
        registry = self._registry
        empty = {"Content-Length": "0"}
        response = registry.call("POST", registry.url("blobs/uploads/"), empty, accepts=(202,))
        location = self._location(response, registry.url("blobs/uploads/"))
        place = 0
        while blob.nbytes - place > PART_BYTES:
            location, place = self._part(location, place, place + PART_BYTES, parts)
        count = blob.nbytes - place
        headers = {**BYTES, "Content-Length": str(count)}
        url = registry.join("PUT", location, location, digest=blob.digest)
        body = self._body(parts, place, blob.nbytes)
        response = registry.call("PUT", url, headers, body, accepts=(201,))
        registry.body(response, 1 << 16)

    def _part(self, location: str, begin: int, end: int, parts: Parts) -> tuple[str, int]:
        """Send a part; where the upload goes on and how many bytes the registry has."""
        headers = {
            **BYTES,
            "Content-Length": str(end - begin),
            "Content-Range": f"{begin}-{end - 1}",
        }
        url = location
        for attempt in range(1, ATTEMPTS + 1):
            try:
                body = self._body(parts, begin, end)
                response = self._registry.call("PATCH", url, headers, body, accepts=(202, 416))
                if response.status == 202:
                    return self._location(response, url), end
                self._registry.body(response, 1 << 16)
            except Interrupted as reason:
                self._registry.pause(attempt, reason, "PATCH", url)
            response = self._registry.call("GET", url, accepts=(204,))
            place = _received(response.getheader("Range"))
            location = self._location(response, url)
            if place != begin:  # some of the part arrived
                return location, place
        raise Interrupted("the registry does not take the part")

    def _location(self, response: HTTPResponse, url: str) -> str:
        """Where an upload goes on: the `Location` of an answer, whose body is read."""
        self._registry.body(response, 1 << 16)
        return self._registry.join("POST", url, response.getheader("Location"))

    def _body(self, parts: Parts, begin: int, end: int) -> Callable[[], Iterator[bytes]]:
        def body() -> Iterator[bytes]:
            for data in parts(begin, end):
                self._transfers.count(len(data))
                yield data

        return body


def _received(text: str | None) -> int:
    """How many bytes an upload has, from `Range: 0-N`; `0-0` is how registries say none."""
    begin, dash, last = (text or "").partition("-")
    is_number = begin == "0" and dash and last.isascii() and last.isdigit() and len(last) < 16
    return int(last) + 1 if is_number and last != "0" else 0


def _of_bytes(data: bytes) -> Parts:
    return lambda begin, end: iter([data[begin:end]] if end > begin else [])
