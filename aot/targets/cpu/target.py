"""The CPU family's targets: one for each row of `isa.py`.

Their library is one shared object that holds the kernels and the executor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aotc.aot.targets import toolchain
from aotc.aot.targets.binary import KernelBinary, Library
from aotc.aot.targets.cpu.executor import executor_object
from aotc.aot.targets.cpu.isa import ISAS
from aotc.aot.targets.target import Family, Target
from aotc.aot.traits import TargetTraits
from aotc.runtime.drivers.cpu.driver import ISA_FEATURES, best_isa, features

EXECUTOR = "executor.o"
SMALLEST = "x86-64-v3"  # which the executor is compiled for, and calls of native code need


def support_code() -> dict[str, bytes]:
    """The executor's object: it depends on the compiler alone."""
    return {EXECUTOR: executor_object().data}


def library(kernels: Sequence[KernelBinary], support_code: Mapping[str, bytes]) -> Library:
    """Link the kernels and the executor; raises ToolchainError."""
    objects = {kernel.symbol: kernel.code for kernel in kernels if kernel.code}
    needs = (ISA_FEATURES[kernel.architecture or SMALLEST] for kernel in kernels)
    return Library(
        toolchain.link({"executor": support_code[EXECUTOR], **objects}),
        needs=tuple(sorted(ISA_FEATURES[SMALLEST].union(*needs))),
    )


CPU = TargetTraits()


def find(text: str) -> Target | None:
    """`cpu` is the best instruction set that this machine has; `cpu-x86-64-v3` names one."""
    name = text.replace("cpu:", "cpu-", 1).removeprefix("cpu-")
    if name in ("cpu", "native"):
        name = best_isa(features()) or text
    if name not in ISAS:
        return None
    row = ISAS[name]
    has_bf16 = "bf16" in dict(row.multiplies_words)
    traits = replace(
        CPU,
        lanes=row.lanes,
        has_tiles=row.has_tiles,
        multiplies_bf16=has_bf16,
        product_rates=row.product_rates,
    )
    needs = tuple(sorted(ISA_FEATURES[name]))
    return Target(f"cpu-{name}", "cpu", name, needs, traits, row.smaller)


def known() -> Sequence[str]:
    """Every name of a CPU target."""
    return ["cpu", *(f"cpu-{name}" for name in ISAS)]


FAMILY = Family(
    find,
    known,
    "aotc.aot.targets.cpu.compile:compile_kernel",
    "aotc.aot.targets.cpu.target:support_code",
    library,
    "aotc.aot.targets.cpu.measure:measure",
    {"off": 1, "quick": 4, "full": 1000},
)
