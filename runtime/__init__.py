"""Load and run bundles: `runtime.load("bundle/")` gives a `Program`, `runtime.check` the reasons
why it would not. It needs the standard library alone; nothing is written at import, and what a name
stands for is imported at the name's first use.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    raise ImportError(f"this is Python {sys.version.split()[0]}, aotc needs Python 3.11 or later")


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

    TYPE_CHECKING = False
    if TYPE_CHECKING:
        from typing import Any

        from .backends import get_backend as get_backend
        from .bundle.manifest import TensorSpec as TensorSpec
        from .errors import AotcError as AotcError
        from .errors import BundleError as BundleError
        from .errors import EnvironmentFault as EnvironmentFault
        from .errors import IncompatibleError as IncompatibleError
        from .errors import InputError as InputError
        from .loading import load as load
        from .mismatch import Mismatch as Mismatch
        from .mismatch import check as check
        from .programs.metrics import metrics_text as metrics_text
        from .programs.program import Bound as Bound
        from .programs.program import Program as Program
        from .programs.seeds import manual_seed as manual_seed
        from .programs.session import Session as Session
        from .serving.batcher import Batcher as Batcher
        from .serving.deployment import Deployment as Deployment

    _HOMES = {
        "AotcError": "errors",
        "Batcher": "serving.batcher",
        "Bound": "programs.program",
        "BundleError": "errors",
        "Deployment": "serving.deployment",
        "EnvironmentFault": "errors",
        "IncompatibleError": "errors",
        "InputError": "errors",
        "Mismatch": "mismatch",
        "Program": "programs.program",
        "Session": "programs.session",
        "TensorSpec": "bundle.manifest",
        "check": "mismatch",
        "get_backend": "backends",
        "load": "loading",
        "manual_seed": "programs.seeds",
        "metrics_text": "programs.metrics",
    }

    def __getattr__(name: str) -> Any:
        """A public name, from the module that it is made in."""
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(__import__(f"{__name__}.{home}", fromlist=[name]), name)
        globals()[name] = found
        return found

    # `import *` shall stay cheap: batches need `threading` and `concurrent.futures`.
    __all__ = [name for name in _HOMES if name != "Batcher"]
