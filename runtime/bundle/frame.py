"""The frame of the manifest: magic, version, length, payload, digest."""

from __future__ import annotations

import hashlib
import struct

from ..errors import (
    BundleAltered,
    BundleSizeMismatch,
    BundleTruncated,
    FormatTooNew,
    FormatTooOld,
    NotABundle,
)
from .canonical import Limits, decode, encode
from .schema import Schema, keep_known

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT = (4, 0)
MANIFEST_MAGIC = b"\x89AOTC\r\n\x1a"
HEADER = struct.Struct(">8sHHI")
TRAILER_BYTES = 32
LIMITS = Limits(file_bytes=16 << 20, values=1 << 17, depth=16, text_bytes=1 << 16)


def frame(tree: Any) -> bytes:
    """Header, canonical payload and digest around a tree of plain values."""
    payload = encode(tree)
    data = HEADER.pack(MANIFEST_MAGIC, *FORMAT, len(payload)) + payload
    return data + hashlib.sha256(data).digest()


def unframe(data: bytes, path: str, schema: Schema) -> Any:
    """The tree inside a framed file.

    A newer minor version may have fields that `schema` lacks; they are left out, since whatever
    must not be ignored is a feature. A newer major version is refused.

    The order of the checks tells apart what is not a bundle, what is too new, what is cut off and
    what was altered. Raises `NotABundle`, `FormatTooNew`, `FormatTooOld`, `BundleTruncated`,
    `BundleSizeMismatch`, `BundleAltered`, and what `decode` raises.
    """
    if not data or data[: len(MANIFEST_MAGIC)] != MANIFEST_MAGIC[: len(data)]:
        raise NotABundle(
            path=path, detail=f"it starts with {data[:8]!r}, expected {MANIFEST_MAGIC!r}"
        )
    least_bytes = HEADER.size + TRAILER_BYTES
    if len(data) < HEADER.size:
        raise BundleTruncated(path=path, found=len(data), expected=least_bytes)
    _, major, minor, length = HEADER.unpack_from(data)
    if major != FORMAT[0]:
        kind = FormatTooNew if major > FORMAT[0] else FormatTooOld
        raise kind(path=path, found=f"{major}.{minor}", expected=f"{FORMAT[0]}.x")
    total_bytes = least_bytes + length
    if len(data) < total_bytes:
        raise BundleTruncated(path=path, found=len(data), expected=total_bytes)
    if len(data) > total_bytes:
        raise BundleSizeMismatch(path=path, found=len(data), expected=total_bytes)
    found = hashlib.sha256(memoryview(data)[:-TRAILER_BYTES]).digest()
    if found != data[-TRAILER_BYTES:]:
        raise BundleAltered(
            path=path, where="the file", found=found.hex(), expected=data[-TRAILER_BYTES:].hex()
        )
    tree = decode(data[HEADER.size : -TRAILER_BYTES], LIMITS, path)
    return keep_known(tree, schema) if minor > FORMAT[1] else tree
