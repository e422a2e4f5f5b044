"""`pull`: an image into a directory that appears whole or not at all.

    the image's manifest     against the digest of the reference, if it has one
    manifest.msgpack         against its layer; then the bundle's digest, revocation and signatures
    all other files          their layers against the bundle's manifest, before a byte is fetched
    their bytes              against these digests while they arrive; weights chunk by chunk

So each byte is digested once, and nothing of an image that is not wanted is fetched. A layer that
arrives wrong is fetched again, twice at most. What was cut off goes on where it ended, in this pull
or in the next one.
"""

# The order of the system calls is this file's subject, so they are written as such:
from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass

from aotc.aot.distribution.chunked import ATTEMPTS, ChunkedFile
from aotc.aot.distribution.errors import ImageAltered
from aotc.aot.distribution.image import digest_of, read_parts
from aotc.aot.distribution.partial import Partial
from aotc.aot.distribution.sources import Buffered, Source
from aotc.aot.distribution.transfers import JOBS, Transfers
from aotc.aot.pack.staging import check_free
from aotc.aot.stages import Progress
from aotc.runtime.bundle.image import Descriptor, Image, broken, read_image
from aotc.runtime.bundle.manifest import (
    EXTRAS_NAME,
    LIMITS,
    MANIFEST_NAME,
    FileEntry,
    Manifest,
    WeightsEntry,
)
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.errors import DiskFull, environment_fault
from aotc.runtime.trust.envelope import LIMIT_BYTES as ENVELOPE_LIMIT_BYTES
from aotc.runtime.trust.trust import SIGNATURE_NAME, Policy, check_trust

HEAD_LIMITS = {
    MANIFEST_NAME: LIMITS.file_bytes + 4096,
    EXTRAS_NAME: LIMITS.file_bytes + 4096,
    SIGNATURE_NAME: ENVELOPE_LIMIT_BYTES,
}


@dataclass(frozen=True, slots=True)
class PullReport:
    """Where the bundle is, its digest, the image's digest, the bytes of all files and those that
    were fetched: fewer where an earlier pull was cut off."""

    path: str
    bundle: str
    digest: str
    nbytes: int
    fetched_bytes: int


def pull(
    source: Source,
    out: str | os.PathLike[str],
    asked: Policy,
    digest: str | None = None,
    force: bool = False,
    jobs: int = JOBS,
    progress: Progress | None = None,
) -> PullReport:
    """Write the bundle in an image at `out`; with `force` a bundle there is replaced.

    asked: whose signature it must have and what is revoked. digest: the bundle's, if it is pinned.
    Raises `ImageInvalid`, `ImageAltered`, `DigestMismatch`, `SignatureError`s, the errors of the
    source, `OutputExists`, `OutputForeign` and `EnvironmentFault`s; `out` is then as it was.
    """
    path = os.fspath(out)
    check_free(path, force)
    data = source.manifest()
    if source.digest not in (None, digest_of(data)):
        found = digest_of(data)[7:]
        expected = str(source.digest)[7:]
        raise ImageAltered(path=source.name, where="the manifest", found=found, expected=expected)
    image = read_image(data, source.name)
    total_bytes = sum(layer.nbytes for layer in image.files.values())
    transfers = Transfers(total_bytes, progress)
    with Partial(path, digest_of(data)) as partial:
        fetch = _Fetch(source, partial, transfers)
        try:
            bundle, manifest = _heads(image, fetch, asked, digest)
            _check_room(partial.path, path, total_bytes)
            _fetch_rest(image, manifest, fetch, jobs)
        except OSError as error:
            raise environment_fault("write", path, error) from error
        partial.publish(force)
        return PullReport(partial.out, bundle, digest_of(data), total_bytes, transfers.nbytes)


def _heads(image: Image, fetch: _Fetch, asked: Policy, digest: str | None) -> tuple[str, Manifest]:
    """The files that say what the others are, fetched and checked; the bundle's digest too."""
    for name, limit_bytes in HEAD_LIMITS.items():
        layer = image.files.get(name)
        if layer is None and name == MANIFEST_NAME:
            raise broken(fetch.source.name, "layers", f"without `{name}`", "a bundle's files")
        if layer is not None and layer.nbytes > limit_bytes:
            found, expected = f"{layer.nbytes} bytes", f"at most {limit_bytes}"
            raise broken(fetch.source.name, f"size of `{name}`", found, expected)
    fetch.file(MANIFEST_NAME, image.files[MANIFEST_NAME])
    if SIGNATURE_NAME in image.files:
        fetch.file(SIGNATURE_NAME, image.files[SIGNATURE_NAME])
    with Bundle(fetch.partial.path, digest, fetch.source.name) as opened:
        check_trust(opened.directory, opened.digest, asked)
        extras: tuple[FileEntry, ...] = ()
        if EXTRAS_NAME in image.files:
            fetch.file(EXTRAS_NAME, image.files[EXTRAS_NAME])
            extras = opened.extras().files
    _check_listed(image, opened.manifest, extras, fetch.source.name)
    return opened.digest, opened.manifest


