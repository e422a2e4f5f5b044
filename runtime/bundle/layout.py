"""A bundle inside an OCI image layout on disk, read where it lies: `oci-layout:PATH[:TAG|@DIGEST]`.

    PATH/oci-layout         {"imageLayoutVersion": "1.0.0"}
    PATH/index.json         descriptors of manifests, with their tags
    PATH/blobs/sha256/HEX   manifests, and the bundle's files: layers are single uncompressed files

The manifest is checked against its digest, the bundle's manifest and every other file that states
its own size against its layer's, and all else against the bundle's manifest, as in a directory.
Weights are mapped from their blob; nothing is copied or unpacked.

Source: https://github.com/opencontainers/image-spec, image-layout.md.
"""

from __future__ import annotations

import hashlib
import os

from ..errors import BundleAltered, BundleFileMissing, BundleNotFound
from .directory import LAYOUT_PREFIX, Directory
from .image import (
    LIMIT_BYTES,
    MANIFEST_TYPE,
    Descriptor,
    broken,
    read_descriptor,
    read_image,
    read_object,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TAG = "org.opencontainers.image.ref.name"
DESCRIPTORS_LIMIT = 1 << 14


class Layout(Directory):
    """An open layout, and of it one image; files of the bundle are opened by their names in it.

    files: the layer of each; image, manifest: the manifest's descriptor and its bytes.
    """

    __slots__ = ("files", "folder", "image", "manifest")

    def __init__(self, reference: str) -> None:
        """Open `oci-layout:PATH[:TAG|@DIGEST]`; without tag or digest the only image there is.

        Raises `BundleNotFound`, `ImageInvalid`, `BundleAltered` and `EnvironmentFault`.
        """
        path, tag, digest = split_reference(reference)
        self.path = reference
        self.folder = Directory(path)
        try:
            self.image = self._find(tag, digest)
            self.manifest = self._manifest(self.image)
            self.files = read_image(self.manifest, self.folder.where(self.image.blob)).files
        except BaseException:
            self.folder.close()
            raise

    def close(self) -> None:
        """Close the layout's folder."""
        self.folder.close()

    def open(self, name: str) -> tuple[int, int]:
        """Descriptor and size of the blob of the bundle's file `name`, as `Directory.open`."""
        layer = self.files.get(name)
        if layer is None:
            raise BundleFileMissing(path=self.where(name))
        return self.folder.open_sized(layer.blob, layer.nbytes), layer.nbytes

    def read_head(self, name: str, limit_bytes: int) -> bytes:
        """A whole small file, checked against its layer's digest."""
        data = super().read_head(name, limit_bytes)
        _check(data, self.files[name], self.where(name))
        return data

    def _find(self, tag: str | None, digest: str | None) -> Descriptor:
        """The descriptor of the image that is asked for."""
        head = self._read("oci-layout")
        if head.get("imageLayoutVersion") != "1.0.0":
            found = repr(head.get("imageLayoutVersion"))[:40]
            raise broken(self.folder.where("oci-layout"), "imageLayoutVersion", found, "`1.0.0`")
        where, rows = self.folder.where("index.json"), self._read("index.json").get("manifests")
        if not isinstance(rows, list) or len(rows) > DESCRIPTORS_LIMIT:
            raise broken(where, "manifests", repr(rows)[:40], "a list of images")
        found_all = [
            read_descriptor(row, where, f"manifests[{index}]") for index, row in enumerate(rows)
        ]
        wanted = {
            each.digest: each
            for each in found_all
            if (tag is None or each.annotations.get(TAG) == tag) and digest in (None, each.digest)
        }
        asked = f"tag `{tag}`" if tag else f"image `{digest}`" if digest else "tag or digest"
        if len(wanted) == 1:
            return next(iter(wanted.values()))
        detail = f"its index has no {asked}"
        if wanted:
            detail = f"its index has {len(wanted)} images, and the reference gives no {asked}"
        raise BundleNotFound(path=self.path, detail=detail)

    def _read(self, name: str) -> dict[str, Any]:
        """A JSON file of the layout."""
        where = self.folder.where(name)
        try:
            return read_object(self.folder.read_head(name, LIMIT_BYTES), where)
        except BundleFileMissing:
            detail = f"it has no `{name}`, as an OCI layout does"
            raise BundleNotFound(path=self.folder.path, detail=detail) from None

    def _manifest(self, found: Descriptor) -> bytes:
        """The image's manifest, checked against its digest."""
        where = self.folder.where(found.blob)
        if found.media_type != MANIFEST_TYPE:
            expected = f"`{MANIFEST_TYPE}`"
            raise broken(where, "mediaType", repr(found.media_type)[:80], expected)
        os.close(self.folder.open_sized(found.blob, found.nbytes))
        data = self.folder.read_head(found.blob, LIMIT_BYTES)
        _check(data, found, where)
        return data


def _check(data: bytes, expected: Descriptor, where: str) -> None:
    found = hashlib.sha256(data).hexdigest()
    if f"sha256:{found}" != expected.digest:
        raise BundleAltered(path=where, where="the file", found=found, expected=expected.digest[7:])


def split_reference(reference: str) -> tuple[str, str | None, str | None]:
    """Path, tag and digest of `oci-layout:PATH[:TAG|@DIGEST]`; the last two may be None."""
    path = reference.removeprefix(LAYOUT_PREFIX)
    head, at, digest = path.rpartition("@")
    if at and digest.startswith("sha256:"):
        return head, None, digest
    head, colon, tag = path.rpartition(":")
    if colon and "/" not in tag:
        return head, tag or None, None
    return path, None, None
