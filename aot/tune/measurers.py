"""Who measures kernels of a target on this machine, and what tuning records call it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from aotc.aot.targets.target import Target
from aotc.aot.tune.cuda import CudaMeasurer
from aotc.aot.tune.job import Measurer
from aotc.aot.tune.measure import CpuMeasurer
from aotc.runtime import drivers

SupportCode = Mapping[str, bytes]  # what the target's family compiles once, by file name


def measurer_for(target: Target, support_code: SupportCode) -> Measurer | None:
    """The device here that runs the target; None where there is none."""
    if not set(target.needs) <= drivers.load(target.device).features():
        return None
    measurer: Measurer = MEASURERS[target.device](support_code)
    return measurer


def device_here(target: Target) -> str:
    """What tuning records call the device here that runs the target: `nvidia-h200`; empty where
    the target runs on the processor, or where there is no such device."""
    if target.device != "cuda":
        return ""
    from aotc.runtime.drivers.cuda.driver import describe

    names = [name for _, name, architecture, _ in describe() if architecture in target.needs]
    return device_word(names[0]) if names else ""


def device_word(name: str) -> str:
    """A device's name as one word of a tuning record: `NVIDIA H200` → `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown"


MEASURERS: Mapping[str, Callable[[SupportCode], Any]] = {
    "cpu": lambda support_code: CpuMeasurer(support_code["executor.o"]),
    "cuda": lambda support_code: CudaMeasurer(),
}