def _check_listed(
    image: Image, manifest: Manifest, extras: tuple[FileEntry, ...], path: str
) -> None:
    """The image has the bundle's files and no others, each as the bundle's manifest says."""
    entries = {entry.name: entry for entry in (*extras, *manifest.files)}
    required = {entry.name for entry in manifest.files}
    file = manifest.weights_file
    weights = {} if file is None else {file.name: file}
    for name in sorted(required | set(weights)):
        if name not in image.files:
            raise broken(path, "layers", f"without `{name}`", "every file that the bundle lists")
    for name, layer in image.files.items():
        entry: FileEntry | WeightsEntry | None = entries.get(name) or weights.get(name)
        if entry is None:
            if name not in HEAD_LIMITS:
                raise broken(path, "layers", f"the file {name!r}", "files that the bundle lists")
            continue
        wanted = f"sha256:{entry.sha256.hex()}" if isinstance(entry, FileEntry) else layer.digest
        if (layer.digest, layer.nbytes) != (wanted, entry.nbytes):
            found = f"{layer.digest} of {layer.nbytes} bytes"
            raise broken(path, f"layer of `{name}`", found, f"{wanted} of {entry.nbytes} bytes")


def _check_room(folder: str, out: str, nbytes: int) -> None:
    """Raise `DiskFull` before the transfer where the files cannot fit."""
    state = os.statvfs(folder)
    free_bytes = state.f_bavail * state.f_frsize
    if free_bytes and nbytes > free_bytes:
        detail = f"{nbytes} bytes are needed and {free_bytes} free"
        raise DiskFull(action="write", path=out, detail=detail)


def _fetch_rest(image: Image, manifest: Manifest, fetch: _Fetch, jobs: int) -> None:
    """All files but the heads, large ones first."""
    weights = manifest.weights_file
    rest = [name for name in image.files if name not in HEAD_LIMITS]
    whole = sorted(rest, key=lambda name: -image.files[name].nbytes)
    tasks: list[Callable[[], None]] = []
    with contextlib.ExitStack() as stack:
        if weights is not None:
            whole.remove(weights.name)
            descriptor = fetch.partial.open(weights.name)
            stack.callback(os.close, descriptor)
            where = f"{fetch.partial.out}/{weights.name}"
            opened = ChunkedFile(descriptor, weights, where, fetch.source, fetch.transfers)
            chunked = stack.enter_context(opened)
            tasks += chunked.tasks(image.files[weights.name], jobs)
        tasks += [lambda name=name: fetch.file(name, image.files[name]) for name in whole]  # type: ignore[misc]
        fetch.transfers.run(tasks, jobs if fetch.source.has_ranges else 1)
        if weights is not None:
            chunked.finish(image.files[weights.name])
            fetch.partial.finish(weights.name, descriptor)


class _Fetch:
    """Layers of one image into files."""

    def __init__(self, source: Source, partial: Partial, transfers: Transfers) -> None:
        self.source, self.partial, self.transfers = source, partial, transfers

    def file(self, name: str, layer: Descriptor) -> None:
        """A layer with one digest; goes on behind what the file has already."""
        descriptor = self.partial.open(name)
        try:
            for _ in range(ATTEMPTS):
                found = self._whole(descriptor, layer)
                if found == layer.digest:
                    return self.partial.finish(name, descriptor)
                os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)
        raise ImageAltered(
            path=self.source.name,
            where=f"the file `{name}`",
            found=found[7:],
            expected=layer.digest[7:],
        )

    def _whole(self, descriptor: int, layer: Descriptor) -> str:
        """Fetch what the file lacks of a layer; its digest."""
        digest = hashlib.sha256()
        place = os.fstat(descriptor).st_size
        if place > layer.nbytes:
            os.ftruncate(descriptor, 0)
            place = 0
        for data in read_parts(descriptor, 0, place, self.partial.path):
            digest.update(data)

        def consume(view: memoryview) -> None:
            nonlocal place
            digest.update(view)
            self.write(descriptor, view, place)
            place += len(view)

        self.source.stream(layer, place, layer.nbytes, Buffered(consume))
        return f"sha256:{digest.hexdigest()}"

    def write(self, descriptor: int, view: memoryview, place: int) -> None:
        """Bytes into a file, and into the count of those transferred."""
        self.transfers.count(len(view))
        try:
            while view:
                count = os.pwrite(descriptor, view, place)
                view, place = view[count:], place + count
        except OSError as error:
            raise environment_fault("write", self.partial.out, error) from error
