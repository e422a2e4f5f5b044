"""Compilation of one Triton kernel for the CPU: source text → Triton IR → LLVM IR → object."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

from aotc.aot.targets import toolchain
from aotc.aot.targets.binary import KernelBinary, kernel_symbol, pack_texts
from aotc.aot.targets.cpu.executor import executor_object
from aotc.aot.targets.cpu.isa import isa as find_isa
from aotc.aot.targets.cpu.lowering import lower
from aotc.aot.traits import LAUNCH_OPTIONS


def compile_kernel(
    source: str,
    function: str,
    params: Sequence[tuple[str, str]],
    config: Sequence[tuple[str, int]],
    isa: str,
    *,
    no_alias: bool = True,
) -> KernelBinary:
    """Compiles `function` of a Triton source text for the instruction set called `isa`.

    `params` are (name, Triton type) of the run-time arguments in order, `config` the constexprs.
    `no_alias` promises that pointer arguments do not overlap. Bad LLVM IR ends the process, so
    callers run this in a worker (see `aotc.aot.tasks.workers`).

    Raises CompileError (or ToolchainError) with the reason.
    """
    kernel = toolchain.load_kernel(source, function)
    config = tuple(row for row in config if row[0] not in LAUNCH_OPTIONS)
    types = [*params, *((name, "constexpr") for name, _ in config)]
    order = {name: place for place, name in enumerate(kernel.arg_names)}
    ttir = toolchain.ttir_text(kernel, sorted(types, key=lambda x: order[x[0]]), dict(config))
    return compile_ttir(
        ttir, isa, no_alias=no_alias, symbol=kernel_symbol(source, function, params, config, isa)
    )


def compile_ttir(ttir: str, isa: str, *, no_alias: bool, symbol: str | None = None) -> KernelBinary:
    """Compiles Triton IR in generic form; the symbol is named after its digest by default."""
    row = find_isa(isa)
    symbol = symbol or "k" + hashlib.sha256(f"{isa} {no_alias} {ttir}".encode()).hexdigest()[:16]
    lowered = lower(ttir, row, no_alias=no_alias)
    made = toolchain.compile_object(lowered.llvm_ir, symbol, row.name)
    texts = {"ttir": ttir, "ll": lowered.llvm_ir, "s": made.assembly}
    return KernelBinary(symbol, made.data, lowered.scratch_bytes, packed_texts=pack_texts(texts))


def compile_library(ttir: str, isa: str, no_alias: bool) -> tuple[bytes, str, int]:
    """A library that holds one kernel and the executor: (bytes, symbol, scratch bytes).

    Of plain values, so that it can be asked of a worker process.
    """
    made = compile_ttir(ttir, isa, no_alias=no_alias)
    library = toolchain.link({"executor": _executor(), made.symbol: made.code})
    return library, made.symbol, made.scratch_bytes


@functools.cache
def _executor() -> bytes:
    return executor_object().data
