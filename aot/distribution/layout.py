"""`write_layout`: an image of a bundle into an OCI image layout on disk, new or one that is there.

Blobs come first, each by one rename, then the manifest, then the index: a reader sees the layout
with the image or without it. A tag that another image had is moved.
"""

# The order of the system calls is this file's subject:
# ruff: noqa: PTH102, PTH103, PTH105, PTH108, PTH118, PTH123
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from typing import Any

from aotc.aot.distribution.errors import BundleUnsound, LayoutForeign
from aotc.aot.distribution.image import ImageParts, json_bytes, read_parts, row
from aotc.aot.pack.staging import fsync_folder
from aotc.runtime.bundle.directory import LAYOUT_PREFIX, Directory
from aotc.runtime.bundle.image import (
    INDEX_TYPE,
    LIMIT_BYTES,
    MANIFEST_TYPE,
    Descriptor,
    read_object,
)
from aotc.runtime.bundle.layout import TAG, split_reference
from aotc.runtime.errors import AotcError, environment_fault

VERSION = {"imageLayoutVersion": "1.0.0"}
BLOBS = "blobs/sha256"
BLOB_MODE = 0o444
STAGED = ".staging"


def write_layout(directory: Directory, image: ImageParts, reference: str) -> str:
    """Write the image of the open bundle at `oci-layout:PATH[:TAG]`; the reference that loads it.

    Raises `LayoutForeign` where something else is at PATH, `BundleUnsound` for a file that changes
    meanwhile, and `EnvironmentFault`.
    """
    path, tag, digest = split_reference(reference)
    if digest is not None and digest != image.digest:
        raise LayoutForeign(path=reference, found=f"the digest of {image.digest}")
    try:
        with _open(path):
            index = _index(path)
            _make_folders(path)
            _clean(path)
            for name, layer in image.files:
                _copy(directory, name, layer, path)
            for blob, data in ((image.config.blob, image.config_bytes), _manifest(image)):
                _write(os.path.join(path, blob), [data], BLOB_MODE)
            fsync_folder(os.path.join(path, BLOBS))
            _write(os.path.join(path, "oci-layout"), [json_bytes(VERSION)], 0o644)
            _write(os.path.join(path, "index.json"), [json_bytes(_with(index, image, tag))], 0o644)
            fsync_folder(path)
    except OSError as error:
        raise environment_fault("write", error.filename or path, error) from error
    return f"{LAYOUT_PREFIX}{path}{f':{tag}' if tag else f'@{image.digest}'}"


@contextlib.contextmanager
def _open(path: str) -> Iterator[None]:
    """The layout's folder, made where there is none, locked against other writers of ours."""
    os.makedirs(path, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make_folders(path: str) -> None:
    """The folders of blobs; raises `LayoutForeign` for a link or a file in the place of one."""
    for name in ("blobs", BLOBS):
        place = os.path.join(path, name)
        with contextlib.suppress(FileExistsError):
            os.mkdir(place)
        if not stat.S_ISDIR(os.lstat(place).st_mode):
            raise LayoutForeign(path=path, found=f"a folder whose `{name}` is not a folder")


def _clean(path: str) -> None:
    """Remove what killed writers left; the folder is locked."""
    for folder in (path, os.path.join(path, BLOBS)):
        for name in os.listdir(folder):  # noqa: PTH208
            if name.endswith(STAGED):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder, name))


def _index(path: str) -> dict[str, Any]:
    """The index that is there, or an empty one; raises `LayoutForeign` for what is not a layout."""
    place = os.path.join(path, "index.json")
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(place, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise LayoutForeign(path=path, found="a folder whose `index.json` is no plain file")
            index = read_object(file.read(LIMIT_BYTES + 1), place)
    except FileNotFoundError:
        names = [name for name in os.listdir(path) if not name.endswith(STAGED)]  # noqa: PTH208
        others = sorted({*names} - {"blobs", "oci-layout"})
        if others:
            raise LayoutForeign(path=path, found=f"a folder with `{others[0]}`") from None
        return {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": []}
    except LayoutForeign:
        raise
    except AotcError as error:
        raise LayoutForeign(path=path, found=error.message) from None
    if not isinstance(index.get("manifests"), list):
        raise LayoutForeign(path=path, found="a folder with another `index.json`")
    return index


def _with(index: dict[str, Any], image: ImageParts, tag: str | None) -> dict[str, Any]:
    """The index with the image last; rows of its tag, or of itself untagged, are left out."""
    notes = {TAG: tag} if tag else {}
    ours = row(Descriptor(image.digest, len(image.manifest_bytes), MANIFEST_TYPE, notes))

    def is_replaced(other: Any) -> bool:
        named = (other.get("annotations") or {}).get(TAG) if isinstance(other, dict) else None
        if named is None:
            return isinstance(other, dict) and other.get("digest") == image.digest
        return bool(named == tag)

    others = [each for each in index["manifests"] if not is_replaced(each)]
    return {**index, "manifests": [*others, ours]}


def _manifest(image: ImageParts) -> tuple[str, bytes]:
    return "blobs/" + image.digest.replace(":", "/"), image.manifest_bytes


def _copy(directory: Directory, name: str, layer: Descriptor, path: str) -> None:
    """A file of the bundle as a blob, digested on the way, unless the blob is there whole."""
    place = os.path.join(path, layer.blob)
    with contextlib.suppress(OSError):
        if os.stat(place).st_size == layer.nbytes and _digest(place) == layer.digest:  # noqa: PTH116
            return
    descriptor, nbytes = directory.open(name)
    digest = hashlib.sha256()

    def parts() -> Iterator[bytes]:
        for data in read_parts(descriptor, 0, nbytes, directory.where(name)):
            digest.update(data)
            yield data
        if f"sha256:{digest.hexdigest()}" != layer.digest:
            detail = "it changed while it was copied"
            raise BundleUnsound(path=directory.path, subject=name, detail=detail)

    try:
        _write(place, parts(), BLOB_MODE)
    finally:
        os.close(descriptor)


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _write(path: str, parts: Iterable[bytes], mode: int) -> None:
    """A file that appears whole, in place of one that is there."""
    staged = f"{path}.{secrets.token_hex(8)}{STAGED}"
    try:
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(descriptor)
        os.replace(staged, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(staged)
        raise
