"""`require_build_extra`: whether what a build imports is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from aotc.aot.errors import BuildExtraMissing
from aotc.aot.version import warn_untested

NEEDED = ("torch", "triton", "numpy")


def require_build_extra(what: str, needed: Sequence[str] = NEEDED) -> None:
    """Raise BuildExtraMissing unless what a build imports, `needed`, is installed.

    Warns of releases that aotc is not tested with.
    """
    for name in needed:
        if importlib.util.find_spec(name) is None:
            raise BuildExtraMissing(module=name, command=what)
    warn_untested()
