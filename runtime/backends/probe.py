"""What a library is, found out in a process of its own.

`python -m aotc.runtime.backends.probe FILE` loads the library, reads its table, initializes its CPU
state and finalizes it. Every stage is announced on stdout before it begins, one JSON object a line,
so that whoever reads them knows where a library crashed; what the library itself prints goes to
stderr. A device is not initialized: that needs one.
"""

from __future__ import annotations

import json
import os
import sys

from ..arrays.dlpack import HOST
from ..errors import AotcError
from .library import NativeLibrary, open_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STAGES = ("load", "functions", "initialize", "finalize")


def describe(library: NativeLibrary) -> dict[str, Any]:
    """The library's own facts, as plain data."""
    return {
        "name": library.name,
        "version": library.version,
        "devices": list(library.devices),
    }


def probe(path: str, tell: Any) -> None:
    """Go through the stages; `tell` gets each one's record as it begins, and what was found."""
    tell({"stage": "load"})
    library = open_file(path)
    tell({"found": describe(library)})
    tell({"stage": "functions"})
    for name in library.function_names:
        tell({"function": library.function(name).signature.to_map()})
    if HOST[0] in library.devices:
        tell({"stage": "initialize"})
        library.state(*HOST)
        tell({"stage": "finalize"})
        library.close()


def main(path: str) -> int:
    """Write the records to stdout; 1 where the library is refused."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(record: dict[str, Any]) -> None:
        print(json.dumps(record), file=out, flush=True)

    try:
        probe(path, tell)
    except AotcError as error:
        tell({"error": error.as_map()})
        return 1
    tell({"stage": "end"})
    return 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1])))
