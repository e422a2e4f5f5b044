"""The CPU family's targets: one for each row of `isa.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aotc.aot.targets.cpu.isa import ISAS
from aotc.aot.targets.cpu.library import library
from aotc.aot.targets.target import Family, Target
from aotc.aot.traits import TargetTraits
from aotc.runtime.drivers.cpu.driver import ISA_FEATURES, best_isa, features

CPU = TargetTraits()


def find(text: str) -> Target | None:
    """`cpu` is the best instruction set that this machine has; `cpu-x86-64-v3` names one."""
    name = text.replace("cpu:", "cpu-", 1).removeprefix("cpu-")
    if name in ("cpu", "native"):
        name = best_isa(features()) or text
    if name not in ISAS:
        return None
    traits = replace(CPU, lanes=ISAS[name].lanes)
    needs = tuple(sorted(ISA_FEATURES[name]))
    return Target(f"cpu-{name}", "cpu", name, needs, traits, ISAS[name].smaller)


def known() -> Sequence[str]:
    """Every name of a CPU target."""
    return ["cpu", *(f"cpu-{name}" for name in ISAS)]


FAMILY = Family(
    find,
    known,
    "aotc.aot.targets.cpu.compile:compile_kernel",
    "aotc.aot.targets.cpu.library:support_code",
    library,
    "aotc.aot.targets.cpu.measure:measure",
    {"off": 1, "quick": 4, "full": 1000},
)
