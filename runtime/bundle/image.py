"""A bundle as an OCI image: one manifest, and one uncompressed layer for each file.

    manifest = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "artifactType": ARTIFACT_TYPE,
                "config": descriptor, "layers": [descriptor of a file, …], "annotations": {…}}
    descriptor = {"mediaType": text, "digest": "sha256:…", "size": bytes, "annotations": {…}}

A layer's file name in the bundle is its annotation `org.cncf.model.filepath`, or
`org.opencontainers.image.title`. Media types are those of the CNCF's model specification
(ModelPack); layers of other types are read too, but no archive and nothing compressed.

Source: https://github.com/opencontainers/image-spec, manifest.md and descriptor.md;
https://github.com/modelpack/model-spec, docs/spec.md.
"""

from __future__ import annotations

import re

from ..errors import BundleError
from ..record import Record
from .schema import is_file_name
from .strict_json import NotStrict, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
ARTIFACT_TYPE = "application/vnd.cncf.model.manifest.v1+json"
FILE_PATH, TITLE = "org.cncf.model.filepath", "org.opencontainers.image.title"
LIMIT_BYTES = 4 << 20  # what registries take for a manifest
LAYERS_LIMIT = 1 << 14
SIZE_LIMIT_BYTES = 1 << 44
DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
ARCHIVES = (".tar", "+gzip", "+zstd", ".gzip")


class ImageInvalid(BundleError):
    """An OCI image, or an index of them, does not hold a bundle or breaks its specification."""

    template = "`{path}` holds no bundle: `{field}` is {found}, expected {expected}"
    hint = "`aotc push BUNDLE REFERENCE` writes an image of a bundle"


class Descriptor(Record):
    """What a manifest says of a blob: its digest (`sha256:` and 64 hex digits), size in bytes,
    media type and annotations."""

    digest: str
    nbytes: int
    media_type: str
    annotations: dict[str, str]

    @property
    def blob(self) -> str:
        """Its file in an OCI layout."""
        return "blobs/" + self.digest.replace(":", "/")


class Image(Record):
    """An image's manifest. files: the layer of each file of the bundle, by name."""

    config: Descriptor
    files: dict[str, Descriptor]


def read_image(data: bytes, path: str) -> Image:
    """The image in a manifest's bytes, whose digest was checked; raises `ImageInvalid`."""
    tree = read_object(data, path)
    if tree.get("schemaVersion") != 2 or tree.get("mediaType", MANIFEST_TYPE) != MANIFEST_TYPE:
        raise broken(path, "mediaType", repr(tree.get("mediaType"))[:80], f"`{MANIFEST_TYPE}`")
    layers = tree.get("layers")
    if not isinstance(layers, list) or not 1 <= len(layers) <= LAYERS_LIMIT:
        raise broken(path, "layers", _count(layers), f"1 to {LAYERS_LIMIT} layers")
    files: dict[str, Descriptor] = {}
    for index, layer in enumerate(layers):
        field = f"layers[{index}]"
        found = read_descriptor(layer, path, field)
        name = _file_name(found, path, field)
        if name in files:
            raise broken(path, field, f"the file {name!r} again", "each file once")
        if found.media_type.endswith(ARCHIVES):
            expected = "one uncompressed file a layer"
            raise broken(path, f"{field}.mediaType", repr(found.media_type)[:80], expected)
        files[name] = found
    return Image(read_descriptor(tree.get("config"), path, "config"), files)


def read_object(data: bytes, path: str) -> dict[str, Any]:
    """The JSON object in a manifest's or an index's bytes; raises `ImageInvalid`."""
    if len(data) > LIMIT_BYTES:
        raise broken(path, "size", f"{len(data)} bytes", f"at most {LIMIT_BYTES}")
    try:
        tree = parse(data)
    except NotStrict as reason:
        raise broken(path, "the file", str(reason), "json with each key once") from None
    if not isinstance(tree, dict):
        raise broken(path, "the file", f"a {type(tree).__name__}", "an object")
    return tree


def read_descriptor(tree: Any, path: str, field: str) -> Descriptor:
    """One descriptor; raises `ImageInvalid`."""
    tree = tree if isinstance(tree, dict) else {}
    digest, nbytes, kind = tree.get("digest"), tree.get("size"), tree.get("mediaType")
    if not isinstance(digest, str) or not DIGEST.match(digest):
        raise broken(path, f"{field}.digest", repr(digest)[:80], "`sha256:` and 64 hex digits")
    if type(nbytes) is not int or not 0 <= nbytes <= SIZE_LIMIT_BYTES:
        raise broken(path, f"{field}.size", repr(nbytes)[:40], f"0 to {SIZE_LIMIT_BYTES} bytes")
    if not isinstance(kind, str) or len(kind) > 256:
        raise broken(path, f"{field}.mediaType", repr(kind)[:80], "text of at most 256 letters")
    notes = tree.get("annotations") or {}
    if not isinstance(notes, dict) or not all(isinstance(each, str) for each in notes.values()):
        raise broken(path, f"{field}.annotations", repr(notes)[:80], "text by text")
    return Descriptor(digest, nbytes, kind, notes)


def _file_name(layer: Descriptor, path: str, field: str) -> str:
    names = {layer.annotations[key] for key in (FILE_PATH, TITLE) if key in layer.annotations}
    if len(names) != 1 or not is_file_name(*names):
        found = ", ".join(map(repr, sorted(names)))[:80] or "missing"
        raise broken(path, f"{field}.annotations", found, f"one file name as `{FILE_PATH}`")
    return names.pop()


def _count(layers: Any) -> str:
    return f"{len(layers)} layers" if isinstance(layers, list) else repr(layers)[:40]


def broken(path: str, field: str, found: str, expected: str) -> ImageInvalid:
    """The error for a field of an image or an index at `path`."""
    return ImageInvalid(path=path, field=field, found=found, expected=expected)
