"""Load and run bundles: `runtime.load("bundle/")` gives a `Program`, `runtime.check` the reasons
why it would not. It needs the standard library and msgpack; nothing is written at import.
"""

from __future__ import annotations


def _is_second_name() -> bool:
    """In a checkout the folder answers to `runtime`; an installed `aotc.runtime` goes first."""
    if __name__ != "runtime":
        return False
    try:
        import aotc.runtime
    except ModuleNotFoundError:
        return False
    aotc.runtime.alias.answer_to("runtime")
    return True


if not _is_second_name():
    from . import alias as alias
    from .bundle.manifest import TensorSpec
    from .check import Mismatch, check
    from .errors import (
        AotcError,
        BundleError,
        EnvironmentFault,
        IncompatibleError,
        InputError,
    )
    from .loading import load
    from .programs.program import Bound, Program
    from .programs.seeds import manual_seed
    from .programs.session import Session

    TYPE_CHECKING = False
    if TYPE_CHECKING:
        from typing import Any

        from .backends import get_backend as get_backend

    def __getattr__(name: str) -> Any:
        """`get_backend`, imported at its first use: most programs call no native back end."""
        if name != "get_backend":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .backends import get_backend

        globals()[name] = get_backend
        return get_backend

    __all__ = [
        "AotcError",
        "Bound",
        "BundleError",
        "EnvironmentFault",
        "IncompatibleError",
        "InputError",
        "Mismatch",
        "Program",
        "Session",
        "TensorSpec",
        "check",
        "get_backend",
        "load",
        "manual_seed",
    ]
