"""Drivers run a launch plan on one device family; one module each, all with the same names.

- `Library(data, path)`: the code of one target, from bytes that were checked against their digest;
  `library.copy_strided(to, source, itemsize, rank, shape, strides)` makes a strided array
  contiguous (shape and strides as ctypes int64 arrays, strides in bytes); `library.close()`.
- `Executable(library, plan, inputs, outputs)`: the code with its launch plan; shared by threads.
- `NativeSession(executable, weight_addresses, threads)`: the memory of one call at a time;
  `run(inputs, outputs)` takes addresses, `bind(inputs, outputs)` returns a function that runs with
  these addresses, `close()` frees the memory; `threads` is how many one call uses.

Nothing here allocates at import.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

DRIVERS = ("cpu", "null")


def load(device: str) -> ModuleType:
    """The driver module of a device family of DRIVERS."""
    if device == "cpu":
        from . import cpu

        return cpu
    from . import null

    return null


def features(device: str) -> frozenset[str]:
    """Names of the instruction sets that this machine has, as manifests list them."""
    if device == "cpu":
        from .cpu import cpu_features

        return cpu_features()
    return frozenset()
