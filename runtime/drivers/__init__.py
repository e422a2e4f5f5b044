"""Drivers run a launch plan on one device family: a row each in the one table of them.

`protocol.py` says what a driver's module has: what this machine runs, an `Executable`, the loaded
code of one target, and its sessions, the memory of one call at a time. A step of the plan that is
no kernel ends a stretch of native code (on the CPU a native function does not).

In host memory `executable.copy_strided(to, source, itemsize, shape, strides)` makes an array of up
to 8 dims contiguous (strides in bytes). On a device addresses are the device's, and
`session.run(stream)` is asynchronous; host buffers go through `session.copy_in`, `stage`,
`copy_out` and `synchronize`. `Device` of `cuda/device.py` is the device by itself: memory, kernels,
launches, graphs, events.

Nothing here allocates at import, and libcuda is opened at the first question.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .cpu import driver as cpu
    from .cuda import driver as cuda
    from .protocol import Driver

    _ALL: tuple[Driver, ...] = (cpu, cuda)  # as mypy sees

FAMILIES = ("cpu", "cuda")  # the table: a row is a folder here and one in `aot/targets`
DRIVERS = {family: f"{__name__}.{family}.driver" for family in FAMILIES}  # to their modules


def load(family: str) -> Driver:
    """The driver of a family of DRIVERS."""
    module: Any = importlib.import_module(DRIVERS[family])
    found: Driver = module
    return found
