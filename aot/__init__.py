"""The ahead-of-time compiler: a PyTorch model in, a bundle out.

`aot.build` compiles a model of this process, as `aotc build` does one in a file.
`aot.EntryPoint` is one of several ways to call a model; see docs/entry-points.md.
`aot.distinct` says of indices that no two are alike; see docs/state.md.
`aot.rewrite` registers a rewrite of one's own, written with `aot.ops`; see docs/rewrites.md.
`aot.native_op` ties an op of torch to a function of a shared library; see docs/native-backends.md.
"""

from __future__ import annotations

import importlib
from typing import Any

# Public names that are imported at their first use.
_PUBLIC = {
    "build": "aotc.aot.building",
    "BuildOptions": "aotc.aot.options",
    "EntryPoint": "aotc.aot.entry_points",
    "distinct": "aotc.aot.capture.distinct_values",
    "rewrite": "aotc.aot.rewrites.user_rewrites",
    "ops": "aotc.aot.rewrites.user_rewrites",
}


def __getattr__(name: str) -> Any:
    if name == "native_op":
        from aotc.aot.extensions import extension

        return extension("aot.native_op").native_op
    if name not in _PUBLIC:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
