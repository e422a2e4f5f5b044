"""What an OCI image of a bundle says: a layer for each file, config and manifest as bytes.

All of it follows from the bundle's files, so that one bundle is one image digest. Media types are
those of the CNCF's model specification (ModelPack).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aotc.runtime.bundle.directory import Directory
from aotc.runtime.bundle.image import ARTIFACT_TYPE, FILE_PATH, MANIFEST_TYPE, TITLE, Descriptor
from aotc.runtime.bundle.manifest import (
    EXTRAS_NAME,
    GOLDEN_NAME,
    MANIFEST_NAME,
    WEIGHTS_NAME,
)
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.errors import BundleFileMissing, environment_fault
from aotc.runtime.trust.trust import SIGNATURE_NAME

CONFIG_TYPE = "application/vnd.cncf.model.config.v1+json"
SETTINGS_TYPE = "application/vnd.cncf.model.weight.config.v1.raw"
WEIGHTS_TYPE = "application/vnd.cncf.model.weight.v1.raw"
CODE_TYPE = "application/vnd.cncf.model.code.v1.raw"
DATA_TYPE = "application/vnd.cncf.model.dataset.v1.raw"
TYPES = {WEIGHTS_NAME: WEIGHTS_TYPE, GOLDEN_NAME: DATA_TYPE}
CODE_FOLDERS = ("targets/", "backends/", "sources/", "debug/")
BUNDLE_DIGEST = "aotc.bundle.digest"
READ_STEP_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ImageParts:
    """An image of an open bundle. files: name in the bundle and layer, in the order of the layers.

    config, manifest: their bytes; digest: of the manifest, `sha256:` and hex; bundle: the bundle's
    digest in hex.
    """

    files: tuple[tuple[str, Descriptor], ...]
    config: Descriptor
    config_bytes: bytes
    manifest_bytes: bytes
    digest: str
    bundle: str

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(layer.nbytes for _, layer in self.files)


def image_of(opened: Bundle) -> ImageParts:
    """The image of an open bundle that was found sound; reads its weights to digest them.

    Raises `BundleError`s and `EnvironmentFault`.
    """
    files = tuple(
        (name, Descriptor(digest, nbytes, _type(name), {FILE_PATH: name, TITLE: name}))
        for name, digest, nbytes in _digested(opened)
    )
    config_bytes = json_bytes(
        {
            "descriptor": {},
            "config": {"format": "aotc"},
            "modelfs": {"type": "layers", "diffIds": [layer.digest for _, layer in files]},
        }
    )
    config = Descriptor(digest_of(config_bytes), len(config_bytes), CONFIG_TYPE, {})
    manifest_bytes = json_bytes(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": ARTIFACT_TYPE,
            "config": row(config),
            "layers": [row(layer) for _, layer in files],
            "annotations": {BUNDLE_DIGEST: f"sha256:{opened.digest}"},
        }
    )
    digest = digest_of(manifest_bytes)
    return ImageParts(files, config, config_bytes, manifest_bytes, digest, opened.digest)


def digest_of(data: bytes) -> str:
    """The digest of bytes as OCI writes it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def row(descriptor: Descriptor) -> dict[str, Any]:
    """A descriptor as JSON has it."""
    found: dict[str, Any] = {
        "mediaType": descriptor.media_type,
        "digest": descriptor.digest,
        "size": descriptor.nbytes,
    }
    return found | ({"annotations": descriptor.annotations} if descriptor.annotations else {})


def read_parts(descriptor: int, begin: int, end: int, path: str) -> Iterator[bytes]:
    """Bytes `begin` to `end` of an open file in steps; raises `EnvironmentFault`."""
    while begin < end:
        try:
            data = os.pread(descriptor, min(READ_STEP_BYTES, end - begin), begin)
        except OSError as error:
            raise environment_fault("read", path, error) from error
        if not data:
            return  # it shrank: the digest of what was read does not fit
        begin += len(data)
        yield data


def _digested(opened: Bundle) -> Iterator[tuple[str, str, int]]:
    """Name, digest and size of every file, the manifest first."""
    manifest, directory = opened.manifest, opened.directory
    yield _whole(directory, MANIFEST_NAME)
    entries = list(manifest.files)
    for name in (EXTRAS_NAME, SIGNATURE_NAME):
        try:
            yield _whole(directory, name)
        except BundleFileMissing:
            continue
        if name == EXTRAS_NAME:
            entries += [each for each in opened.extras().files if _is_there(directory, each)]
    if manifest.weights_file is not None:
        yield _whole(directory, manifest.weights_file.name)
    for entry in sorted(entries, key=lambda entry: entry.name):
        yield entry.name, f"sha256:{entry.sha256.hex()}", entry.nbytes


def _whole(directory: Directory, name: str) -> tuple[str, str, int]:
    descriptor, nbytes = directory.open(name)
    digest = hashlib.sha256()
    try:
        for data in read_parts(descriptor, 0, nbytes, directory.where(name)):
            digest.update(data)
    finally:
        os.close(descriptor)
    return name, f"sha256:{digest.hexdigest()}", nbytes


def _is_there(directory: Directory, entry: Any) -> bool:
    """Whether an extra, which may be deleted, is there."""
    try:
        os.close(directory.open_sized(entry.name, entry.nbytes))
    except BundleFileMissing:
        return False
    return True


def _type(name: str) -> str:
    if name.startswith(CODE_FOLDERS):
        return CODE_TYPE
    return TYPES.get(name, SETTINGS_TYPE)


def json_bytes(tree: dict[str, Any]) -> bytes:
    """The text that stands in a layout: no spaces, keys in the order of the tree."""
    return json.dumps(tree, separators=(",", ":")).encode()
