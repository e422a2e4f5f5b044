"""`pack`: write a bundle directory; the layout and the grammar are in `runtime/FORMAT.md`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass

from aotc.aot.pack.contents import BackendContents, BundleContents, TargetContents, TensorData
from aotc.aot.pack.staging import Staging, check_free
from aotc.aot.pack.tensors import golden_tensors, tensor_file
from aotc.aot.version import VERSION
from aotc.runtime import drivers
from aotc.runtime.bundle.manifest import (
    CHUNK_BYTES,
    EXTRAS_NAME,
    GOLDEN_NAME,
    MANIFEST_NAME,
    WEIGHTS_NAME,
    Extras,
    FileEntry,
    Manifest,
    Target,
    WeightsEntry,
    digest_of,
)
from aotc.runtime.bundle.native_plan import BackendEntry
from aotc.runtime.bundle.plan import PLAN_ABI, files_of
from aotc.runtime.bundle.plan_rules import check_steps


@dataclass(frozen=True, slots=True)
class PackReport:
    """Where the bundle is, its digest (hex SHA-256), and each file's name and size in bytes."""

    path: str
    digest: str
    files: tuple[tuple[str, int], ...]

    @property
    def nbytes(self) -> int:
        """Size of all files in bytes."""
        return sum(nbytes for _, nbytes in self.files)


def pack(contents: BundleContents, out: str | os.PathLike[str], force: bool = False) -> PackReport:
    """Write `contents` as a bundle at `out`; the manifest last, then one rename.

    The same contents give the same digest and the same bytes in every directory. On any failure
    what stood at `out` is untouched. Raises `OutputExists`, `OutputForeign`, `BundleMalformed`
    (the contents break the schema) and `EnvironmentFault` (a full disk, permissions).
    """
    path = os.fspath(out)
    check_free(path, force)
    for target in contents.targets:
        _check(contents, target)
    with Staging(path) as staging:
        writer = _Writer(staging)
        targets = tuple(writer.target(target) for target in contents.targets)
        weights = writer.weights(contents)
        backends = tuple(map(writer.backend, contents.backends))
        for name, data in contents.refit.items():
            writer.entries.append(writer.write(name, [data]))
        counted = tuple(writer.entries)
        extras = writer.extras(contents)
        manifest = Manifest.made(
            targets=targets,
            entries=contents.entries,
            weights=weights,
            files=counted,
            extras=extras,
            torch=contents.torch,
            backends=backends,
            states=contents.states,
            session_dims=contents.session_dims,
            session_sizes=contents.session_sizes,
            ranks=contents.ranks,
            producer=f"aotc {VERSION}",
        ).to_bytes()
        writer.write(MANIFEST_NAME, [manifest])
        staging.publish(force)
        return PackReport(staging.out, digest_of(manifest), tuple(writer.sizes))


def _check(contents: BundleContents, target: TargetContents) -> None:
    """The plan fits the rest of the bundle; raises `BundleMalformed`."""
    counts = [(len(entry.inputs), len(entry.outputs)) for entry in contents.entries]
    has_images = drivers.load(target.device).HAS_DEVICE_MEMORY
    image_bytes = len(target.library) if has_images else None
    target.plan.validate(counts, contents.weights.keys(), target.name, image_bytes)
    sizes = {name: tensor.nbytes for name, tensor in contents.weights.items()}
    known = [each.entry.name for each in contents.backends]
    for lows, number in target.plan.lows:
        signature = contents.entries[number].signature
        shaped, plan = signature.at(signature.values(lows)), target.plan.at(lows, number)
        check_steps(plan, contents.torch, known, shaped, sizes, target.name)


class _Writer:
    """Writes files into a staging directory and collects their entries."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self.entries: list[FileEntry] = []
        self.sizes: list[tuple[str, int]] = []

    def write(self, name: str, parts: Iterable[bytes | memoryview]) -> FileEntry:
        """Write one file and digest it on the way."""
        digest = hashlib.sha256()
        nbytes = 0

        def digested() -> Iterable[bytes | memoryview]:
            nonlocal nbytes
            for part in parts:
                digest.update(part)
                nbytes += memoryview(part).nbytes
                yield part

        self._staging.write(name, digested())
        self.sizes.append((name, nbytes))
        return FileEntry(name, nbytes, digest.digest())

    def target(self, target: TargetContents) -> Target:
        """Plan and library of one target; returns its row of the manifest."""
        folder = f"targets/{target.name}"
        plan = f"{folder}/plan.msgpack"
        library = f"{folder}/{drivers.load(target.device).LIBRARY_NAME}"
        for name, data in zip((plan, library), files_of(target.plan, target.library), strict=True):
            self.entries.append(self.write(name, [data]))
        needs = tuple(sorted(target.needs))
        return Target(target.name, target.device, PLAN_ABI, needs, plan, library)

    def backend(self, backend: BackendContents) -> BackendEntry:
        """A native back end, with its library where the bundle keeps it; its row."""
        entry = backend.entry
        if backend.library is None:
            return entry
        name = f"backends/lib{entry.name}.so"
        self.entries.append(self.write(name, [backend.library]))
        return BackendEntry(entry.name, entry.version, entry.sha256, name)

    def weights(self, contents: BundleContents) -> WeightsEntry | None:
        """The weights file with its chunk digests, or None where there are no weights."""
        if not contents.weights:
            return None
        chunks = _Chunks()

        def digested() -> Iterable[bytes | memoryview]:
            for part in tensor_file(contents.weights):
                chunks.update(part)
                yield part

        if contents.has_weights:
            self._staging.write(WEIGHTS_NAME, digested())
            self.sizes.append((WEIGHTS_NAME, chunks.nbytes))
        else:
            for _ in digested():
                pass
        digests = chunks.finish()
        return WeightsEntry(WEIGHTS_NAME, chunks.nbytes, CHUNK_BYTES, digests)

    def extras(self, contents: BundleContents) -> FileEntry | None:
        """What may be deleted: golden numbers, sources, provenance, debug texts; the entry of
        their list, or None where there are none."""
        entries = []
        if contents.golden:
            tensors: dict[str, TensorData] = {}
            for entry in contents.entries:
                tensors |= golden_tensors(contents.golden[entry.name], entry)
            entries.append(self.write(GOLDEN_NAME, tensor_file(tensors)))
        for name in sorted(contents.extras):
            entries.append(self.write(name, [contents.extras[name]]))
        if not entries:
            return None
        return self.write(EXTRAS_NAME, [Extras(tuple(entries)).to_bytes()])


class _Chunks:
    """SHA-256 of each CHUNK_BYTES of a stream."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._digest = hashlib.sha256()
        self._digests: list[bytes] = []

    def update(self, part: bytes | memoryview) -> None:
        """Take the next bytes of the stream."""
        view = memoryview(part)
        while view:
            room = CHUNK_BYTES - self.nbytes % CHUNK_BYTES
            self._digest.update(view[:room])
            self.nbytes += len(view[:room])
            view = view[room:]
            if self.nbytes % CHUNK_BYTES == 0:
                self._close()

    def finish(self) -> tuple[bytes, ...]:
        """All digests, the last one of what is left."""
        if self.nbytes % CHUNK_BYTES:
            self._close()
        return tuple(self._digests)

    def _close(self) -> None:
        self._digests.append(self._digest.digest())
        self._digest = hashlib.sha256()
