"""JSON files among the extras of a bundle: bounded, checked against digests, strictly read."""

from __future__ import annotations

from typing import Any

from aotc.runtime.bundle.manifest import FileEntry
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.bundle.strict_json import NotStrict, parse
from aotc.runtime.errors import BundleFileMissing, BundleLimit, BundleMalformed

LIMIT_BYTES = 32 << 20


def read_json(bundle: Bundle, name: str) -> dict[str, Any] | None:
    """The map of an extra; None where it was deleted. Raises `BundleError`s."""
    data = read_bounded(bundle, name)
    if data is None:
        return None
    try:
        value: dict[str, Any] = parse(data, has_floats=True)
        found = "" if isinstance(value, dict) else "no map"
    except NotStrict as error:
        found = str(error)
    if found:
        expected = "a map in strict JSON"
        raise BundleMalformed(path=bundle.where(name), field="file", found=found, expected=expected)
    return value


def read_bounded(bundle: Bundle, name: str) -> bytes | None:
    """The bytes of an extra; None where it was deleted. Raises `BundleError`s."""
    try:
        files = bundle.extras().files
    except BundleFileMissing:
        return None
    entry = next((entry for entry in files if entry.name == name), None)
    return None if entry is None else read_entry(bundle, entry)


def read_entry(bundle: Bundle, entry: FileEntry) -> bytes | None:
    """The same of an extra by its row in the list of them."""
    if entry.nbytes > LIMIT_BYTES:
        found, limit = f"{entry.nbytes} bytes", f"{LIMIT_BYTES} bytes"
        raise BundleLimit(path=bundle.where(entry.name), what="size", found=found, limit=limit)
    try:
        return bundle.directory.read(entry)
    except BundleFileMissing:
        return None
