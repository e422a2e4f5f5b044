"""The CUDA family's targets: one for each compute capability that the assemblers know."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aotc.aot.errors import TargetDeviceAbsent
from aotc.aot.targets.cuda.library import library
from aotc.aot.targets.cuda.machines import GPUS
from aotc.aot.targets.cuda.pipeline import assembler_architectures, assembler_versions
from aotc.aot.targets.target import Family, Target
from aotc.runtime.drivers.cuda import driver

SPELLING = re.compile(r"(?:cuda[:-])?sm_(\d{2,3})a?")  # 90 always compiles as sm_90a


def find(text: str) -> Target | None:
    """`cuda:sm_90` needs no device; `cuda` is the device present.

    None for an architecture that no assembler here knows. Raises TargetDeviceAbsent for `cuda`
    without a device.
    """
    if text == "cuda":
        return _of(_present())
    match = SPELLING.fullmatch(text)
    return _of(int(match[1])) if match else None


def known() -> Sequence[str]:
    """Every name of a CUDA target that can be compiled for here."""
    return ["cuda", *(f"cuda:sm_{capability}" for capability in _capabilities())]


def capability(architecture: str) -> int:
    """The number in `sm_90`."""
    return int(architecture.removeprefix("sm_"))


def _of(number: int) -> Target | None:
    if number not in _capabilities():
        return None
    architecture = f"sm_{number}"
    return Target(f"cuda-{architecture}", "cuda", architecture, (architecture,), GPUS[number])


def _capabilities() -> list[int]:
    architectures = assembler_architectures()
    return [number for number in GPUS if f"sm_{number}" in architectures]


def _present() -> int:
    """The best capability among the devices here; raises TargetDeviceAbsent with what was found."""
    found = [capability(name) for name in driver.features() if name.startswith("sm_")]
    if not found:
        raise TargetDeviceAbsent(device="cuda", found=driver.why_absent())
    return max(found)


FAMILY = Family(
    find,
    known,
    "aotc.aot.targets.cuda.compile:compile_kernel",
    "aotc.aot.targets.cuda.library:support_code",
    library,
    "aotc.aot.targets.cuda.measure:measure",
    # A GPU's kernels have more knobs, and measuring costs microseconds where a CPU's costs ms.
    {"off": 1, "quick": 12, "full": 96},
    is_apart=True,
    tools=assembler_versions,
)
