"""Who measures kernels of a target on this machine, and what tuning records call it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from aotc.aot.targets.families import FAMILIES
from aotc.aot.targets.target import Target
from aotc.aot.targets.worker import resolve
from aotc.aot.tune.job import Measurer
from aotc.runtime import drivers

SupportCode = Mapping[str, bytes]  # what the target's family compiles once, by file name


def measurer_for(target: Target, support_code: SupportCode) -> Measurer | None:
    """The device here that runs the target; None where there is none."""
    if not set(target.needs) <= drivers.load(target.device).features():
        return None
    measurer: Measurer = resolve(FAMILIES[target.device].measurer)(support_code)
    return measurer


def device_here(target: Target) -> str:
    """What tuning records call the device here that runs the target: `nvidia-h200`; empty where
    the target runs on the processor, or where there is no such device."""
    rows = drivers.load(target.device).describe()
    names = [name for _, name, architecture, _ in rows if architecture in target.needs]
    return device_word(names[0]) if names else ""


def device_word(name: str) -> str:
    """A device's name as one word of a tuning record: `NVIDIA H200` → `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown"
