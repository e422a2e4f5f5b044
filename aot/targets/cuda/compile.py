"""Compilation of one Triton kernel for a GPU: source text → cubin and what a launch needs."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.aot.errors import KernelTooLarge
from aotc.aot.targets import toolchain
from aotc.aot.targets.binary import KernelBinary, kernel_symbol, pack_texts
from aotc.aot.targets.cuda.machines import GPUS
from aotc.aot.targets.cuda.pipeline import compile_cubin
from aotc.aot.targets.cuda.target import capability
from aotc.aot.traits import LAUNCH_OPTIONS

TENSOR_MEMORY_COLUMNS = 512  # of one multiprocessor, from sm_100 on


def compile_kernel(
    source: str,
    function: str,
    params: Sequence[tuple[str, str]],
    config: Sequence[tuple[str, int]],
    architecture: str,
) -> KernelBinary:
    """Compile `function` of a Triton source text for `architecture`, such as `sm_90`.

    `params` are (name, Triton type) of the run-time arguments in order, scratch included; every
    pointer is taken to be 16-byte aligned. `config` holds the constexprs and the launch options.

    Raises ToolchainError with Triton's or the assembler's reason, KernelTooLarge where a program
    needs more shared or tensor memory than a multiprocessor has.
    """
    number = capability(architecture)
    kernel = toolchain.load_kernel(source, function)
    made = compile_cubin(
        kernel,
        params,
        {name: value for name, value in config if name not in LAUNCH_OPTIONS},
        number,
        {name: value for name, value in config if name in LAUNCH_OPTIONS},
        kernel_symbol(source, function, params, config, architecture),
    )
    limit = GPUS[number].shared_bytes
    if made.shared_bytes > limit:
        raise KernelTooLarge(
            kernel=function, found=made.shared_bytes, unit="bytes of shared memory", expected=limit
        )
    if made.tensor_memory_columns > TENSOR_MEMORY_COLUMNS:
        raise KernelTooLarge(
            kernel=function,
            found=made.tensor_memory_columns,
            unit="columns of tensor memory",
            expected=TENSOR_MEMORY_COLUMNS,
        )
    return KernelBinary(
        symbol=made.symbol,
        code=made.code,
        scratch_bytes=made.scratch_bytes,
        threads=made.threads,
        shared_bytes=made.shared_bytes,
        registers=made.registers,
        spill_bytes=made.spill_bytes,
        is_programmatic=made.is_programmatic,
        packed_texts=pack_texts(made.texts),
    )
