"""The CPU library: one shared object that holds the kernels and the executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aotc.aot.targets import toolchain
from aotc.aot.targets.binary import KernelBinary
from aotc.aot.targets.cpu.executor import executor_object
from aotc.aot.targets.library import Library

EXECUTOR = "executor.o"


def support_code() -> dict[str, bytes]:
    """The executor's object: it depends on the compiler alone."""
    return {EXECUTOR: executor_object().data}


def library(kernels: Sequence[KernelBinary], support_code: Mapping[str, bytes]) -> Library:
    """Link the kernels and the executor; raises ToolchainError."""
    objects = {kernel.symbol: kernel.code for kernel in kernels if kernel.code}
    return Library(toolchain.link({"executor": support_code[EXECUTOR], **objects}))
