"""Drivers run a launch plan on one device family; one row each, all with the same names.

- `features()`: what this machine's device runs, in the words of a manifest's `needs`; never raises.
- `Executable(library, plan, weights, …)`: the loaded code of one target; shared by threads.
  `library` is the bytes of the shared object (CPU) or of the kernels' images (CUDA), checked
  against their digest, `plan` a `LaunchPlan`, or the `Plan` of sizes that a call decides.
  `executable.threads` is the number of host threads in use, `executable.close()` unloads the code
  after its sessions.
- `executable.at(plan, inputs, outputs)`: the same code with the `LaunchPlan` of a call's sizes.
- `executable.session(shared)`: the memory of one call at a time. `session.addresses` is a ctypes
  array, inputs first, then outputs, which the caller fills; `session.run()` runs the plan on them;
  `session.states` is what it keeps; `session.close()` frees the memory. A step of the plan that is
  no kernel ends a stretch of native code (on the CPU a native function does not).
- `executable.shared()`: the arena and the states of all shapes of a caller. `fits(code)` says
  whether an executable's plan has room there, `grow(code)` makes room, once the sessions that use
  the old arena are closed.

CPU and null take `(library, plan, weights, inputs, outputs, threads, natives, fallback)`: `weights`
maps tensor names to addresses that stay valid, `inputs` and `outputs` count the arrays of a call,
`threads` is the caller's wish or 0; `natives` has the functions that native steps call by back end
and name, `fallback` makes the steps that torch runs (`Fallback.step`).
`executable.copy_strided(to, source, itemsize, shape, strides)` makes an array of up to 8 dims
contiguous (strides in bytes).

CUDA takes `(library, plan, weights, inputs, outputs, device, natives, fallback)`: `weights` maps
names to (host address, bytes), read until it returns; `inputs` and `outputs` are the bytes of each
array; `device` is an ordinal. Addresses are device addresses, and `session.run(stream)` is
asynchronous; host buffers go through `session.copy_in`, `stage`, `copy_out` and `synchronize`.
`why_absent()` says what was found where there are no features, `describe()` lists the devices, and
`Device` of `cuda/device.py` is the device by itself: memory, kernels, launches, graphs, events.

Nothing here allocates at import, and libcuda is opened at the first question.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

DRIVERS = {"cpu": "cpu.driver", "cuda": "cuda.driver", "null": "null"}  # family → its module


def load(device: str) -> ModuleType:
    """The driver module of a device family of DRIVERS."""
    return importlib.import_module(f"{__name__}.{DRIVERS[device]}")
