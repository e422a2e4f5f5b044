"""Compilation of one Triton kernel for the CPU: source text → Triton IR → LLVM IR → object."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from aotc.aot.targets import toolchain
from aotc.aot.targets.binary import OPTIMIZED, PROCESSOR, KernelBinary, kernel_symbol, pack_texts
from aotc.aot.targets.cpu.executor import executor_object
from aotc.aot.targets.cpu.isa import Isa
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
    row, own = _least(row, lowered.llvm_ir), row
    text = lowered.llvm_ir.replace(own.attributes, row.attributes)
    made = toolchain.compile_object(text, symbol, row.cpu)
    texts = {"ttir": ttir, "ll": text, OPTIMIZED: made.llvm_ir, PROCESSOR: row.cpu}
    packed = pack_texts(texts)
    return KernelBinary(
        symbol, made.data, lowered.scratch_bytes, architecture=row.name, packed_texts=packed
    )


def _least(row: Isa, llvm_ir: str) -> Isa:
    """The row that has all instructions which a text asks for by name."""
    while row.base and not any(f"@llvm.x86.{name}" in llvm_ir for name in row.adds):
        row = find_isa(row.base)
    return row


class LoadableKernel(NamedTuple):
    """A library that holds one kernel and the executor; of plain values, to travel between
    processes."""

    library: bytes
    symbol: str
    scratch_bytes: int
    texts: dict[str, str]
    sites: tuple[dict[str, Any], ...] | None
    """What it may report to the host, see `reports`; with any, its last argument is a buffer."""


def compile_library(
    ttir: str,
    isa: str,
    no_alias: bool,
    reports_to_host: bool = False,
    checks_memory: bool = False,
    checks_races: bool = False,
) -> LoadableKernel:
    """Compiles a kernel that is loaded and launched by itself."""
    row = find_isa(isa)
    symbol = "k" + hashlib.sha256(f"{isa} {no_alias} {ttir}".encode()).hexdigest()[:16]
    lowered = lower(
        ttir,
        row,
        no_alias=no_alias,
        reports_to_host=reports_to_host,
        checks_memory=checks_memory,
        checks_races=checks_races,
    )
    made = toolchain.compile_object(lowered.llvm_ir, symbol, row.cpu)
    library = toolchain.link({"executor": _executor(), symbol: made.data})
    texts = {"ll": lowered.llvm_ir, OPTIMIZED: toolchain.of_processor(made)}
    return LoadableKernel(library, symbol, lowered.scratch_bytes, texts, lowered.sites)


@functools.cache
def _executor() -> bytes:
    return executor_object().data
