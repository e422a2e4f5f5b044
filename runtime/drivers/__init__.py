"""Drivers run a launch plan on one device family; one module each, all with the same names.

- `features()`: names of this machine's instruction sets, as manifests list them.
- `Executable(library, plan, weights, inputs, outputs, threads, path)`: the loaded code of one
  target; shared by threads. `library` is the bytes of the shared object, checked against their
  digest (`path` is their file, for systems without /proc), `plan` a `LaunchPlan`; `weights` maps
  tensor names to addresses that stay valid; `inputs` and `outputs` count the arrays of a call;
  `threads` is the caller's wish or 0. `executable.threads` is the number in use,
  `executable.copy_strided(to, source, itemsize, shape, strides)` makes an array of up to 8 dims
  contiguous (strides in bytes), `executable.close()` unloads the code after its sessions.
- `executable.session()`: the memory of one call at a time. `session.addresses` is a ctypes array,
  inputs first, then outputs, which the caller fills; `session.run()` runs the plan on them;
  `session.close()` frees the memory.

Nothing here allocates at import.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

DRIVERS = ("cpu", "cuda", "null")


def load(device: str) -> ModuleType:
    """The driver module of a device family of DRIVERS."""
    if device == "cpu":
        from . import cpu

        return cpu
    if device == "cuda":
        from . import cuda

        return cuda
    from . import null

    return null
