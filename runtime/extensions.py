"""What stands beside the runtime and may be left out of an installation, asked for by name."""

from __future__ import annotations

import sys

from .errors import ExtensionMissing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Purpose → module, from the runtime's own package on.
EXTENSIONS = {"native back ends": "backends.discovery"}


def extension(purpose: str) -> Any:
    """The module for a purpose of the runtime's; raises `ExtensionMissing`."""
    return load(purpose, f"{__package__}.{EXTENSIONS[purpose]}")


def load(purpose: str, module: str) -> Any:
    """A module of ours that may be left out; raises `ExtensionMissing` where it was."""
    try:
        __import__(module)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != module.partition(".")[0]:  # a library
            raise
        raise ExtensionMissing(purpose=purpose, module=str(error.name)) from None
    return sys.modules[module]
