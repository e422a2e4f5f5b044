"""One runtime under two names: `runtime` and `aotc.runtime` are the same module objects.

Without this a second import of the same files would make second classes, and an
`except InputError` of one name would miss what the other raises.
"""

from __future__ import annotations

import sys

PACKAGE = "aotc.runtime"


def answer_to(name: str) -> None:
    """Make `name` and its loaded submodules the modules of the installed `aotc.runtime`."""
    for key, module in list(sys.modules.items()):
        if key == PACKAGE or key.startswith(PACKAGE + "."):
            sys.modules[name + key.removeprefix(PACKAGE)] = module
