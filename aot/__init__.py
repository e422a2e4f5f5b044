"""The ahead-of-time compiler: a PyTorch model in, a bundle out.

`aot.rewrite` registers a rewrite of one's own, written with `aot.ops`; see docs/rewrites.md.
"""

from __future__ import annotations

import importlib
from typing import Any

# Public names that are imported at their first use.
_PUBLIC = {"rewrite": "aotc.aot.rewrites.own", "ops": "aotc.aot.rewrites.equations"}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
