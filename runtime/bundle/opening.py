"""`open_bundle`: opens a path or a reference, as a directory or as an image in an OCI layout."""

from __future__ import annotations

from ..settings import path_text
from .directory import LAYOUT_PREFIX, Directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os


def open_bundle(path: str | os.PathLike[str]) -> Directory:
    """The bundle at `path`, or the one in an OCI layout at `oci-layout:PATH[:TAG|@DIGEST]`.

    Raises `ArgumentInvalid` for what is no path, `BundleNotFound` and `EnvironmentFault`, for a
    layout what `Layout` raises.
    """
    text = path_text("path", path)
    if text.startswith(LAYOUT_PREFIX):
        from .layout import Layout

        return Layout(text)
    return Directory(text)
