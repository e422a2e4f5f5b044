"""Parts of aotc that an installation may leave out, found by name.

The compiler never imports them directly. It asks here for the part that handles an op, a plan step
or a command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotc.runtime.bundle.native_plan import NativeLaunch
from aotc.runtime.extensions import load

# Purpose → module.
EXTENSIONS = {
    "native libraries": "aotc.aot.native.library",
    "native kernels": "aotc.aot.native.lowering",
    "measuring native functions": "aotc.aot.native.bench",
    "aot.native_op": "aotc.aot.native.ops",
    "aotc init FOLDER": "aotc.aot.huggingface.new_spec",
    "aotc backends": "aotc.runtime.backends",
    "aotc profile": "aotc.aot.profile",
    "aotc reduce": "aotc.aot.reduce",
}


def extension(purpose: str) -> Any:
    """The module for a purpose; raises `ExtensionMissing`."""
    return load(purpose, EXTENSIONS[purpose])


def bound_natives(natives: Sequence[NativeLaunch], device: tuple[str, int]) -> Any:
    """What sessions call native functions by, of the libraries that ops are tied to; None where a
    plan calls none. device: (family, ordinal)."""
    return extension("native libraries").bound(natives, device) if natives else None
