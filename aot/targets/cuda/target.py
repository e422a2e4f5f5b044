"""The CUDA family's targets: one for each compute capability that the assemblers know.

Their library is cubins one after the other, each at an aligned offset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from aotc.aot.errors import TargetDeviceAbsent
from aotc.aot.targets.binary import KernelBinary, Library
from aotc.aot.targets.cuda.compile import load
from aotc.aot.targets.cuda.machines import (
    GPUS,
    assembler_architectures,
    assembler_versions,
    capability,
)
from aotc.aot.targets.target import Family, Target
from aotc.runtime.bundle.plan import Image
from aotc.runtime.drivers.cuda import driver

IMAGE_ALIGNMENT_BYTES = 64
NAMES = re.compile(r"(?:cuda[:-])?sm_(\d{2,3})a?")  # 90 always compiles as sm_90a


def support_code() -> dict[str, bytes]:
    """Versions of the assemblers; cubins need nothing beside them."""
    load()
    return {"assemblers.json": json.dumps(assembler_versions(), sort_keys=True).encode()}


def library(kernels: Sequence[KernelBinary], support_code: Mapping[str, bytes]) -> Library:
    """The cubins in the order of their symbols, and what a launch of each takes."""
    parts: list[bytes] = []
    images: dict[str, Image] = {}
    end = 0
    for symbol, kernel in sorted({row.symbol: row for row in kernels if row.code}.items()):
        images[symbol] = Image(
            end,
            len(kernel.code),
            kernel.threads,
            kernel.shared_bytes,
            kernel.scratch_bytes,
            kernel.is_programmatic,
        )
        padding = bytes(-len(kernel.code) % IMAGE_ALIGNMENT_BYTES)
        parts += [kernel.code, padding]
        end += len(kernel.code) + len(padding)
    return Library(b"".join(parts), images)


def find(text: str) -> Target | None:
    """`cuda:sm_90` needs no device; `cuda` is the device present.

    None for an architecture that no assembler here knows. Raises TargetDeviceAbsent for `cuda`
    without a device.
    """
    if text == "cuda":
        return _of(_present())
    match = NAMES.fullmatch(text)
    return _of(int(match[1])) if match else None


def known() -> Sequence[str]:
    """Every name of a CUDA target that can be compiled for here."""
    return ["cuda", *(f"cuda:sm_{capability}" for capability in _capabilities())]


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
    "aotc.aot.targets.cuda.target:support_code",
    library,
    "aotc.aot.targets.cuda.measure:measure",
    # A GPU's kernels have more knobs, and measuring costs microseconds where a CPU's costs ms.
    {"off": 1, "quick": 12, "full": 96},
    is_apart=True,
    measure_call="aotc.aot.targets.cuda.measure_call:measure_call",
    tools=assembler_versions,
)
