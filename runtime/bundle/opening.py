"""`open_bundle`: where a path or a reference leads, a directory or an image in an OCI layout."""

from __future__ import annotations

import os

from .directory import LAYOUT_PREFIX, Directory


def open_bundle(path: str | os.PathLike[str]) -> Directory:
    """The bundle at `path`, or the one in an OCI layout at `oci-layout:PATH[:TAG|@DIGEST]`.

    Raises `BundleNotFound` and `EnvironmentFault`, for a layout what `Layout` raises.
    """
    text = os.fspath(path)
    if text.startswith(LAYOUT_PREFIX):
        from .layout import Layout

        return Layout(text)
    return Directory(text)
